"""Named axes: `"n i, o i -> n o"` checked against shapes, in the manner of einops.

Each input is a list of names; a name stands for one size wherever it occurs. `...` stands for any
leading axes (the same in every place), `(h e)` for one axis that is a product of named ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from forwardpass.errors import GraphError

Dim = int | str
Shape = tuple[Dim, ...]
Axis = tuple[str, ...]  # one name, or the factors of a product


@cache
def parse(pattern: str) -> tuple[tuple[tuple[Axis, ...], ...], tuple[Axis, ...]]:
    """The axes of each input and of the output of a pattern."""
    left, _, right = pattern.partition("->")
    return tuple(_side(part) for part in left.split(",")), _side(right)


def _side(text: str) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    group: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            group = []
        elif word == ")":
            axes.append(tuple(group or ()))
            group = None
        elif group is not None:
            group.append(word)
        else:
            axes.append((word,))
    return tuple(axes)


def unify(
    pattern: str, shapes: Sequence[Shape], given: Mapping[str, Dim], op: str
) -> tuple[dict[str, Dim], Shape]:
    """The size of every axis, and the output's shape.

    `given` holds axes that only attributes know (the `h` of `"n (h e) -> n h e"`). Raises
    GraphError that repeats the pattern and all shapes.
    """
    inputs, output = parse(pattern)
    sizes: dict[str, Dim] = dict(given)
    rest: Shape = ()

    def fail(reason: str) -> GraphError:
        shown = ", ".join("(" + " ".join(map(str, shape)) + ")" for shape in shapes)
        return GraphError(f'{op}: {reason}; pattern "{pattern}", shapes {shown}')

    if len(inputs) != len(shapes):
        raise fail(f"{len(shapes)} inputs where {len(inputs)} are wanted")
    for axes, shape in zip(inputs, shapes, strict=True):
        names, dims = axes, shape
        if axes and axes[0] == ("...",):
            names = axes[1:]
            cut = len(shape) - len(names)
            if cut < 0:
                raise fail("too few axes")
            lead, dims = shape[:cut], shape[cut:]
            if rest not in ((), lead):
                raise fail("leading axes differ")
            rest = lead
        if len(names) != len(dims):
            raise fail(f"{len(dims)} axes where {len(names)} are wanted")
        for axis, dim in zip(names, dims, strict=True):
            if not _bind(axis, dim, sizes):
                raise fail(f"axis {' '.join(axis)} is {dim}, not {_size(axis, sizes)}")
    result: list[Dim] = []
    for axis in output:
        if axis == ("...",):
            result += rest
            continue
        size = _size(axis, sizes)
        if size is None:
            raise fail(f"axis {' '.join(axis)} of the output has no size")
        result.append(size)
    for i, dim in enumerate(rest):
        sizes[f"...{i}"] = dim
    return sizes, tuple(result)


def _bind(axis: Axis, dim: Dim, sizes: dict[str, Dim]) -> bool:
    """Gives the axis its size, or says whether the size that it has agrees."""
    unknown = [name for name in axis if name not in sizes]
    if not unknown:
        return _size(axis, sizes) == dim
    if len(axis) == 1:
        sizes[axis[0]] = dim
        return True
    if len(unknown) > 1 or not isinstance(dim, int):
        return False
    known = 1
    for name in axis:
        size = sizes.get(name, 1)
        if not isinstance(size, int):
            return False
        known *= size
    if dim % known:
        return False
    sizes[unknown[0]] = dim // known
    return True


def _size(axis: Axis, sizes: Mapping[str, Dim]) -> Dim | None:
    if len(axis) == 1:
        return sizes.get(axis[0])
    product = 1
    for name in axis:
        size = sizes.get(name)
        if not isinstance(size, int):
            return None
        product *= size
    return product
