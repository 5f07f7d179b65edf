"""`Held`: the shape of one request, ready to hold answers to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.outside import OutsideGuide, OutsideVocabulary
from forwardpass.constraint.tokens import Tokens
from forwardpass.errors import RequestError
from forwardpass.shaping.calls import IdOf
from forwardpass.shaping.request import Shape
from forwardpass.text.calls.form import CallForm
from forwardpass.text.calls.parse import Answer as Read
from forwardpass.text.calls.parse import parse_calls
from forwardpass.text.tokenizer import Tokenizer

_MOST_MASKERS = 32


@dataclass(frozen=True)
class Held:
    """A shape with what makes guides for it.

    `masker` is None where another engine enforces it. `read` takes an answer's ids apart, None
    where no tools were offered. `warnings`: what is not enforced.
    """

    shape: Shape
    guide: Callable[[], Guide | OutsideGuide]
    masker: Masker | None
    ends: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    read: Callable[[Sequence[int]], Read] | None = None

    def guide_within(self, most: int) -> Guide | OutsideGuide:
        """A guide for one answer of at most so many tokens.

        Raises RequestError, with the number needed, where nothing complete fits.
        """
        guide = self.guide()
        if isinstance(guide, Guide):
            guide.check(most)
        return guide


@dataclass
class Holder:
    """Makes shapes ready for one model; keeps the compiled ones, least recently used out first.

    `size`: the rows of scores. `ends`: ids that end any answer, which are never text.
    """

    tokenizer: Tokenizer
    size: int
    ends: frozenset[int]
    _maskers: OrderedDict[str, Masker] = field(default_factory=OrderedDict, repr=False)

    @cached_property
    def tokens(self) -> Tokens:
        """The vocabulary: what no plain text may be written with is left out."""
        known = self.tokenizer
        texts = [
            None if known.is_control(i) or i in self.ends else known.token_bytes(i)
            for i in range(known.vocab_size)
        ]
        return Tokens(texts, self.size)

    def held(
        self,
        shape: Shape,
        engine: str,
        form: CallForm | None,
        prompt: str,
        ends: Iterable[int],
    ) -> Held:
        """A shape made ready. `prompt` is the rendered text, `ends` what ends its answer.

        Raises RequestError, SchemaError for what cannot be enforced.
        """
        last = {*ends, *(filter(None, map(self._id_of, form.end)) if form else ())}
        if engine == "llguidance" or shape.kind == "lark":
            return self._outside(shape, tuple(sorted(last)))
        opened = form is not None and form.thinking is not None and form.thinking.opened_by(prompt)
        key = f"{shape.key} {form and form.name} {opened}"
        masker = self._maskers.get(key)
        if masker is None:
            grammar = shape.grammar(form, self._id_of, thinking=opened)
            masker = self._maskers[key] = Masker(grammar, self.tokens)
            if len(self._maskers) > _MOST_MASKERS:
                self._maskers.popitem(last=False)
        self._maskers.move_to_end(key)
        ready = masker
        warnings = [f"{pointer or '/'}: {text}" for pointer, text in ready.grammar.warnings]
        warnings += [
            f"tool {name} is not strict: its schema is not enforced" for name in shape.loose
        ]
        return Held(
            shape,
            lambda: Guide(ready, last),
            ready,
            tuple(sorted(last)),
            tuple(warnings),
            self._reader(form, shape, last, opened) if form and shape.kind == "tools" else None,
        )

    def _reader(
        self, form: CallForm, shape: Shape, ends: set[int], opened: bool
    ) -> Callable[[Sequence[int]], Read]:
        names = [str(tool["function"]["name"]) for tool in shape.tools]

        def read(ids: Sequence[int]) -> Read:
            kept = [token for token in ids if token not in ends]
            text = self.tokenizer.decode(kept, control=True)
            return parse_calls(form, text, names=names, thinking=opened)

        return read

    def _outside(self, shape: Shape, ends: tuple[int, ...]) -> Held:
        """The same by llguidance, which knows schemas, patterns and Lark grammars."""
        import json

        texts = {
            "schema": ("json_schema", json.dumps(shape.value)),
            "json_object": ("json_schema", '{"type": "object"}'),
            "regex": ("regex", str(shape.value)),
            "lark": ("lark", str(shape.value)),
        }
        if shape.kind not in texts:
            raise RequestError(
                f"constraint = llguidance does not enforce {shape.kind} here",
                advice="leave constraint out: the own engine does",
            )
        kind, text = texts[shape.kind]
        control = [token.id for token in self.tokenizer.control_tokens]
        vocabulary = OutsideVocabulary(self.tokens.texts, control, ends)
        grammar = vocabulary.grammar(kind, text)
        warning = "llguidance cannot close in time: at max_tokens the answer is cut"
        return Held(shape, grammar.guide, None, ends, (warning,))

    @property
    def _id_of(self) -> IdOf:
        def found(text: str) -> int | None:
            token = self.tokenizer.find(text)
            one = token is not None and self.tokenizer.encode(text, control=True) == [token]
            return token if one else None

        return found
