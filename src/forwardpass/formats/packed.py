"""The tables of a quantized checkpoint: several stored tensors as one.

`unpacked` turns a file into what an ordinary checkpoint of the model would hold, so that nothing
above needs to know how a table is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from re import sub
from typing import TYPE_CHECKING

from forwardpass.errors import FormatError
from forwardpass.formats.module_names import NO_MODULES, ModuleNames
from forwardpass.formats.packings import Misfit, Packing, by
from forwardpass.formats.source import quoted
from forwardpass.formats.tensors import StoredTensor, Tensor, TensorFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SHOWN = 8
# Elements decoded together.
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Scheme:
    """How a checkpoint's config says that it is quantized.

    `packing` serves all modules but those of `overrides` (None: not packed). `plain` are names and
    patterns of modules that are not packed; where `listed`, no module may stay plain that is not
    among them while others of its kind are packed.
    """

    packing: Packing
    overrides: Mapping[str, Packing | None] = field(default_factory=dict)
    plain: ModuleNames = NO_MODULES
    listed: bool = True


@dataclass(frozen=True)
class PackedTensor(Tensor):
    """A table in several parts; `nbytes` are those of all of them."""

    parts: Mapping[str, StoredTensor]
    packing: Packing

    def raw(self) -> memoryview:
        return memoryview(b"".join(part.raw() for part in self.parts.values()))

    def numpy(self) -> NDArray[np.float32]:
        return self._rows(0, self.shape[0])

    def _rows(self, start: int, stop: int) -> NDArray[np.float32]:
        import numpy as np

        out = np.empty((stop - start, *self.shape[1:]), np.float32)
        width = max(out.size // max(len(out), 1), 1)
        step = max(_CHUNK // width // 8 * 8, 8)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            out[first - start : last - start] = self.packing.rows(
                self.parts, self.shape, first, last
            )
        return out


def unpacked(file: TensorFile, scheme: Scheme | None) -> TensorFile:
    """The file with one tensor for each table that it stores in parts, under its ordinary name.

    Errors: `FormatError` naming all tables whose parts are missing or do not fit together, and
    all modules that are packed or plain against what the config says.
    """
    if scheme is None:
        return file
    stems = _stems(file.tensors, scheme)
    problems: list[str] = []
    tables: dict[str, Tensor] = {}
    consumed: set[str] = set()
    for stem, parts in stems.items():
        packing = scheme.overrides.get(stem, scheme.packing)
        consumed.update(part.name for part in parts.values())
        if packing is None or scheme.plain.include(stem):
            problems.append(f"{_shown(stem)} is packed, the config says that it is not")
            continue
        missing = [
            f"missing: {_shown(stem + suffix)}"
            for part, suffix in packing.suffixes.items()
            if part not in parts and part not in packing.optional
        ]
        if missing:
            problems += missing
            continue
        try:
            dtype, shape = packing.table(parts)
        except Misfit as misfit:
            problems.append(f"{_shown(stem)}: {misfit}")
            continue
        nbytes = sum(part.nbytes for part in parts.values())
        name = packing.name(stem)
        tables[name] = PackedTensor(name, dtype, shape, nbytes, parts, packing)
    plain = {name: tensor for name, tensor in file.tensors.items() if name not in consumed}
    problems += [f"{_shown(name)} is there packed and plain" for name in tables if name in plain]
    problems += _against_the_config(stems, plain, scheme)
    if not stems:
        problems.append(f"no table is packed, the config says {scheme.packing.label}")
    if problems:
        more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise FormatError(
            f"{file.name}: not what the config calls {scheme.packing.label}",
            *problems[:_SHOWN],
            *more,
        )
    return replace(file, tensors={**plain, **tables})


def _stems(tensors: Mapping[str, Tensor], scheme: Scheme) -> dict[str, dict[str, StoredTensor]]:
    """The parts of each table that is packed, by what their names have in common."""
    suffixes = scheme.packing.suffixes
    found: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in tensors.items():
        for part, suffix in suffixes.items():
            if name.endswith(suffix) and isinstance(tensor, StoredTensor):
                found.setdefault(name.removesuffix(suffix), {})[part] = tensor
    order = list(suffixes)
    return {
        stem: {part: parts[part] for part in order if part in parts}
        for stem, parts in found.items()
        if set(parts) != {"weight"} or parts["weight"].dtype.name in scheme.packing.packed
    }


def _against_the_config(
    stems: Iterable[str], plain: Mapping[str, Tensor], scheme: Scheme
) -> list[str]:
    packed = set(stems)
    problems = [
        f"{_shown(stem)} is not packed, the config gives its {packing.label}"
        for stem, packing in scheme.overrides.items()
        if packing is not None and stem not in packed and f"{stem}.weight" in plain
    ]
    if not scheme.listed:
        return problems
    kinds = {_kind(stem) for stem in packed}
    for name, tensor in plain.items():
        stem = name.removesuffix(".weight")
        alike = stem != name and _kind(stem) in kinds
        if alike and len(tensor.shape) > 1 and not scheme.plain.may_include(stem):
            problems.append(
                f"{_shown(stem)} {by(tensor.shape)} is not packed, and the config does not list it"
            )
    return problems


def _kind(stem: str) -> str:
    """What modules of different layers have in common."""
    return sub(r"(?<![^.])\d+(?![^.])", "*", stem)


def _shown(name: str) -> str:
    return name if name.isascii() and name.isprintable() and len(name) <= 120 else quoted(name)
