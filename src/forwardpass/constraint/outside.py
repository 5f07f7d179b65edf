"""Grammars of llguidance, an optional package, behind the interface that generation uses.

grammar = outside_grammar("lark", 'start: "yes" | "no"', texts, control, ends)
guide = grammar.guide()         # one an answer
guide.allowed(left=20).words    # which tokens may come next, a bit each
guide.advance(token)

Lark grammars, JSON Schemas and regular expressions are read as llguidance reads them: what it does
with a keyword is its own affair, and no answer is closed in time. Ours is `grammar.py`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from forwardpass.constraint.guide import Allowed
from forwardpass.constraint.tokens import Words
from forwardpass.errors import RequestError, did_you_mean

Kind = Literal["lark", "json_schema", "regex"]

MOST_CHARACTERS = 100_000
# It reads rules that name rules by recursion, and would die of a long chain on a usual stack: 8 MB
# end near 2,000 of them. As many as MOST_CHARACTERS can hold need less than half of this.
_STACK_BYTES = 256 * 2**20
_STACK_SIZE = threading.Lock()
# All tokens that are legal, not only the ones that its own tokenizer would have written. Last in
# the text, so that no other setting there undoes it and its errors count the lines as given.
_EVERY_TOKEN = '\n%llguidance {"no_forcing": true}\n'
_MESSAGE_LINES = 12
_NO_TOKEN = "NoExtensionBias"  # its word for: no token goes on

Made = TypeVar("Made")


class OutsideVocabulary:
    """A model's tokens as llguidance wants them; made once a model, for any number of grammars.

    `token_texts` are the bytes of each id, None where an id has none. Ids of `control` and `ends`
    are never text, whatever their bytes. Raises RequestError where the package is missing or
    refuses the tokens, ValueError for ids outside of `token_texts` and where nothing ends.
    """

    def __init__(
        self,
        token_texts: Sequence[bytes | None],
        control: Collection[int],
        ends: Collection[int],
    ) -> None:
        never_text = {*control, *ends}
        if not ends or not all(0 <= i < len(token_texts) for i in never_text):
            raise ValueError("control and end ids are of the vocabulary, and one ends")
        self.size = len(token_texts)
        self.ends = frozenset(ends)
        # No UTF-8 text has byte FF, with which llguidance marks its own.
        texts = [b"" if not text or text[0] == 0xFF else text for text in token_texts]
        for i in never_text:
            texts[i] = b"<|%d|>" % i
        self.end_bits = _bits(self.ends, self.size)
        self.text_bits = _bits(
            [i for i, text in enumerate(texts) if text and i not in never_text], self.size
        )
        library = _library()
        try:
            self.tokenizer = library.LLTokenizer(
                _Tokens(texts, sorted(never_text), min(ends)),
                n_vocab=self.size,
                eos_token=sorted(ends),
            )
        except ValueError as error:
            raise RequestError(*_said("llguidance refuses the vocabulary", str(error))) from None

    def grammar(self, kind: Kind, text: str) -> OutsideGrammar:
        """The grammar that `text` describes. Raises RequestError with llguidance's message."""
        _check(kind, text)
        lark = _as_lark(kind, text)
        matcher = _with_a_deep_stack(
            lambda: _library().LLMatcher(self.tokenizer, lark + _EVERY_TOKEN, log_level=0)
        )
        if matcher.is_error():
            fact = f"llguidance refuses the {_NAMES[kind]}"
            raise RequestError(*_said(fact, matcher.get_error()))
        return OutsideGrammar(self, matcher)


class OutsideGrammar:
    """Makes guides. `warnings` is what llguidance says of the grammar beyond taking it."""

    closes = False

    def __init__(self, vocabulary: OutsideVocabulary, matcher: Any) -> None:
        self.vocabulary = vocabulary
        self.warnings: tuple[str, ...] = tuple(matcher.get_grammar_warnings())
        self._matcher = matcher

    def guide(self) -> OutsideGuide:
        """A guide at the start of an answer."""
        return OutsideGuide(self.vocabulary, self._matcher.deep_copy())


class OutsideGuide:
    """One answer's place in a grammar of llguidance.

    It cannot close in time (`closes` is False): it does not know how many tokens an answer still
    needs, so an answer that meets its limit of tokens is cut where it stands.
    """

    closes = False

    def __init__(self, vocabulary: OutsideVocabulary, matcher: Any) -> None:
        self._vocabulary, self._matcher = vocabulary, matcher
        self._now: Allowed | None = None

    @property
    def done(self) -> bool:
        """Whether only the ids that end the answer are allowed. Raises as `allowed` does."""
        self._check()
        if not self._matcher.is_accepting():
            return False
        return not (self.allowed(1).words & self._vocabulary.text_bits).any()

    def allowed(self, left: int) -> Allowed:
        """What may come next; the same for any number `left` of tokens.

        Raises RequestError where llguidance gives up or no token of the vocabulary goes on.
        """
        self._check()
        if self._now is not None:
            return self._now
        vocabulary, matcher = self._vocabulary, self._matcher
        words = np.zeros_like(vocabulary.text_bits)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self._check()
        # Lark can name control tokens, and llguidance then allows ends too, in mid-grammar.
        words &= vocabulary.text_bits
        if matcher.is_accepting():
            words |= vocabulary.end_bits
        count = int(np.bitwise_count(words).sum())
        if not count:
            raise _stuck()
        self._now = Allowed(words, count)
        return self._now

    def advance(self, token: int) -> None:
        """Goes on by a token. Raises ValueError, and stays, where it is not allowed."""
        vocabulary, matcher = self._vocabulary, self._matcher
        if token in vocabulary.ends:
            legal = matcher.is_accepting()
            # After an end it takes no other; this one says so of itself.
            if legal and not matcher.is_stopped():
                legal = matcher.try_consume_tokens([token]) == 1
        else:
            legal = (
                0 <= token < vocabulary.size
                and bool(vocabulary.text_bits[token // 32] >> np.uint32(token % 32) & 1)
                and matcher.try_consume_tokens([token]) == 1
            )
        if not legal:
            self._check()
            raise ValueError(f"token {token} is not allowed here")
        self._now = None

    def _check(self) -> None:
        """Raises what went wrong. llguidance itself would go on with ends, as if it were whole."""
        matcher = self._matcher
        message = matcher.get_error()
        if message and not message.startswith(_NO_TOKEN):
            raise RequestError(*_said("llguidance gave the grammar up", message))
        if matcher.is_stopped() and not matcher.is_accepting():
            raise _stuck()


def outside_grammar(
    kind: Kind,
    text: str,
    token_texts: Sequence[bytes | None],
    control: Collection[int],
    ends: Collection[int],
) -> OutsideGrammar:
    """The grammar of `text`, which makes guides over a vocabulary; errors as of its two steps.

    The vocabulary takes far longer than a grammar: keep an `OutsideVocabulary` to use it again.
    """
    return OutsideVocabulary(token_texts, control, ends).grammar(kind, text)


class _Tokens:
    """The attributes that llguidance asks a tokenizer for."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: list[bytes], special: list[int], end: int) -> None:
        self.tokens, self.special_token_ids, self.eos_token_id = tokens, special, end

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("nothing is forced, so no text is tokenised")


_NAMES: dict[Kind, str] = {
    "lark": "Lark grammar",
    "json_schema": "JSON schema",
    "regex": "regular expression",
}


def _library() -> Any:
    try:
        import llguidance
    except ImportError:
        raise RequestError(
            "a grammar of this kind needs the package llguidance, which is not installed",
            advice='pip install "forwardpass[lark]"',
        ) from None
    return llguidance


def _check(kind: Kind, text: str) -> None:
    offered = get_args(Kind)
    if kind not in offered:
        raise RequestError(
            f"grammar kind = {kind:.60}{did_you_mean(kind, offered)}",
            advice=f"Choose one of {', '.join(offered)}.",
        )
    if len(text) > MOST_CHARACTERS:
        raise RequestError(
            f"the {_NAMES[kind]} has {len(text):,} characters, more than {MOST_CHARACTERS:,}"
        )


def _as_lark(kind: Kind, text: str) -> str:
    if kind == "lark":
        return text
    if kind == "regex":
        # \d and \w as in ECMA-262, so that a pattern means the same to either engine.
        return f"start: /{_library().regex_to_lark(text, 'dw')}/"
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the JSON schema is not JSON: {error}") from None
    # One whole value, so nothing behind it is read as Lark.
    return f"start: %json {text}"


def _with_a_deep_stack(make: Callable[[], Made]) -> Made:
    """What `make` makes, in a thread that has room for deep recursion."""
    found: list[Made] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(make())
        except BaseException as error:
            failed.append(error)

    with _STACK_SIZE:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _bits(ids: Collection[int], size: int) -> Words:
    """A bit for each of `size` ids, set for `ids`."""
    flags = np.zeros(-(-size // 32) * 32, np.uint8)
    flags[list(ids)] = 1
    return np.packbits(flags, bitorder="little").view("<u4").astype(np.uint32)


def _said(fact: str, message: str) -> tuple[str, ...]:
    """A fact with the words of llguidance as details, without its state and traces."""
    for mark in ("\n<state>", "\n<backtrace>", "<grammar>"):
        message = message.partition(mark)[0]
    lines = [line for line in message.splitlines() if line.strip()]
    return (fact, *(f"{line:.200}" for line in lines[:_MESSAGE_LINES]))


def _stuck() -> RequestError:
    return RequestError(
        "no token of this vocabulary goes on with the grammar, and the answer is not complete",
        advice="Name no control tokens in it, and no bytes that this model has no token for.",
    )
