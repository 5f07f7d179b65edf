"""The way out of every state: few bytes that complete the text, always valid.

The base of closing in time. A value's shortest text is found for all values at once, by letting
each improve on what its parts have until nothing changes. The result is the least in bytes where
an object or array counts nothing but its members (no contains, uniqueItems or negated patterns);
elsewhere it is short, and valid all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from forwardpass.constraint.frames import (
    Awaited,
    InArray,
    InName,
    InNumber,
    InObject,
    InString,
    InWord,
    Phase,
    Position,
)
from forwardpass.constraint.machine import Machine, array_done, comparable, object_done
from forwardpass.constraint.plans import Counts, Node
from forwardpass.constraint.room import reached, zeros
from forwardpass.constraint.strings import CLOSED, DEAD

# Bytes in the order in which they are tried to get out of a half-written character.
_OUT_OF_CHARACTER = b'\\u"/bfnrt0123456789abcdefABCDEF' + bytes(range(0x80, 0xC0))


class Closer:
    """Short completions for all values of a grammar."""

    def __init__(self, machine: Machine, nodes: list[Node]) -> None:
        self.machine = machine
        self._texts: dict[Node, bytes] = {}
        self._planned = set(nodes)
        alive = [node for node in nodes if node.alive]
        for node in alive:
            self._improve(node, self._scalar(node))
        waiting = [node for node in reversed(alive) if node.arrays or node.objects]
        improved = True
        while improved:
            improved = False
            for node in waiting:
                improved |= self._improve(node, self._container(node))

    def _improve(self, node: Node, text: bytes | None) -> bool:
        known = self._texts.get(node)
        if text is None or (known is not None and len(known) <= len(text)):
            return False
        self._texts[node] = text
        return True

    def value(self, node: Node) -> bytes | None:
        """A short text of a value, or None where none is known (yet)."""
        known = self._texts.get(node)
        if known is None and node not in self._planned:
            # A value made on the way: one that must differ from others.
            known = self._scalar(node) or self._container(node)
        return known

    def _scalar(self, node: Node) -> bytes | None:
        form, machine = node.form, self.machine
        found = [b"null"] if form.null else []
        found += [b"true" if value else b"false" for value in form.booleans]
        word = machine.search.shortest(form.texts)
        if word is not None:
            found.append(_quoted(word))
        for numbers in form.numbers:
            found.append(machine.numerals.finish(machine.numerals.start(numbers)))
        return min(found, key=len, default=None)

    def _container(self, node: Node) -> bytes | None:
        found = []
        for plan in node.arrays:
            frame = InArray(plan, Phase.OPENED, 0, zeros(plan.least), 0, None)
            found.append(self._array(frame))
        for obj in node.objects:
            none: frozenset[str] = frozenset()
            start = InObject(obj, Phase.OPENED, 0, none, zeros(obj.least), 0, None)
            found.append(self._object(start))
        opened = [
            (b"[" if i < len(node.arrays) else b"{") + rest
            for i, rest in enumerate(found)
            if rest is not None
        ]
        return min(opened, key=len, default=None)

    # ---- the rest of an array or object ------------------------------------------------

    def _array(self, frame: InArray) -> bytes | None:
        """From where an array stands, between two items, to its closing bracket."""
        plan, phase, parts = frame.plan, frame.phase, list[bytes]()
        while (phase == Phase.COMMA and not parts) or not array_done(frame):
            tried = []
            for node, counts in self.machine.items(frame):
                text = self.value(node)
                if text is not None:
                    idle = not _nearer(frame.counts, counts, plan.least)
                    tried.append((idle, len(text), text, counts))
            if not tried:
                return None
            _, _, text, counts = min(tried)
            seen = frame.seen
            if plan.unique:
                seen |= {comparable(json.loads(text, parse_float=Decimal))}
            frame = replace(frame, index=frame.index + 1, counts=counts, seen=seen)
            parts.append(text)
        return _closed(phase, parts, b"]")

    def _object(self, frame: InObject) -> bytes | None:
        """From where an object stands, between two members, to its closing brace."""
        plan, phase, parts = frame.plan, frame.phase, list[bytes]()
        while (forced := phase == Phase.COMMA and not parts) or not object_done(frame):
            tried: list[tuple[bool, int, bytes, int, InObject]] = []
            for name in self._names(frame, forced=forced):
                for taken in self.machine.names.taken(frame, name):
                    text = None if taken.value is None else self.value(taken.value)
                    if text is not None:
                        member = _quoted(name) + b":" + text
                        idle = not _nearer(frame.counts, taken.counts, plan.least)
                        idle &= taken.mask & plan.required == frame.mask & plan.required
                        tried.append((idle, len(member), member, len(tried), taken))
            if not tried:
                return None
            _, _, member, _, taken = min(tried)
            frame = replace(taken, value=None)
            parts.append(member)
        return _closed(phase, parts, b"}")

    def _names(self, frame: InObject, *, forced: bool) -> Iterator[str]:
        """Names worth trying next: the listed ones, and one of each kind of others."""
        plan, languages = frame.plan, self.machine.languages
        allowed = self.machine.names.language(frame)
        missing = plan.required & ~frame.mask
        members = frame.mask.bit_count() + len(frame.others)
        more = not reached(frame.counts, plan.least) or (not missing and members < plan.objects.low)
        more |= forced and not missing
        # In the order of the schema, an optional name may have to come before a required one.
        wanted = [n for i, n in enumerate(plan.names) if missing >> i & 1]
        more |= not any(languages.matches(allowed, name) for name in wanted)
        for i, name in enumerate(plan.names):
            if (more or missing >> i & 1) and languages.matches(allowed, name):
                yield name
        for one in plan.others if more else ():
            word = self.machine.search.shortest(languages.both((one.names, allowed)))
            if word is not None:
                yield word

    # ---- the rest of a position --------------------------------------------------------

    def rest(self, position: Position) -> bytes:
        """Bytes after which the text is complete."""
        out = b""
        while not self.machine.done(position):
            chunk = self._chunk(position)
            live = [position]
            for byte in chunk:
                live = [after for one in live for after in self.machine.step(one, byte)]
            out += chunk
            position = next((one for one in live if self.machine.done(one)), live[0])
        return out

    def _chunk(self, position: Position) -> bytes:
        """Bytes that bring the innermost open thing to its end (or nearer to it)."""
        frame = position[0]
        if isinstance(frame, InString | InName):
            return self._string(frame.state)
        if isinstance(frame, InNumber):
            tail = self.machine.numerals.finish(frame.state)
            # The byte after a number ends it.
            ends = (bytes([b]) for b in b"]}," if self.machine.step(position, b))
            return tail or next(ends)
        if isinstance(frame, InWord):
            return frame.left
        if isinstance(frame, Awaited):
            rest = self.value(frame.node)
        elif isinstance(frame, InArray):
            rest = self._array(frame)
        else:
            assert isinstance(frame, InObject)
            rest = b":" if frame.phase == Phase.NAMED else self._object(frame)
        assert rest is not None, "a state without a way out"
        return rest

    def _string(self, state: int) -> bytes:
        """The rest of a string with its closing quote."""
        strings, out = self.machine.strings, b""
        while (lang := strings.lang(state)) is None and state != CLOSED:
            for byte in _OUT_OF_CHARACTER:
                after = strings.step(state, byte)
                if after != DEAD:
                    state, out = after, out + bytes([byte])
                    break
        if lang is None:
            return out
        word = self.machine.search.shortest(lang)
        assert word is not None
        return out + _quoted(word)[1:]


def _closed(phase: Phase, parts: list[bytes], end: bytes) -> bytes:
    comma = b"," if phase == Phase.AFTER and parts else b""
    return comma + b",".join(parts) + end


def _nearer(counts: Counts, more: Counts, least: Counts) -> bool:
    """Whether an obligation that is not met was brought nearer."""
    return any(a < b and a < c for a, b, c in zip(counts, more, least, strict=True))


def _quoted(word: str) -> bytes:
    return json.dumps(word, ensure_ascii=False).encode()
