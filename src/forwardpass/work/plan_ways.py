"""What to do where a model does not fit: more devices, fewer bits, fewer tokens or requests."""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.describe import Description
from forwardpass.errors import RequestError
from forwardpass.work.plan import Plan, Sizes, largest

_FEWER_BITS = ("f8_e4m3", "q8_0", "q4_k_m")
_MOST_DEVICES = 64


@dataclass(frozen=True)
class Ways:
    """`devices` of the kind that would do, or None; types with the bytes of the weights in them.

    `tokens`: the most that one request can have as it is; `requests`: the most at once.
    """

    devices: int | None
    dtypes: tuple[tuple[str, int], ...]
    tokens: int
    requests: int


def ways(description: Description, plan: Plan, dtype: str | None) -> Ways:
    """The ways out of a plan that does not fit."""
    sizes, machine, request = Sizes.of(description, plan.request, dtype), plan.machine, plan.request

    def fits(count: int) -> bool:
        return bool(sizes.memory(request.concurrency, machine.times(count)).fits)

    devices = largest(lambda count: not fits(count), _MOST_DEVICES) + 1
    smaller = []
    for name in _FEWER_BITS:
        other = _in_type(description, plan, name)
        if other is not None and other.weights < plan.memory.weights:
            memory = other.memory(request.concurrency, machine)
            smaller += [(name, other.weights)] if memory.fits else []
    return Ways(
        devices=devices if devices <= _MOST_DEVICES else None,
        dtypes=tuple(smaller),
        tokens=sizes.longest(machine),
        requests=plan.max_concurrency or 0,
    )


def _in_type(description: Description, plan: Plan, dtype: str) -> Sizes | None:
    """The sizes in another type; None where the rows of a table do not fill its blocks."""
    try:
        return Sizes.of(description, plan.request, dtype)
    except RequestError:
        return None
