"""Finds control tokens in text that is allowed to hold them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, models

from forwardpass.text.vocabulary import ControlToken

_BETWEEN = "\U0010ffff between"


@dataclass(frozen=True)
class Part:
    """A stretch of text from `start` to `end`: a control token, or text between two."""

    start: int
    end: int
    control: ControlToken | None


class Splitter:
    """Cuts text at control tokens: leftmost, then longest; white space as each token says.

    `spellings` pairs what is looked for with the token that it stands for.
    """

    def __init__(self, spellings: Iterable[tuple[str, ControlToken]]) -> None:
        self._tokens: dict[str, ControlToken] = {}
        for spelling, token in spellings:
            if spelling:
                self._tokens.setdefault(spelling, token)
        self._library = Tokenizer(models.WordLevel({_BETWEEN: 0}, unk_token=_BETWEEN))
        self._library.add_special_tokens(
            [
                AddedToken(
                    spelling,
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=False,
                    special=True,
                )
                for spelling, token in self._tokens.items()
            ]
        )
        names = {i: text for text, i in self._library.get_vocab(with_added_tokens=True).items()}
        self._by_id = {i: self._tokens[text] for i, text in names.items() if text in self._tokens}

    def split(self, text: str) -> list[Part]:
        """The parts of `text` in order, covering all of it."""
        if not self._tokens:
            return [Part(0, len(text), None)] if text else []
        found = self._library.encode(text, add_special_tokens=False)
        return [
            Part(start, end, self._by_id.get(token_id))
            for token_id, (start, end) in zip(found.ids, found.offsets, strict=True)
        ]
