"""Work counted while a schema is compiled, so that what is refused does not depend on a clock.

One step is about a microsecond of one core. Counted is what can grow faster than the document:
intersections, unions, complements, searches. Reading the document is bounded by its size.
"""

from __future__ import annotations

from enum import Enum

MOST_STEPS = 175_000
FOR_SCHEMA = 30  # steps that each schema in a document adds to the limit: reading it takes some


class Work(Enum):
    """What steps are spent on; each with what to do where they run out."""

    ALTERNATIVES = "use fewer branches in anyOf, oneOf, not or if"
    TEXTS = "use fewer or simpler patterns and length limits at one place"
    NUMBERS = "use fewer numbers or limits at one place"


class Exhausted(Exception):
    """A schema is not looked at any further: keyword, reason and way out."""

    def __init__(self, keyword: str, reason: str, way_out: str) -> None:
        super().__init__(reason)
        self.keyword, self.reason, self.way_out = keyword, reason, way_out


class Steps:
    """The counter. Nothing is counted outside `begin` and `end`: a grammar in use has no limit."""

    __slots__ = ("counting", "most", "spent", "total")

    def __init__(self) -> None:
        self.begin()
        self.end()

    def begin(self, schemas: int = 0) -> None:
        """Count from zero; a document of so many schemas is allowed somewhat more."""
        self.counting = True
        self.most = MOST_STEPS + FOR_SCHEMA * schemas
        self.total = 0
        self.spent = dict.fromkeys(Work, 0)

    def end(self) -> None:
        self.counting = False

    def spend(self, work: Work, count: int) -> None:
        """Count steps before they are taken. Raises Exhausted where they are too many, naming what
        took most."""
        if not self.counting:
            return
        if self.total + count > self.most or (
            work is Work.TEXTS and self.spent[work] + count > MOST_STEPS
        ):
            most = max(self.spent, key=lambda one: self.spent[one] + count * (one is work))
            reason = f"take more than {MOST_STEPS:,} steps to be taken apart"
            raise Exhausted(f"({most.name.lower()})", reason, most.value)
        self.total += count
        self.spent[work] += count
