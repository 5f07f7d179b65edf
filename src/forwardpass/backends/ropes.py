"""Cosines and sines of rope by position, as tables that grow with the longest sequence.

The angles are those of the reference: computed in float64 and rounded once.
"""

from __future__ import annotations

import os
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
        self._process = os.getpid()
        for turning in self.turnings:
            angles = np.array(inverse_frequencies(turning.rope, turning.dims))
            if turning.factors is not None:
                angles = angles / self.numpy(turning.factors)
            self._angles.append(angles)

    def grow(self, positions: int) -> bool:
        """Makes the tables hold `positions` positions; whether they had to be made anew.

        A forked child makes them anew: the fork may have come before the program had them.
        """
        process = os.getpid()
        enough = positions <= self.positions
        if (enough and process == self._process) or not self.turnings:
            return False
        most = self.positions if enough else max(positions, 2 * self.positions, _FIRST_POSITIONS)
        every = np.arange(most, dtype=np.int64)[:, None]
        tables = []
        for turning, angles in zip(self.turnings, self._angles, strict=True):
            length = turning.rope.attention_factor
            turned = every * angles
            cos = (np.cos(turned) * length).astype(np.float32)
            tables.append((cos, (np.sin(turned) * length).astype(np.float32)))
        self.tables, self.positions, self._process = tables, most, process
        return True
