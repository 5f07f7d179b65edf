"""ECMA-262 regular expressions, as JSON Schema's `pattern` takes them, read into a tree.

Read with the `u` flag, so that a code point is one character. Refused, with the place: what no
finite automaton can do (back references), look-behind, word boundaries, and escapes that
ECMA-262 does not define.
"""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.constraint import charsets
from forwardpass.constraint.charsets import CharSet

DEEPEST = 100
LONGEST = 20_000
MOST_REPEATS = 10_000_000


class PatternError(Exception):
    """A pattern that cannot be honoured; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Chars:
    chars: CharSet


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    part: Tree
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Edge:
    """`^` (start) or `$`."""

    start: bool


@dataclass(frozen=True, slots=True)
class Look:
    """`(?=…)` or `(?!…)`."""

    part: Tree
    wanted: bool


Tree = Chars | Sequence | Choice | Repeat | Edge | Look

_CLASSES = {
    "d": charsets.DIGIT,
    "D": charsets.NOT_DIGIT,
    "w": charsets.WORD,
    "W": charsets.NOT_WORD,
    "s": charsets.SPACE,
    "S": charsets.NOT_SPACE,
}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}


def parse(pattern: str) -> Tree:
    """The tree of a pattern. Raises PatternError, naming the place."""
    if len(pattern) > LONGEST:
        raise PatternError(f"is {len(pattern):,} characters long; {LONGEST:,} are read")
    parser = _Parser(pattern)
    tree = parser.choice(0)
    if parser.at < len(pattern):
        raise parser.error("has a ) without its (")
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def error(self, what: str, at: int | None = None) -> PatternError:
        return PatternError(f"{what} (at character {(self.at if at is None else at) + 1})")

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def choice(self, depth: int) -> Tree:
        if depth > DEEPEST:
            raise self.error(f"nests groups deeper than {DEEPEST}")
        parts = [self.sequence(depth)]
        while self.take("|"):
            parts.append(self.sequence(depth))
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self, depth: int) -> Tree:
        parts: list[Tree] = []
        while self.peek() not in ("", "|", ")"):
            parts.append(self.repeats(self.atom(depth)))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def repeats(self, atom: Tree) -> Tree:
        start = self.at
        bounds = self.bounds()
        if bounds is None:
            return atom
        if isinstance(atom, Edge | Look):
            raise self.error("repeats an assertion", start)
        self.take("?")  # lazy or not: the same language
        if self.peek() in ("*", "+", "?"):
            raise self.error("repeats a repetition")
        low, high = bounds
        if high is not None and low > high:
            raise self.error(f"has a repetition from {low} to {high}", start)
        if max(low, high or 0) > MOST_REPEATS:
            raise self.error(f"repeats more than {MOST_REPEATS:,} times", start)
        return Repeat(atom, low, high)

    def bounds(self) -> tuple[int, int | None] | None:
        if self.take("*"):
            return 0, None
        if self.take("+"):
            return 1, None
        if self.take("?"):
            return 0, 1
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : end].partition(",") if end > 0 else ("", "", "")
        digits = [low, high] if comma and high else [low]
        if not all(part.isascii() and part.isdigit() and len(part) < 20 for part in digits):
            return None
        self.at = end + 1
        if not comma:
            return int(low), int(low)
        return int(low), int(high) if high else None

    def atom(self, depth: int) -> Tree:
        char = self.peek()
        if char == "(":
            return self.group(depth)
        if char == "[":
            return Chars(self.character_class())
        if char == "\\":
            return self.escape()
        if char in "*+?":
            raise self.error(f"has nothing before its {char}")
        self.at += 1
        if char == "^":
            return Edge(start=True)
        if char == "$":
            return Edge(start=False)
        if char == ".":
            return Chars(charsets.DOT)
        # A brace that opens no repetition stands for itself, as in web browsers (annex B).
        return Chars(charsets.make([(ord(char), ord(char))]))

    def group(self, depth: int) -> Tree:
        start = self.at
        self.at += 1
        look: bool | None = None
        if self.take("?"):
            if self.take("="):
                look = True
            elif self.take("!"):
                look = False
            elif self.take("<=") or self.take("<!"):
                raise self.error("looks behind, which is not supported", start)
            elif self.take("<"):
                end = self.text.find(">", self.at)
                if end < 0 or not self.text[self.at : end].isidentifier():
                    raise self.error("has a group without a proper name", start)
                self.at = end + 1
            elif not self.take(":"):
                raise self.error("opens a group in a way that ECMA-262 does not know", start)
        inner = self.choice(depth + 1)
        if not self.take(")"):
            raise self.error("has a ( without its )", start)
        return inner if look is None else Look(inner, look)

    def escape(self) -> Tree:
        start = self.at
        name = self.text[self.at + 1 : self.at + 2]
        if name in ("b", "B"):
            raise self.error(f"asks for a word boundary (\\{name}), which is not supported", start)
        if name in "123456789" and name:
            raise self.error(f"has a back reference (\\{name})", start)
        if name == "k":
            raise self.error("has a back reference (\\k)", start)
        return Chars(self.escaped_set())

    def escaped_set(self) -> CharSet:
        """What an escape stands for, in or out of a class; `at` is at the backslash."""
        start = self.at
        self.at += 1
        name = self.peek()
        if not name:
            raise self.error("ends in a backslash", start)
        self.at += 1
        if name in _CLASSES:
            return _CLASSES[name]
        if name in ("p", "P"):
            return self.unicode_property(start, negated=name == "P")
        return charsets.make([(code := self.escaped_code(name, start), code)])

    def escaped_code(self, name: str, start: int) -> int:
        if name in _CONTROLS:
            return _CONTROLS[name]
        if name == "0" and not self.peek().isdigit():
            return 0
        if name == "c" and self.peek().isascii() and self.peek().isalpha():
            self.at += 1
            return ord(self.text[self.at - 1]) % 32
        if name == "x":
            return self.hexadecimal(2, start)
        if name == "u":
            return self.unicode_escape(start)
        if name.isalnum():
            raise self.error(f"has an escape that ECMA-262 does not know (\\{name})", start)
        return ord(name)

    def hexadecimal(self, digits: int, start: int) -> int:
        text = self.text[self.at : self.at + digits]
        if len(text) < digits or not all(c in "0123456789abcdefABCDEF" for c in text):
            raise self.error("has an escape without its hexadecimal digits", start)
        self.at += digits
        return int(text, 16)

    def unicode_escape(self, start: int) -> int:
        if self.take("{"):
            end = self.text.find("}", self.at)
            width = end - self.at
            if not 0 < width <= 8 or (code := self.hexadecimal(width, start)) > charsets.LAST:
                raise self.error("has an escape that is no code point", start)
            self.at = end + 1
            return code
        high = self.hexadecimal(4, start)
        if 0xD800 <= high <= 0xDBFF and self.text.startswith("\\u", self.at):
            back = self.at
            self.at += 2
            low = self.hexadecimal(4, start)
            if 0xDC00 <= low <= 0xDFFF:
                return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            self.at = back
        return high

    def unicode_property(self, start: int, *, negated: bool) -> CharSet:
        end = self.text.find("}", self.at)
        if not self.take("{") or end < 0:
            raise self.error("has \\p without a property in braces", start)
        name = self.text[self.at : end]
        self.at = end + 1
        kind, equals, value = name.partition("=")
        if equals and kind in ("General_Category", "gc"):
            name = value
        found = charsets.category(name)
        if found is None:
            raise self.error(f"asks for the Unicode property {name}, which is not known", start)
        return charsets.complement(found) if negated else found

    def character_class(self) -> CharSet:
        start = self.at
        self.at += 1
        negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        while not self.take("]"):
            if not self.peek():
                raise self.error("has a [ without its ]", start)
            first = self.class_atom()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self.class_atom()
                if isinstance(first, int) and isinstance(last, int):
                    if first > last:
                        raise self.error("has a range whose end comes before its start", start)
                    ranges.append((first, last))
                    continue
                # A class as an end of a range: both and the hyphen stand for themselves.
                ranges += [(0x2D, 0x2D), *_ranges(first), *_ranges(last)]
                continue
            ranges += _ranges(first)
        chars = charsets.make(ranges)
        return charsets.complement(chars) if negated else chars

    def class_atom(self) -> int | CharSet:
        start = self.at
        if self.peek() != "\\":
            self.at += 1
            return ord(self.text[start])
        name = self.text[self.at + 1 : self.at + 2]
        if name == "b":
            self.at += 2
            return 8
        if name in _CLASSES or name in ("p", "P"):
            return self.escaped_set()
        if not name:
            raise self.error("ends in a backslash", start)
        self.at += 2
        return self.escaped_code(name, start)


def _ranges(atom: int | CharSet) -> list[tuple[int, int]]:
    return [(atom, atom)] if isinstance(atom, int) else list(atom)
