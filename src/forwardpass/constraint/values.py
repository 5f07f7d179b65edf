"""Short texts of values, and of what closes an open array or object; always valid.

A value's shortest text is found for all values at once, by letting each improve on what its parts
have until nothing changes. It is the least, in the measure that is given (bytes, or tokens of a
vocabulary), where an object or array counts nothing but its members (no contains, uniqueItems or
negated patterns); elsewhere it is short, and valid all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from forwardpass.constraint.comparing import Comparable, comparable
from forwardpass.constraint.frames import HOLE, LISTED, InArray, InObject, Phase
from forwardpass.constraint.machine import (
    UNKNOWN,
    Machine,
    array_done,
    object_done,
)
from forwardpass.constraint.names import is_blind, some_name
from forwardpass.constraint.plans import Counts, Node
from forwardpass.constraint.room import reached, zeros
from forwardpass.constraint.strings import CLOSED, DEAD, Plain, Strings

# Bytes in the order in which they are tried to get out of a half-written character.
_OUT_OF_CHARACTER = b'\\u"/bfnrt0123456789abcdefABCDEF' + bytes(range(0x80, 0xC0))
_MOST_SIZES = 50_000
_MOST_OBJECTS = 20_000
_FEW = 4
Measure = Callable[[bytes], int]
Seen = frozenset[Comparable]
Parts = tuple[bytes, ...]  # a text, in the parts that are measured each by itself


class Values:
    """Short texts for all values of a grammar."""

    def __init__(self, machine: Machine, nodes: list[Node], measure: Measure = len) -> None:
        self.machine, self.measure = machine, measure
        self._texts: dict[Node, bytes] = {}
        self._sizes: dict[bytes, int] = {}
        self._objects: dict[object, Parts | None] = {}  # ends of objects, while no value improves
        self._planned = set(nodes)
        alive = [node for node in nodes if node.alive]
        for node in alive:
            self._improve(node, self._scalar(node))
        waiting = [node for node in reversed(alive) if node.arrays or node.objects]
        improved = True
        while improved:
            improved = False
            for node in waiting:
                improved |= self._improve(node, self.container(node))

    def size(self, text: bytes) -> int:
        """The size of a text in the measure of this closer."""
        found = self._sizes.get(text)
        if found is None:
            if len(self._sizes) > _MOST_SIZES:
                self._sizes.clear()
            found = self._sizes[text] = self.measure(text)
        return found

    def _improve(self, node: Node, text: bytes | None) -> bool:
        known = self._texts.get(node)
        if text is None or (known is not None and self.size(known) <= self.size(text)):
            return False
        self._texts[node] = text
        self._objects.clear()
        return True

    def value(self, node: Node) -> bytes | None:
        """A short text of a value, or None where none is known (yet)."""
        known = self._texts.get(node)
        if known is None and node not in self._planned:
            # A value made on the way: one that must differ from others.
            known = self._scalar(node) or self.container(node)
        return known

    def _scalar(self, node: Node) -> bytes | None:
        form, machine = node.form, self.machine
        found = [b"null"] if form.null else []
        found += [b"true" if value else b"false" for value in form.booleans]
        word = machine.search.shortest(form.texts)
        if word is not None:
            found.append(quoted(word))
        for numbers in form.numbers:
            found.append(machine.numerals.finish(machine.numerals.start(numbers)))
        return min(found, key=self.size, default=None)

    def container(self, node: Node, extra: int = 0) -> bytes | None:
        found = []
        for plan in node.arrays:
            frame = InArray(plan, Phase.OPENED, 0, zeros(plan.least), 0, HOLE)
            found.append(self.array(frame, extra))
        for obj in node.objects:
            none: frozenset[str] = frozenset()
            start = InObject(obj, Phase.OPENED, 0, none, zeros(obj.least), 0, HOLE)
            found.append(self.object(start, extra))
        opened = [
            (b"[" if i < len(node.arrays) else b"{") + b"".join(rest)
            for i, rest in enumerate(found)
            if rest is not None
        ]
        return min(opened, key=self.size, default=None)

    # ---- the rest of an array or object ------------------------------------------------

    def array(self, frame: InArray, extra: int = 0) -> Parts | None:
        """From where an array stands, between two items, to its closing bracket.

        `extra`: how many items more than it needs.
        """
        if UNKNOWN in frame.seen:
            return self._beside_unknown(frame, extra)
        return self._array(frame, extra, set())

    def _array(self, frame: InArray, extra: int, met: set[bytes]) -> Parts | None:
        """The same; `met` gets the items that were thought of."""
        plan, phase, parts = frame.plan, frame.phase, list[bytes]()
        while (phase == Phase.COMMA and not parts) or not array_done(frame) or extra:
            extra -= bool(extra and array_done(frame))
            tried = []
            for node, counts in self.machine.items(frame):
                text = self.unlike(node, frame.seen) if plan.unique else self.value(node)
                if text is not None:
                    idle = not _nearer(frame.counts, counts, plan.least)
                    tried.append((idle, self.size(text), text, counts))
            if not tried:
                return None
            _, _, text, counts = min(tried)
            seen = frame.seen
            if plan.unique:
                met.update(one[2] for one in tried)
                seen |= {comparable(text)}
            frame = replace(frame, index=frame.index + 1, counts=counts, seen=seen)
            parts.append(text)
        return _closed(phase, parts, b"]")

    def _beside_unknown(self, frame: InArray, extra: int) -> Parts | None:
        """The largest of the ends that there may be, whatever the item is that is not known: it may
        be one with which the array would have been closed, at worst one of the smallest."""
        met: set[bytes] = set()
        others = replace(frame, seen=frame.seen - {UNKNOWN})
        ends = [self._array(others, extra, met)]
        for text in sorted(met, key=self.size)[:_FEW]:
            end = replace(frame, seen=others.seen | {comparable(text)})
            ends.append(self._array(end, extra, set()))
        return self._largest_of(ends)

    def _largest_of(self, ends: list[Parts | None]) -> Parts | None:
        known = (end for end in ends if end is not None)
        return max(known, key=lambda parts: sum(map(self.size, parts)), default=None)

    def unlike(self, node: Node | None, seen: Seen) -> bytes | None:
        """A text of a value that is none of those seen; lists and objects are made longer."""
        if node is None:
            return None
        text = self.value(node)
        for extra in range(1, len(seen) + 2):
            if text is None or comparable(text) not in seen:
                break
            text = self.container(node, extra)
        return text

    def object(self, frame: InObject, extra: int = 0) -> Parts | None:
        """From where an object stands, between two members, to its closing brace."""
        if frame.phase == Phase.AFTER and not extra and object_done(frame):
            return (b"}",)
        key = frame.plan, frame.phase, frame.mask, frame.others, frame.counts, extra
        if key not in self._objects:
            if len(self._objects) > _MOST_OBJECTS:
                self._objects.clear()
            if is_blind(frame):
                self._objects[key] = self._blind(frame, extra)
            else:
                self._objects[key] = self._object(frame, extra, set())
        return self._objects[key]

    def _blind(self, frame: InObject, extra: int) -> Parts | None:
        """The largest of the ends that there may be, whatever the name is that is not known: it may
        be one with which the object would have been closed, at worst one of the smallest."""
        met: set[tuple[int, str]] = set()
        ends = [self._object(frame, extra, met)]
        kind = next(k for k in range(len(frame.plan.others)) if some_name(k) in frame.others)
        names = sorted((self.size(quoted(name)), name) for k, name in met if k == kind)
        for _, name in names[:_FEW]:
            others = frame.others - {some_name(kind)} | {name}
            ends.append(self._object(replace(frame, others=others), extra, set()))
        return self._largest_of(ends)

    def _object(self, frame: InObject, extra: int, met: set[tuple[int, str]]) -> Parts | None:
        """The same where all names are known; `met` gets the names that were thought of."""
        plan, phase, parts = frame.plan, frame.phase, list[bytes]()
        while (forced := phase == Phase.COMMA and not parts) or not object_done(frame) or extra:
            spare = bool(extra and object_done(frame))
            extra -= spare
            tried: list[tuple[bool, int, bytes, int, InObject]] = []
            for kind, name in self._names(frame, forced=forced or spare):
                met.add((kind, name))
                for taken in self.machine.names.taken(frame, name):
                    text = None if taken.value is None else self.value(taken.value)
                    if text is not None:
                        member = quoted(name) + b":" + text
                        idle = not _nearer(frame.counts, taken.counts, plan.least)
                        idle &= taken.mask & plan.required == frame.mask & plan.required
                        tried.append((idle, self.size(member), member, len(tried), taken))
            if not tried:
                return None
            _, _, member, _, taken = min(tried)
            frame = replace(taken, value=None)
            parts.append(member)
        return _closed(phase, parts, b"}")

    def _names(self, frame: InObject, *, forced: bool) -> Iterator[tuple[int, str]]:
        """Names worth trying next: the listed ones, and one of each kind of others."""
        plan, search = frame.plan, self.machine.search
        languages = self.machine.names.languages_of(frame)
        listed = next((lang.words for kind, lang in languages if kind == LISTED), ())
        missing = plan.required & ~frame.mask
        members = frame.mask.bit_count() + len(frame.others)
        more = not reached(frame.counts, plan.least) or (not missing and members < plan.objects.low)
        more |= forced and not missing
        # In the order of the schema, an optional name may have to come before a required one.
        more |= not any(plan.names[i] in listed for i in _bits(missing))
        for name in listed:
            if more or missing >> plan.index[name] & 1:
                yield LISTED, name
        for kind, lang in languages if more else ():
            if kind != LISTED and (word := search.shortest(lang)) is not None:
                yield kind, word

    # ---- the rest of a text ------------------------------------------------------------

    def string(self, state: int) -> bytes:
        """The rest of a JSON string with its closing quote."""
        return self.text(self.machine.strings, state)

    def text(self, strings: Strings, state: int) -> bytes:
        """The rest of a text; of one in a JSON string, with its closing quote."""
        out = b""
        while (lang := strings.lang(state)) is None and state != CLOSED:
            for byte in _OUT_OF_CHARACTER:
                after = strings.step(state, byte)
                if after != DEAD:
                    state, out = after, out + bytes([byte])
                    break
        if lang is None:
            return out
        word = some(self.machine.search.shortest(lang))
        return out + (word.encode() if isinstance(strings, Plain) else quoted(word)[1:])


T = TypeVar("T")


def some(found: T | None) -> T:
    assert found is not None, "a state without a way out"
    return found


def _bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _closed(phase: Phase, parts: list[bytes], end: bytes) -> Parts:
    out = [] if phase == Phase.AFTER or not parts else [parts.pop(0)]
    for part in parts:
        out += [b",", part]
    return (*out, end)


def _nearer(counts: Counts, more: Counts, least: Counts) -> bool:
    """Whether an obligation that is not met was brought nearer."""
    return any(a < b and a < c for a, b, c in zip(counts, more, least, strict=True))


def quoted(word: str) -> bytes:
    return json.dumps(word, ensure_ascii=False).encode()
