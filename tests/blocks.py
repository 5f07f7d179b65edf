"""The fenced blocks of a Markdown page, and whether a command printed what its block shows.

A `console` block holds commands after `$ `, each followed by what a terminal shows: standard
output and standard error as they were written. A backslash at its end continues a command; the
lines of a here-document start with `> `. In what is shown

* `…` alone on a line stands for any lines, also none;
* `~n` stands for a number within a factor of ten of n (blanks beside it may differ);
* `avx512-vnni` stands for whichever level of instructions the native backend runs at;
* everything else is exact, but for blanks at the ends of lines.

A comment in the line before the block says where it does not run as it is:

    <!-- run: bare machine -->      installs or downloads: scripts/bare_machine.sh runs it
    <!-- run: large -->             needs a large model: pytest -m large
    <!-- run: exit status 2 -->     fails, and should
    <!-- run: native backend -->    shows the native backend: skipped where that is not built

A `text` block with this comment is what the bare-machine command before it prints instead, from
its first line to its last:

    <!-- run: without a compiler -->

    python tests/blocks.py commands README.md          the bare-machine commands, NUL after each
    python tests/blocks.py check README.md 1 OUTPUT    was this what the first of them shows?
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

BARE_MACHINE, LARGE, NATIVE = "bare machine", "large", "native backend"
WITHOUT_COMPILER = "without a compiler"
SHOWN_LEVEL = "avx512-vnni"
LEVELS = ("portable", "avx2", SHOWN_LEVEL, "amx")
ANY_LINES = "…"
FACTOR = 10.0

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>\S*)\s*$")
_COMMENT = re.compile(r"^ *<!-- run: (?P<how>.+?) -->\s*$")
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_ABOUT = re.compile(rf"( *)~({_NUMBER})( *)")


@dataclass(frozen=True)
class Command:
    """One command of a console block with the lines that it should print.

    `otherwise`: the lines that it prints instead where there is no compiler, if the page says.
    """

    text: str
    expected: tuple[str, ...]
    line: int
    otherwise: tuple[str, ...] = ()

    def deviation(self, printed: str) -> str | None:
        """How `printed` differs from all that the page shows of it, or None."""
        found = difference(self.expected, printed)
        if found is None or not self.otherwise:
            return found
        other = difference(self.otherwise, printed)
        return None if other is None else f"{found}\n{WITHOUT_COMPILER}: {other}"


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, what its comment says, where it starts."""

    language: str
    lines: tuple[str, ...]
    how: str | None
    line: int

    @property
    def exit_status(self) -> int:
        found = re.fullmatch(r"exit status (\d+)", self.how or "")
        return int(found[1]) if found else 0

    def commands(self) -> list[Command]:
        """The commands of a console block, in order; ValueError where there are none."""
        starts = [i for i, line in enumerate(self.lines) if line.startswith("$ ")]
        if not starts or starts[0] != 0:
            raise ValueError(f"line {self.line}: a console block starts with a command after `$ `")
        ends = [*starts[1:], len(self.lines)]
        return [self._command(start, end) for start, end in zip(starts, ends, strict=True)]

    def _command(self, start: int, end: int) -> Command:
        text, i = [self.lines[start][2:]], start + 1
        while i < end and text[-1].endswith("\\"):
            text.append(self.lines[i])
            i += 1
        while "<<" in text[0] and i < end and self.lines[i].startswith("> "):
            text.append(self.lines[i][2:])
            i += 1
        expected = self.lines[i:end]
        while expected and not expected[-1]:
            expected = expected[:-1]
        return Command("\n".join(text), expected, self.line + 1 + start)


def blocks(page: str) -> Iterator[Block]:
    """Every fenced block of a Markdown page; ValueError where a fence never ends."""
    lines = page.splitlines()
    i = 0
    while i < len(lines):
        opened = _FENCE.match(lines[i])
        if opened is None:
            i += 1
            continue
        indent, ticks = opened["indent"], opened["ticks"]
        end = next((j for j in range(i + 1, len(lines)) if lines[j].strip() == ticks), None)
        if end is None:
            raise ValueError(f"line {i + 1}: the block never ends")
        comment = _COMMENT.match(lines[i - 1]) if i else None
        body = tuple(line.removeprefix(indent) for line in lines[i + 1 : end])
        yield Block(opened["language"], body, comment["how"] if comment else None, i + 1)
        i = end + 1


def bare_machine_commands(page: str) -> list[Command]:
    """The commands that only a bare machine shows to work, in order."""
    found: list[Command] = []
    for block in blocks(page):
        if block.how == BARE_MACHINE:
            found += block.commands()
        elif block.how == WITHOUT_COMPILER:
            if not found:
                raise ValueError(f"line {block.line}: no bare-machine command stands before it")
            found[-1] = replace(found[-1], otherwise=block.lines)
    return found


def difference(expected: Sequence[str], printed: str) -> str | None:
    """What the first deviation is, or None where `printed` is what `expected` shows."""
    lines = [line.rstrip() for line in printed.splitlines()]
    wanted = [line.rstrip() for line in expected]
    if _matches(wanted, lines):
        return None
    for i, line in enumerate(wanted):
        if line.strip() == ANY_LINES:
            break
        if i >= len(lines):
            return f"ends too early; expected next: {line}"
        if not same_line(line, lines[i]):
            return f"line {i + 1}\n  expected: {line}\n  printed:  {lines[i]}"
    return "the lines after … do not follow\n" + "\n".join(f"  | {line}" for line in lines)


def _matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    # reachable[j]: the expected lines so far can end right before printed line j.
    reachable = [True] + [False] * len(printed)
    for line in expected:
        if line.strip() == ANY_LINES:
            first = reachable.index(True) if True in reachable else len(reachable)
            reachable = [j >= first for j in range(len(reachable))]
        else:
            reachable = [False] + [
                reachable[j] and same_line(line, text) for j, text in enumerate(printed)
            ]
    return reachable[-1]


def same_line(expected: str, printed: str) -> bool:
    """Whether a printed line is the expected one, `~n` being any number near n."""
    pattern, position, about = "", 0, []
    for found in _ABOUT.finditer(expected):
        before, number, after = found.groups()
        pattern += _exactly(expected[position : found.start()])
        pattern += f"{' +' if before else ' *'}~?({_NUMBER}){' +' if after else ' *'}"
        about.append(number)
        position = found.end()
    matched = re.fullmatch(pattern + _exactly(expected[position:]), printed)
    return matched is not None and all(map(_near, about, matched.groups()))


def _exactly(text: str) -> str:
    return f"(?:{'|'.join(LEVELS)})".join(map(re.escape, text.split(SHOWN_LEVEL)))


def _near(expected: str, printed: str) -> bool:
    # A figure that rounds to zero counts as one unit of its last decimal.
    unit = 10.0 ** -max(len(text.partition(".")[2]) for text in (expected, printed))
    low, high = sorted(max(float(text.replace(",", "")), unit) for text in (expected, printed))
    return high <= low * FACTOR


def _main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["commands", page]:
            for command in bare_machine_commands(Path(page).read_text("utf-8")):
                sys.stdout.write(command.text + "\0")
            return 0
        case ["check", page, number, output]:
            commands = bare_machine_commands(Path(page).read_text("utf-8"))
            command = commands[int(number) - 1]
            deviation = command.deviation(Path(output).read_text("utf-8"))
            if deviation is not None:
                print(f"{page}, line {command.line}: {deviation}", file=sys.stderr)
            return 0 if deviation is None else 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
