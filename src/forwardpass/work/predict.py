"""The least time that counted work can take on given ceilings: the roofline.

Source: Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from forwardpass.graph.graph import Role
from forwardpass.work.count import PassWork, Work
from forwardpass.work.machine import Ceilings

_NEARLY_ALL = 0.8  # a part of the time from which the rest is not worth a word


class Bound(StrEnum):
    """What sets the pace: reading bytes, or doing products."""

    READING = "reading"
    PRODUCTS = "products"


@dataclass(frozen=True)
class Prediction:
    """The least seconds, and what sets them; None where there is no work at all."""

    seconds: float
    bound: Bound | None


@dataclass(frozen=True)
class PassPrediction:
    """A pass's prediction by role: roles run one after another, so that their seconds add up."""

    by_role: Mapping[Role, Prediction]

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.by_role.values())

    def seconds_by(self, bound: Bound) -> float:
        """Seconds of the roles that `bound` sets."""
        return sum(part.seconds for part in self.by_role.values() if part.bound is bound)

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What sets the pace, the larger part first; one alone where it takes 80 % of the time."""
        parts = sorted(Bound, key=self.seconds_by, reverse=True)
        return tuple(
            parts[:1] if self.seconds_by(parts[0]) >= _NEARLY_ALL * self.seconds else parts
        )


def predict(work: Work, ceilings: Ceilings) -> Prediction:
    """max(bytes ÷ read rate, FLOP ÷ FLOP rate): reading and arithmetic overlap at best."""
    reading, products = work.bytes / ceilings.read_rate, work.flop / ceilings.flop_rate
    if not work.bytes and not work.flop:
        return Prediction(0.0, None)
    if reading >= products:
        return Prediction(reading, Bound.READING)
    return Prediction(products, Bound.PRODUCTS)


def predict_pass(work: PassWork, ceilings: Ceilings) -> PassPrediction:
    """The prediction of every role of a pass."""
    return PassPrediction({role: predict(part, ceilings) for role, part in work.by_role.items()})
