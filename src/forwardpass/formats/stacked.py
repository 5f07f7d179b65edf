"""Tensors that are stored row by row, each row under a name of its own, seen as one table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forwardpass.formats.tensors import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class StackedTensor(Tensor):
    """Tensors of one type and shape as the rows of one more axis, the first."""

    parts: tuple[Tensor, ...] = field(repr=False)

    def raw(self) -> memoryview:
        return memoryview(b"".join(part.raw() for part in self.parts))

    def numpy(self) -> NDArray[np.float32]:
        return self._rows(0, len(self.parts))

    def _rows(self, start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        rows = [part.numpy() for part in self.parts[start:stop]]
        return np.stack(rows) if rows else np.empty((0, *self.shape[1:]), np.float32)


def stacked(tensors: Mapping[str, Tensor], patterns: Iterable[str]) -> dict[str, Tensor]:
    """The tensors, those whose names match a pattern put together as `{group 1}.weight`.

    Group 2 of the pattern is the row; a group 3 follows group 1 in the name. Tensors that are not
    all the rows from 0 on, of one type and shape, stay what they are.
    """
    result = dict(tensors)
    for pattern in patterns:
        found: dict[str, dict[int, str]] = {}
        for name in tensors:
            match = re.fullmatch(pattern, name)
            if match is not None and str(int(match[2])) == match[2]:
                rest = match[3] if match.re.groups > 2 else ""
                found.setdefault(f"{match[1]}{rest}.weight", {})[int(match[2])] = name
        for name, rows in found.items():
            parts = tuple(tensors[rows[row]] for row in sorted(rows))
            alike = len({(part.dtype.name, part.shape) for part in parts}) == 1
            if alike and max(rows) == len(rows) - 1 and name not in result:
                for row in rows.values():
                    del result[row]
                shape = (len(parts), *parts[0].shape)
                nbytes = sum(part.nbytes for part in parts)
                result[name] = StackedTensor(name, parts[0].dtype, shape, nbytes, parts)
    return result
