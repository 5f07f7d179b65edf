"""The C++ part of forwardpass; the source is in csrc/."""

from typing import Literal, TypedDict

class _Caches(TypedDict):
    l1d: int
    l2: int
    l3: int

class _Cpu(TypedDict):
    vendor: str
    brand: str
    features: dict[str, bool]
    tile_permission: Literal["unsupported", "on request", "granted"]
    caches: _Caches

def cpu() -> _Cpu: ...
