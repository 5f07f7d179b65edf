"""The engines that benchmarks/masks.py times: each masks the tokens of one JSON text at a time.

    python benchmarks/rivals/mask_sides.py SIDE

SIDE is one of `SIDES`. Answers one JSON object a line: {"do": "vocabulary", "path"}, then
{"do": "judge", "schema", "tokens"} and {"do": "time", "schema", "tokens", "apply"}. All texts have
", " and ": " between their parts. Needs NumPy and the engine's own library; ours runs the package.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

LEFT = 100_000  # tokens that may still come: more than any of the texts has
SEPARATORS: Any = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}


class Guide(Protocol):
    """One text's place in a grammar."""

    def mask(self) -> Any:
        """The words of the mask, a bit an id."""

    def advance(self, token: int) -> bool:
        """Goes on by a token; whether it was taken."""


class Side(Protocol):
    """One engine, with a vocabulary once `vocabulary` was called."""

    version: str

    def vocabulary(self, given: dict[str, Any]) -> None:
        """Whatever is made once a model: `texts` (bytes an id), `control`, `ends`, `tokenizer`."""

    def compile(self, schema: str) -> Any:
        """The grammar of a schema; raises where it is refused."""

    def guide(self, grammar: Any) -> Guide:
        """A guide at the start of a text."""

    def apply(self, scores: Any, words: Any) -> None:
        """Makes the scores of all ids without a bit -inf, in place."""


class Ours:
    """`Masker` over the package's own grammars."""

    def __init__(self) -> None:
        from forwardpass import _native
        from forwardpass.constraint import grammar, guide, masks, tokens
        from forwardpass.sampling.sampler import Sampler
        from forwardpass.sampling.settings import resolve

        self._grammar, self._guide, self._masks, self._tokens = grammar, guide, masks, tokens
        self._sampler = Sampler(resolve({}, None, False))
        self.version = f"forwardpass, {_native.levels()[0]}"

    def vocabulary(self, given: dict[str, Any]) -> None:
        never = {*given["control"], *given["ends"]}
        texts = [None if i in never else text for i, text in enumerate(given["texts"])]
        self._vocabulary = self._tokens.Tokens(texts, len(texts))
        self._ends = given["ends"]
        _ = (
            self._vocabulary.common
        )  # made when first asked for: belongs to the time of the vocabulary

    def compile(self, schema: str) -> Any:
        compiled = self._grammar.compile_schema(json.loads(schema), self._grammar.Style("one"))
        return self._masks.Masker(compiled, self._vocabulary)

    def guide(self, grammar: Any) -> Guide:
        return _OurGuide(self._guide.Guide(grammar, self._ends))

    def apply(self, scores: Any, words: Any) -> None:
        # The sampler reads the words: its whole choice of the best token is timed.
        self._sampler.pick(scores, prompt=(), output=(), position=0, mask=words)


class _OurGuide:
    def __init__(self, guide: Any) -> None:
        self._guide = guide

    def mask(self) -> Any:
        return self._guide.allowed(LEFT).words

    def advance(self, token: int) -> bool:
        self._guide.advance(token)
        return True


class Llguidance:
    """`LLMatcher` over a tokenizer that it reads itself, as its integrations use it: where the next
    bytes are forced, the mask has the one token with which its tokenizer would write them."""

    def __init__(self) -> None:
        import llguidance
        import llguidance.numpy

        self._library = llguidance
        self.version = f"llguidance {version('llguidance')}"

    def vocabulary(self, given: dict[str, Any]) -> None:
        self._words = -(-len(given["texts"]) // 32)
        self._tokenizer = self._library.LLTokenizer(
            given["tokenizer"], n_vocab=len(given["texts"]), eos_token=given["ends"]
        )

    def text(self, schema: str) -> str:
        make = self._library.LLMatcher.grammar_from_json_schema
        return str(make(schema, overrides=SEPARATORS))

    def compile(self, schema: str) -> Any:
        matcher = self._library.LLMatcher(self._tokenizer, self.text(schema), log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def guide(self, grammar: Any) -> Guide:
        return _LlguidanceGuide(grammar.deep_copy(), self._words)

    def apply(self, scores: Any, words: Any) -> None:
        self._library.numpy.apply_token_bitmask_inplace(scores, words.view(np.int32))


class _LlguidanceGuide:
    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher = matcher
        self._words = np.zeros(words, np.uint32)
        self._at, self._bytes = self._words.ctypes.data, self._words.nbytes

    def mask(self) -> Any:
        self._matcher.unsafe_compute_mask_ptr(self._at, self._bytes)
        return self._words

    def advance(self, token: int) -> bool:
        return bool(self._matcher.consume_token(token))


class LlguidanceFree(Llguidance):
    """The same, but every legal token is in the mask, as in ours and in XGrammar's, and the
    tokenizer is of bare bytes; `forwardpass.constraint.outside` uses it so."""

    def vocabulary(self, given: dict[str, Any]) -> None:
        texts, ends = list(given["texts"]), given["ends"]
        special = sorted({*given["control"], *ends})
        for i in special:
            texts[i] = b"<|%d|>" % i

        class Tokens:
            is_tokenizer_wrapper = True
            bos_token_id = None
            tokens = texts
            special_token_ids = special
            eos_token_id = ends[0]

            def __call__(self, text: str) -> list[int]:
                raise NotImplementedError

        self._words = -(-len(texts) // 32)
        self._tokenizer = self._library.LLTokenizer(
            Tokens(), n_vocab=len(texts), eos_token=list(ends)
        )

    def text(self, schema: str) -> str:
        styled = {"x-guidance": SEPARATORS} | json.loads(schema)
        return f'start: %json {json.dumps(styled)}\n%llguidance {{"no_forcing": true}}\n'


class Xgrammar:
    """`GrammarMatcher` for the schema as the standard reads it: names that it lacks are allowed.
    Masks are made when first needed: all of them beforehand take seconds then. One thread compiles,
    and nothing is kept from one schema for the next."""

    strict, when_needed = False, True

    def __init__(self) -> None:
        import torch
        import xgrammar

        torch.set_num_threads(1)
        self._library, self._torch = xgrammar, torch
        self.version = f"xgrammar {version('xgrammar')}, torch {torch.__version__}"

    def vocabulary(self, given: dict[str, Any]) -> None:
        never = {*given["control"], *given["ends"]}
        texts = [b"" if i in never else text for i, text in enumerate(given["texts"])]
        self._size = len(texts)
        info = self._library.TokenizerInfo(texts, stop_token_ids=list(given["ends"]))
        self._compiler = self._library.GrammarCompiler(
            info,
            max_threads=1,
            cache_enabled=False,
            enable_dynamic_compilation=self.when_needed,
        )

    def compile(self, schema: str) -> Any:
        return self._compiler.compile_json_schema(
            schema, any_whitespace=False, separators=(", ", ": "), strict_mode=self.strict
        )

    def guide(self, grammar: Any) -> Guide:
        matcher = self._library.GrammarMatcher(grammar)
        return _XgrammarGuide(matcher, self._library.allocate_token_bitmask(1, self._size))

    def apply(self, scores: Any, words: Any) -> None:
        tensor = self._torch.from_numpy(scores)[None]
        mask = self._torch.from_numpy(words.view(np.int32))[None]
        self._library.apply_token_bitmask_inplace(tensor, mask)


class _XgrammarGuide:
    def __init__(self, matcher: Any, mask: Any) -> None:
        self._matcher, self._mask = matcher, mask
        self._words = mask.numpy().reshape(-1).view(np.uint32)

    def mask(self) -> Any:
        if not self._matcher.fill_next_token_bitmask(self._mask):
            self._words[:] = 0xFFFFFFFF
        return self._words

    def advance(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))


class XgrammarStrict(Xgrammar):
    """The same as it compiles by default: a narrower language, without names that the schema does
    not list, and all masks that do not hang on the stack made beforehand."""

    strict, when_needed = True, False


SIDES: dict[str, type[Side]] = {
    "forwardpass": Ours,
    "llguidance": Llguidance,
    "llguidance-free": LlguidanceFree,
    "xgrammar": Xgrammar,
    "xgrammar-strict": XgrammarStrict,
}


def judged(side: Side, schema: str, tokens: Sequence[int]) -> dict[str, object]:
    """Whether the engine takes a text, token by token: in each mask, and then advanced by."""
    try:
        guide = side.guide(side.compile(schema))
    except Exception as error:
        return {"refused": f"schema: {str(error).strip():.200}"}
    for place, token in enumerate(tokens):
        try:
            taken = _has(guide.mask(), token) and guide.advance(token)
        except Exception as error:
            return {"refused": f"token {place}: {str(error).strip():.200}"}
        if not taken:
            return {"refused": f"token {place} is not allowed"}
    return {}


def timed(side: Side, schema: str, tokens: Sequence[int], scores: Any) -> dict[str, object]:
    """Microseconds of compiling, and of a guide, masks and steps of a first and a second text."""
    clock = time.perf_counter
    started = clock()
    grammar = side.compile(schema)
    found: dict[str, object] = {"compile": 1e6 * (clock() - started)}
    for name in ("first", "again"):
        started = clock()
        guide = side.guide(grammar)
        made = clock() - started
        masks, advances, applied, counts = [], [], [], []
        for token in tokens:
            before = clock()
            words = guide.mask()
            masked = clock()
            counts.append(int(np.bitwise_count(words).sum()))
            applied.append(_applied(side, scores, words))
            between = clock()
            guide.advance(token)
            advances.append(clock() - between)
            masks.append(masked - before)
        found[name] = {
            "guide": 1e6 * made,
            "masks": [round(1e6 * seconds, 2) for seconds in masks],
            "advances": [round(1e6 * seconds, 2) for seconds in advances],
            "applies": [round(1e6 * seconds, 2) for seconds in applied if seconds is not None],
            "counts": counts,
        }
    return found


def _applied(side: Side, scores: Any, words: Any) -> float | None:
    if scores is None:
        return None
    copied = scores.copy()
    started = time.perf_counter()
    try:
        side.apply(copied, words)
    except NotImplementedError:
        return None
    return time.perf_counter() - started


def _has(words: Any, token: int) -> bool:
    return bool(words[token // 32] >> np.uint32(token % 32) & np.uint32(1))


def _vocabulary(side: Side, path: str) -> tuple[float, int]:
    given = json.loads(Path(path).read_text("utf-8"))
    given["texts"] = [text.encode("latin-1") for text in given["texts"]]
    started = time.perf_counter()
    side.vocabulary(given)
    return time.perf_counter() - started, len(given["texts"])


def main() -> None:
    """Answers requests until stdin ends."""
    # Libraries print to the same stdout, from C++ too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    side = SIDES[sys.argv[1]]()
    reply: dict[str, object] = {"version": side.version}
    scores: Any = None
    print(json.dumps(reply), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "vocabulary":
            seconds, rows = _vocabulary(side, request["path"])
            reply = {"ms": 1e3 * seconds}
            scores = np.random.default_rng(0).standard_normal(rows).astype(np.float32)
        elif request["do"] == "judge":
            reply = judged(side, request["schema"], request["tokens"])
        else:
            applied = scores if request["apply"] else None
            reply = timed(side, request["schema"], request["tokens"], applied)
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    main()
