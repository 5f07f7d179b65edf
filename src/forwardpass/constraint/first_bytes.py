"""Which bytes can come first from a place: more than may, never fewer. Saves asking for each."""

from __future__ import annotations

from forwardpass.constraint.frames import (
    At,
    Awaited,
    Doubt,
    Frame,
    InArray,
    InLiteral,
    InNumber,
    InObject,
    InWord,
    Phase,
    Popped,
)
from forwardpass.constraint.machine import Machine
from forwardpass.constraint.scripts import Literal, Point, Value, Words

ALL = frozenset(range(256))
_NUMBER = frozenset(b"0123456789+-.eE")
_VALUE = frozenset(b'"-0123456789[{tfn')
_OBJECT = {
    Phase.OPENED: b'"}', Phase.COMMA: b'"', Phase.AFTER: b",}", Phase.NAMED: b":", Phase.INSIDE: b""
}  # fmt: skip


def first_bytes(machine: Machine, frame: Frame) -> frozenset[int]:
    """The bytes of which some may be legal; all others are not."""
    blanks = frozenset(machine.blanks.allowed) if getattr(frame, "blanks", 0) else frozenset()
    if isinstance(frame, InNumber):
        around = frame.around
        behind = _at(machine, around) if isinstance(around, Point) else frozenset(b",]}")
        return _NUMBER | behind | _gap(machine)
    if isinstance(frame, InWord):
        return frozenset(frame.left[:1])
    if isinstance(frame, InLiteral):
        return frozenset(frame.left[:1])
    if isinstance(frame, Awaited):
        return _VALUE | blanks
    if isinstance(frame, InArray):
        values = frozenset(b",]") if frame.phase == Phase.AFTER else _VALUE | frozenset(b"]")
        return values | blanks
    if isinstance(frame, InObject):
        return frozenset(_OBJECT[frame.phase]) | blanks
    if isinstance(frame, At):
        return _at(machine, frame.point) | blanks
    if isinstance(frame, Popped | Doubt):
        return frozenset()
    return ALL


def _gap(machine: Machine) -> frozenset[int]:
    return frozenset(machine.blanks.allowed) if machine.blanks.elsewhere else frozenset()


def _at(machine: Machine, point: Point) -> frozenset[int]:
    out = frozenset[int]()
    for standing in machine.standing((At(point, 0), None)):
        for edge in standing.edges:
            if isinstance(edge, Literal):
                out |= {edge.text[0]}
            elif isinstance(edge, Value):
                out |= _VALUE | _gap(machine)
            elif isinstance(edge, Words):
                out |= ALL
    return out
