"""`RandomWeights`: seeded random weights for a graph, so that a shape alone can be run.

A pass takes the time that it takes whatever its numbers are, as long as they stay finite.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np

from forwardpass.graph.graph import Graph
from forwardpass.graph.references import F32


@dataclass(frozen=True)
class RandomWeights:
    """A `WeightSource` of uniform float32 numbers, made when they are asked for.

    A table of i inputs has variance 1/i, so that it keeps the size of what goes through it; gains
    and divisors lie around 1, biases around 0. A weight depends on `seed` and its name alone.
    """

    graph: Graph
    seed: int = 0

    def numpy(self, name: str) -> F32:
        """The weight in the graph's shape."""
        shape = self.graph.weights[name].shape
        generator = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        array = generator.random(shape, dtype=np.float32)
        if len(shape) > 1:
            middle, reach = 0.0, math.sqrt(3 / shape[-1])
        elif name.endswith(".bias"):
            middle, reach = 0.0, 0.1
        else:
            middle, reach = 1.0, 0.1
        array *= np.float32(2 * reach)
        array += np.float32(middle - reach)
        return array
