"""Tensors that hold several of a graph's tables, seen as each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forwardpass.formats.packed import PackedTensor
from forwardpass.formats.tensors import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLE = 3  # axes of a table for each expert; a bias has one less


@dataclass(frozen=True)
class PartedTensor(Tensor):
    """Every `step`-th output of each expert in `stored`, from `first` on: x o i, or x o of a bias.

    `turned`: the tables are stored inputs × outputs.
    """

    stored: Tensor = field(repr=False)
    first: int
    step: int
    turned: bool

    def raw(self) -> memoryview:
        """The bytes of the whole tensor, in which its own do not lie together."""
        return self.stored.raw()

    def numpy(self) -> NDArray[np.float32]:
        return self._rows(0, self.shape[0])

    def _rows(self, start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        values = self.stored.rows(start, stop)
        if self.turned:
            values = values.swapaxes(1, 2)
        return np.ascontiguousarray(values[:, self.first :: self.step])


def parted(
    tensors: Mapping[str, Tensor], patterns: Mapping[str, tuple[str, ...]]
) -> dict[str, Tensor]:
    """The tensors, those whose names match a pattern replaced by the ones that they hold.

    `patterns`: names of tensors -> those of the parts (`\\1` and so on as in the pattern), whose
    outputs take turns. A plain table is stored inputs × outputs; one in MXFP4, whose groups lie
    along the inputs, the other way round. Tensors that do not divide stay what they are.
    """
    result = dict(tensors)
    for name, tensor in tensors.items():
        for pattern, parts in patterns.items():
            match = re.fullmatch(pattern, name)
            names = [match.expand(part) for part in parts] if match else []
            if names and _divides(tensor, len(names)) and not any(one in result for one in names):
                del result[name]
                for first, one in enumerate(names):
                    result[one] = _part(tensor, one, first, len(names))
    return result


def _part(tensor: Tensor, name: str, first: int, step: int) -> PartedTensor:
    experts, *rest = tensor.shape
    turned = _is_turned(tensor)
    outputs, *inputs = reversed(rest) if turned else rest
    shape = (experts, outputs // step, *inputs)
    return PartedTensor(
        name, tensor.dtype, shape, tensor.nbytes // step, tensor, first, step, turned
    )


def _divides(tensor: Tensor, parts: int) -> bool:
    if len(tensor.shape) not in (_TABLE - 1, _TABLE):
        return False
    return tensor.shape[-1 if _is_turned(tensor) else 1] % parts == 0


def _is_turned(tensor: Tensor) -> bool:
    return len(tensor.shape) == _TABLE and not isinstance(tensor, PackedTensor)
