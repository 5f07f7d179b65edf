"""Which rule of its grammar a byte breaks, in words; values are in `reasons_values.py`."""

from __future__ import annotations

from collections.abc import Iterator

from forwardpass.constraint.frames import (
    At,
    Awaited,
    Frame,
    InArray,
    InLiteral,
    InName,
    InNumber,
    InObject,
    InString,
    InWord,
    InWords,
    Phase,
    Position,
)
from forwardpass.constraint.machine import array_done, object_done
from forwardpass.constraint.plans import Node, ObjectPlan
from forwardpass.constraint.reasons_path import Trail
from forwardpass.constraint.reasons_spot import Broken, Spot, begins, joined, quoted
from forwardpass.constraint.reasons_values import ValueRules
from forwardpass.constraint.room import reached
from forwardpass.constraint.scripts import Edge, Value, Words

_OUTSIDE = 9  # the rank of a rule of which there is little to say
_QUOTE, _COMMA, _COLON = 0x22, 0x2C, 0x3A


class Rules(ValueRules):
    """Says of a refused byte what it breaks."""

    def broken(self, spot: Spot, byte: int) -> Broken:
        """The rule that a byte breaks which the state refuses, by the most telling reading."""
        found = [
            rule for one in spot.state.positions for rule in self._position(one, spot.trail, byte)
        ]
        return min(found, default=Broken(_OUTSIDE, "the grammar ends here"))

    def _position(self, position: Position, trail: Trail, byte: int) -> Iterator[Broken]:
        frame, text = position
        if isinstance(frame, At | InLiteral | InWords):
            yield from self._script(frame, byte)
        elif isinstance(frame, Awaited):
            nodes = [frame.node]
            most = self.machine.blanks.after_colon
            most = most if isinstance(frame.around, InObject) else self.machine.blanks.elsewhere
            yield self._blank(byte, most) if self._is_blank(byte) else self.beginning(nodes, byte)
        elif isinstance(frame, InString):
            yield self.in_text(frame, trail, byte)
        elif isinstance(frame, InNumber):
            yield from self._number(frame, text, trail, byte)
        elif isinstance(frame, InWord):
            yield Broken(2, f"must go on with {quoted(frame.left)}")
        elif isinstance(frame, InArray):
            yield from self._array(frame, trail, byte)
        elif isinstance(frame, InObject):
            yield self._object(frame, trail, byte)
        elif isinstance(frame, InName):
            yield self._name(frame, trail, byte)

    def _is_blank(self, byte: int) -> bool:
        return byte in b" \t\n\r"

    def _blank(self, byte: int, most: int) -> Broken:
        if byte not in self.machine.blanks.allowed:
            return Broken(
                1, "no tab may stand here" if byte == 9 else "no line break may stand here"
            )
        if most:
            allowed = "blank" if most == 1 else f"{most} blanks"
            return Broken(1, f"at most {'one' if most == 1 else ''} {allowed}".replace("  ", " "))
        return Broken(1, "no blank may stand here")

    # ---- what stands around values -----------------------------------------------------

    def _script(self, frame: Frame, byte: int) -> Iterator[Broken]:
        if isinstance(frame, InLiteral):
            yield Broken(3, f"must go on with {quoted(frame.left)}")
            return
        standing = self.machine.standing((frame, None))
        texts, tokens = begins(standing)
        edges = [edge for point in standing for edge in point.edges]
        values = [edge.node for edge in edges if isinstance(edge, Value)]
        if values:
            blank = self._is_blank(byte)
            most = self.machine.blanks.elsewhere
            yield self._blank(byte, most) if blank else self.beginning(values, byte)
        names = [quoted(text) for text in texts] + [self.control(token) for token in tokens]
        if isinstance(frame, InWords) or any(isinstance(edge, Words) for edge in edges):
            yield self._words(frame, edges, byte)
        elif names:
            few = names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} more"]
            yield Broken(4, f"must begin {joined(few)}")
        elif not edges:
            ended = any(point.final for point in standing)
            yield Broken(4, "the text has ended" if ended else "nothing may follow")

    def _words(self, frame: Frame, edges: list[Edge], byte: int) -> Broken:
        langs = [edge.lang for edge in edges if isinstance(edge, Words)]
        if isinstance(frame, InWords):
            inside = self.machine.plain.lang(frame.state)
            if inside is None or self._no_character(frame.state, byte):
                return Broken(3, "no UTF-8 goes on so")
            langs = [inside]
        if langs and all(lang.words for lang in langs):
            return Broken(3, "none of the texts to choose from")
        return Broken(3, "does not fit the text that is asked for", "pattern")

    def _no_character(self, state: int, byte: int) -> bool:
        return byte >= 0x80 and not 0xC2 <= byte <= 0xF4

    # ---- containers --------------------------------------------------------------------

    def _number(
        self, frame: InNumber, text: bytes | None, trail: Trail, byte: int
    ) -> Iterator[Broken]:
        found = self.in_number(frame, trail, byte)
        if found is not None:
            yield found
            return
        after = list(self.machine.finished(frame.around, text))
        if not after:
            yield self.there_already(frame.around, trail)
        for position in after:
            yield from self._position(position, trail.ended(), byte)

    def _array(self, frame: InArray, trail: Trail, byte: int) -> Iterator[Broken]:
        phase, blanks = frame.phase, self.machine.blanks
        own = self.around(frame.around, trail.levels[:-1])
        if self._is_blank(byte):
            yield self._blank(
                byte, blanks.after_comma if phase == Phase.COMMA else blanks.elsewhere
            )
        elif byte == 0x5D and phase != Phase.COMMA:
            yield self._array_end(frame, trail)
        elif phase == Phase.AFTER:
            if byte != _COMMA:
                yield Broken(2, "a comma or ] must follow")
            elif frame.index >= frame.plan.high:
                found = self.keywords.find(own, "maxItems")
                yield self.by(found, 1, f"more than maxItems {frame.plan.high}")
            else:
                found = self.keywords.find(
                    own, "items", "prefixItems", "maxContains", "uniqueItems"
                )
                yield self.by(found, 1, "no further item is allowed")
        elif byte in (_COMMA, 0x5D):
            yield Broken(2, "an item must come")
        else:
            nodes = [node for node, _ in self.machine.items(frame)]
            if nodes:
                yield self.beginning(nodes, byte)
            else:
                found = self.keywords.find(own, "maxItems", "items")
                yield self.by(found, 1, "no item is allowed")

    def _array_end(self, frame: InArray, trail: Trail) -> Broken:
        own = self.around(frame.around, trail.levels[:-1])
        if frame.index < frame.plan.arrays.low:
            found = self.keywords.find(own, "minItems", "minContains", "contains")
            return self.by(found, 1, f"fewer than minItems {frame.plan.arrays.low}")
        if array_done(frame):
            return self.there_already(frame.around, trail)
        found = self.keywords.find(own, "contains", "minContains")
        return self.by(found, 1, "an item that contains asks for is missing")

    def _object(self, frame: InObject, trail: Trail, byte: int) -> Broken:
        phase, blanks = frame.phase, self.machine.blanks
        if self._is_blank(byte):
            return self._blank(
                byte, blanks.after_comma if phase == Phase.COMMA else blanks.elsewhere
            )
        if phase == Phase.NAMED:
            return Broken(2, "a colon must follow")
        if byte == 0x7D and phase != Phase.COMMA:
            return self._object_end(frame, trail)
        if phase == Phase.AFTER:
            if byte == _COMMA:
                return self._no_name(frame, trail)
            return Broken(2, "a comma or } must follow")
        if byte == _QUOTE:
            return self._no_name(frame, trail)
        return Broken(2, "a name in quotes must come")

    def _object_end(self, frame: InObject, trail: Trail) -> Broken:
        own = self.around(frame.around, trail.levels[:-1])
        plan = frame.plan
        missing = [
            name
            for i, name in enumerate(plan.names)
            if plan.required >> i & 1 and not frame.mask >> i & 1
        ]
        if missing:
            found = self.keywords.find(own, "required", "dependentRequired", "dependencies")
            return self.by(found, 0, f"required {quoted(missing[0])} is missing")
        members = frame.mask.bit_count() + len(frame.others)
        if members < plan.objects.low:
            found = self.keywords.find(own, "minProperties", "required")
            return self.by(found, 1, f"fewer than minProperties {plan.objects.low}")
        if object_done(frame):
            return self.there_already(frame.around, trail)
        assert not reached(frame.counts, plan.least)
        return Broken(1, "a member that the schema asks for is missing")

    def _no_name(self, frame: InObject, trail: Trail) -> Broken:
        own = self.around(frame.around, trail.levels[:-1])
        high = frame.plan.objects.high
        members = frame.mask.bit_count() + len(frame.others)
        if high is not None and members >= high:
            found = self.keywords.find(own, "maxProperties")
            return self.by(found, 1, f"more than maxProperties {high}")
        found = self.keywords.find(own, "additionalProperties", "unevaluatedProperties")
        return self.by(found, 1, "no further name is allowed")

    def _name(self, frame: InName, trail: Trail, byte: int) -> Broken:
        around, plan = frame.around, frame.around.plan
        if byte < 0x20:
            return Broken(1, "a control character has to be escaped")
        name, closing = self.text_after(trail, byte)
        if name is None:
            return Broken(2, "no character is written so")
        listed = [n for n in plan.names if (n == name if closing else n.startswith(name))]
        own = self.around(around.around, trail.levels[:-1])
        others = [n for n in around.others if n == name]
        if others and closing:
            return Broken(1, f"{quoted(name)} is written already")
        if not listed:
            words = ("additionalProperties", "propertyNames", "unevaluatedProperties")
            found = self.keywords.find(own, *words, "patternProperties")
            because = f" ({found.keyword})" if found else ""
            return self.by(found, 1, f"no such name{because}")
        return self._not_now(around, plan, listed[0], own)

    def _not_now(self, frame: InObject, plan: ObjectPlan, name: str, own: list[Node]) -> Broken:
        """Why a name that the schema lists may not come."""
        place = plan.index[name]
        if frame.mask >> place & 1:
            return Broken(1, f"{quoted(name)} is written already")
        if not self.machine.names.any_order:
            passed = frame.mask.bit_length()
            if place < passed or frame.others:
                return Broken(1, f"{quoted(name)} comes earlier in the order of the schema")
            for i in range(passed, place):
                if plan.required >> i & 1:
                    found = self.keywords.find(own, "required")
                    return self.by(found, 1, f"required {quoted(plan.names[i])} comes before")
        if not any(option.node.alive for option in plan.options[place]):
            return Broken(1, f"{quoted(name)} may not be there")
        found = self.keywords.find(own, "maxProperties", "required", "minProperties")
        return self.by(found, 1, f"{quoted(name)} leaves no room for what is asked for")
