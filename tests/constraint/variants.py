"""Values near a given one: parts of it changed, left out, doubled or put in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

TEXTS = [
    "",
    "a",
    "x y",
    "é",
    "日本",
    '"',
    "\\",
    "\n",
    "😀",
    "2024-01-31",
    "a/b",
    "0",
    "null",
    "true",
]
SCALARS: list[Any] = [None, True, False, 0, 1, -1, 7, 1.5, -0.25, 100, 1e-5, 12345678, *TEXTS]


def changed(value: Any, rng: Random) -> Any:
    """A copy with one part changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        turn = rng.random()
        if turn < 0.25:
            return {key: part for key, part in value.items() if key != name}
        if turn < 0.35:
            return value | {rng.choice([*TEXTS, "name", "extra"]): rng.choice(SCALARS)}
        if turn < 0.45:
            return dict(rng.sample(list(value.items()), len(value)))
        return value | {name: changed(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        turn = rng.random()
        if turn < 0.25:
            return value[:place] + value[place + 1 :]
        if turn < 0.5:
            return [*value, changed(value[place], rng)]
        return [*value[:place], changed(value[place], rng), *value[place + 1 :]]
    if isinstance(value, str) and rng.random() < 0.8:
        place = rng.randint(0, len(value))
        return rng.choice(
            [value[:place], value[place:], value[:place] + rng.choice(TEXTS) + value[place:]]
        )
    if type(value) in (int, float) and rng.random() < 0.8:
        return rng.choice([value + 1, value - 1, value * 2, value + 0.5, -value, value * 1000])
    return rng.choice([*SCALARS, [], {}])


def near(values: list[Any], rng: Random, most: int) -> Iterator[Any]:
    """Given values, and then distinct ones that lie near these and near one another."""
    known = [*values]
    seen = {json.dumps(value) for value in known}
    yield from known
    for _ in range(most):
        value = rng.choice(known)
        for _ in range(rng.choice((1, 1, 2, 3))):
            value = changed(value, rng)
        text = json.dumps(value)
        if text not in seen:
            seen.add(text)
            known.append(value)
            yield value
