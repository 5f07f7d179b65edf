"""The tree of a vocabulary in Python: the reference, and what serves where C++ is not built."""

from __future__ import annotations

from collections.abc import Sequence


class Branch:
    """A node: the ids of the text that leads here, and the next bytes."""

    __slots__ = ("ids", "next")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.next: dict[int, Branch] = {}


class PlainTrie:
    """All texts of a vocabulary; `texts[id]` is None for ids that are never text."""

    def __init__(self, texts: Sequence[bytes | None]) -> None:
        self.root = Branch()
        for token, text in enumerate(texts):
            if text:
                self._at(text).ids.append(token)

    def _at(self, text: bytes) -> Branch:
        at = self.root
        for byte in text:
            at = at.next.setdefault(byte, Branch())
        return at

    def find(self, text: bytes) -> list[int]:
        """The ids of exactly this text."""
        at: Branch | None = self.root
        for byte in text:
            at = None if at is None else at.next.get(byte)
        return [] if at is None else list(at.ids)

    def segment_count(self, text: bytes) -> int:
        """How few ids write a text. Raises ValueError where none do."""
        return len(self.segment(text))

    def segment(self, text: bytes) -> list[int]:
        """The fewest ids that write a text, of equal counts the longest first.

        Raises ValueError, naming a byte, where none do.
        """
        end = len(text)
        best: list[tuple[int, int, int]] = [(end + 1, -1, 0)] * end + [(0, -1, 0)]
        for start in range(end - 1, -1, -1):
            at = self.root
            for stop in range(start, end):
                following = at.next.get(text[stop])
                if following is None:
                    break
                at = following
                if at.ids and best[stop + 1][0] + 1 <= best[start][0]:
                    best[start] = best[stop + 1][0] + 1, at.ids[0], stop + 1
        if best[0][0] > end:
            place = next(i for i in range(end - 1, -1, -1) if best[i][0] > end)
            raise ValueError(f"no token stands for byte 0x{text[place]:02X}")
        out, place = [], 0
        while place < end:
            out.append(best[place][1])
            place = best[place][2]
        return out
