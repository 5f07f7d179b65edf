"""Values of simple types, any number or any text among them: most values of schemas are such."""

from __future__ import annotations

from forwardpass.constraint.numbers import ALL_NUMBERS, INTEGERS, Numbers
from forwardpass.constraint.plans import Node
from forwardpass.constraint.regular import Languages

Types = tuple[str, ...]
NUMBERS: dict[tuple[Numbers, ...], Types] = {
    (): (),
    (ALL_NUMBERS,): ("number",),
    (INTEGERS,): ("integer",),
}


def simple_types(languages: Languages, node: Node) -> Types | None:
    """The JSON types whose values are valid, all of them and no other; None for other values."""
    form = node.form
    numbers = NUMBERS.get(form.numbers)
    texts = form.texts is languages.all
    if (
        numbers is None
        or len(form.booleans) == 1
        or node.arrays
        or node.objects
        or not (texts or form.texts is languages.empty)
    ):
        return None
    found = [*numbers]
    found += ["boolean"] if form.booleans else []
    found += ["null"] if form.null else []
    found += ["string"] if texts else []
    return tuple(found)
