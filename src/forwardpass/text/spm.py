"""SentencePiece's BPE from scores: the merges that the pieces imply.

SentencePiece joins, again and again, the neighbours whose joined text is the piece with the best
score. As ranked merges that is: every way to cut a piece into two pieces, ordered by the score
of the whole, then the longer left part first. Where two different pieces have one score, the
order among them is ours (SentencePiece takes the leftmost).

Deriving all of them takes a second or two for a quarter of a million pieces, while a prompt
needs a few hundred. So a short text, or a long one with few different stretches, gets just the
merges of the pieces that occur in it: no other merge could ever apply.

Source: SentencePiece, src/bpe_model.cc.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from forwardpass.text.library import BpeModel, Merge, Pipeline
from forwardpass.text.vocabulary import BLANK

# So many different stretches are looked up faster than all merges are derived.
_FEW = 16_384
# So few pieces have their merges derived at once, in a tenth of a second.
_SMALL = 65_536


def merges_of(pieces: Iterable[str], scores: Mapping[str, float]) -> list[Merge]:
    """All merges that make one of `pieces` out of two that have a score, best first."""
    found: list[tuple[float, int, int, str]] = []
    for piece in pieces:
        length = len(piece)
        for cut in range(1, length):
            if piece[:cut] in scores and piece[cut:] in scores:
                found.append((-scores[piece], -cut, cut - length, piece))
    found.sort()
    return [(piece[:-cut], piece[-cut:]) for _, cut, _, piece in found]


@dataclass
class ScoredPieces:
    """Builds the library's tokenizer for a text: with the merges it needs, or with all.

    `pieces` are those that merging may make, `fixed` the others that may come out, each with its
    id; `scores` are by id.
    """

    pieces: Mapping[str, int]
    scores: Sequence[float]
    fixed: Mapping[str, int]
    pipeline: Pipeline
    unknown: str | None
    byte_fallback: bool
    _whole: Tokenizer | None = None
    _longest: int = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._longest = max(map(len, self.pieces), default=1)

    def library_for(self, text: str) -> Tokenizer:
        """A tokenizer that encodes `text` as all merges would."""
        with self._lock:
            if self._whole is None:
                written = BLANK + text.replace(" ", BLANK)
                pieces = self._pieces_in(written) if len(self.pieces) > _SMALL else None
                if pieces is not None:
                    return self._build(pieces, pieces.union(set(written) & self.pieces.keys()))
                self._whole = self._build(self.pieces, self.pieces)
            return self._whole

    def _pieces_in(self, text: str) -> set[str] | None:
        """The pieces longer than one character that occur in `text`; None: too many to look."""
        stretches: set[str] = set()
        for start in range(len(text)):
            stretches.add(text[start : start + self._longest])
            if len(stretches) > _FEW:
                return None
        known = self.pieces
        return {
            stretch[:end]
            for stretch in stretches
            for end in range(2, len(stretch) + 1)
            if stretch[:end] in known
        }

    def _build(self, made: Iterable[str], known: Iterable[str]) -> Tokenizer:
        """With the merges that make pieces out of known ones, and these as the vocabulary."""
        numbers = {piece: self.pieces[piece] for piece in known}
        merges = merges_of(made, {piece: self.scores[i] for piece, i in numbers.items()})
        vocab = {**numbers, **self.fixed}
        model = BpeModel(vocab, merges, self.unknown, True, self.byte_fallback)
        return self.pipeline.build(model.build())
