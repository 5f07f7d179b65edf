"""Cosines and sines of rope by position, as tables that grow with the longest sequence.

The angles are those of the reference: computed in float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from forwardpass.backends.steps import Turning
from forwardpass.graph.references import F32
from forwardpass.rope import inverse_frequencies

_FIRST_POSITIONS = 512


@dataclass
class RopeTables:
    """For each way to turn, cos and sin of positions 0 … `positions`: positions × pairs each.

    `numpy` gives a weight by name: the divisors of the angles of some.
    """

    turnings: Sequence[Turning]
    numpy: Callable[[str], F32]
    positions: int = 0
    tables: list[tuple[F32, F32]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._angles = []
        for turning in self.turnings:
            angles = np.array(inverse_frequencies(turning.rope, turning.dims))
            if turning.factors is not None:
                angles = angles / self.numpy(turning.factors)
            self._angles.append(angles)

    def grow(self, positions: int) -> bool:
        """Makes the tables hold `positions` positions; whether they had to be made anew."""
        if positions <= self.positions or not self.turnings:
            return False
        self.positions = max(positions, 2 * self.positions, _FIRST_POSITIONS)
        every = np.arange(self.positions, dtype=np.int64)[:, None]
        self.tables = []
        for turning, angles in zip(self.turnings, self._angles, strict=True):
            length = turning.rope.attention_factor
            turned = every * angles
            cos = (np.cos(turned) * length).astype(np.float32)
            self.tables.append((cos, (np.sin(turned) * length).astype(np.float32)))
        return True
