"""Values of a list whose items must differ: what is left of them beside those that are there."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from forwardpass.constraint.comparing import Comparable
from forwardpass.constraint.forms import Form
from forwardpass.constraint.numbers import WITHIN_REACH, cardinality
from forwardpass.constraint.plans import Node
from forwardpass.constraint.searching import Search

MOST_OTHERS = 10_000


class Others:
    """Values without some others; kept, so that equal ones are one object."""

    def __init__(self, search: Search) -> None:
        self.search, self.languages = search, search.languages
        self._others: dict[tuple[Node, frozenset[Comparable]], Node | None] = {}

    def different(self, node: Node, seen: frozenset[Comparable]) -> Node | None:
        """The same value but for those seen; containers differ at their end, or go on."""
        key = node, seen
        if key not in self._others:
            if len(self._others) > MOST_OTHERS:
                self._others.clear()
            self._others[key] = self._different(node, seen)
        return self._others[key]

    def _different(self, node: Node, seen: frozenset[Comparable]) -> Node | None:
        form = node.form
        texts = self.languages.words(str(v) for sort, v in seen if sort == "text")
        # Numbers are compared as they are written, so these have to be of some size.
        numbers = [met for one in form.numbers if (met := one.meet(WITHIN_REACH)) is not None]
        for sort, value in seen:
            if sort == "number":
                assert isinstance(value, Fraction)
                numbers = [one.without(value) for one in numbers]
        rest = replace(
            form,
            null=form.null and ("null", None) not in seen,
            booleans=frozenset(b for b in form.booleans if ("boolean", b) not in seen),
            texts=self.languages.both((form.texts, self.languages.negate(texts))),
            numbers=tuple(n for n in numbers if n.meet(n) is not None),
        )
        made = Node(node.expr, rest, node.arrays, node.objects, alive=True)
        return made if self._any_scalar(rest) or node.arrays or node.objects else None

    def choices(self, node: Node) -> int:
        """How many values there are, counted up to two."""
        if node.arrays or node.objects:
            return 2
        form = node.form
        few = int(form.null) + len(form.booleans) + self.search.count(form.texts, 2)
        return min(few + sum(cardinality(one, 2) for one in form.numbers), 2)

    def _any_scalar(self, form: Form) -> bool:
        return bool(form.null or form.booleans or form.numbers or self.search.live(form.texts))
