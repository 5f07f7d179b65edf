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
from forwardpass.constraint.lang import Kind
from forwardpass.constraint.machine import Machine
from forwardpass.constraint.plans import Node
from forwardpass.constraint.scripts import Literal, Point, Value, Words

ALL = frozenset(range(256))
_NUMBER = frozenset(b"0123456789+-.eE")
_DIGITS = b"-0123456789"
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
        return _value(frame.node) | blanks
    if isinstance(frame, InArray):
        if frame.phase == Phase.AFTER:
            return frozenset(b",]") | blanks
        values = (_value(option.node) for option in frame.plan.at(frame.index))
        return blanks.union(b"]", *values)
    if isinstance(frame, InObject):
        return frozenset(_OBJECT[frame.phase]) | blanks
    if isinstance(frame, At):
        return _at(machine, frame.point) | blanks
    if isinstance(frame, Popped | Doubt):
        return frozenset()
    return ALL


def _value(node: Node) -> frozenset[int]:
    """What a value can begin with."""
    form = node.form
    found = [
        b'"' if form.texts.kind is not Kind.EMPTY else b"",
        _DIGITS if form.numbers else b"",
        b"[" if node.arrays else b"",
        b"{" if node.objects else b"",
        b"n" if form.null else b"",
        *(b"t" if value else b"f" for value in form.booleans),
    ]
    return frozenset(b"".join(found))


def _gap(machine: Machine) -> frozenset[int]:
    return frozenset(machine.blanks.allowed) if machine.blanks.elsewhere else frozenset()


def _at(machine: Machine, point: Point) -> frozenset[int]:
    out = frozenset[int]()
    for standing in machine.standing((At(point, 0), None)):
        for edge in standing.edges:
            if isinstance(edge, Literal):
                out |= {edge.text[0]}
            elif isinstance(edge, Value):
                out |= _value(edge.node) | _gap(machine)
            elif isinstance(edge, Words):
                out |= ALL
    return out
