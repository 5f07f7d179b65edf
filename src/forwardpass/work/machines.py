"""Machines that a plan can be made for: the catalogue, described ones, several of a kind.

    h100                         one of the catalogue (work/machines.toml)
    2xh100                       two of them: memory and rates add up
    m4-max,48GB                  one of the catalogue with another memory
    80GB,3.35TB/s,989TFLOP/s     any machine: memory, bytes read and FLOP a second, in any order

GB is 10⁹ bytes, also where a vendor states a device's memory; GiB is taken as written.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from forwardpass.errors import RequestError, did_you_mean
from forwardpass.units import short

HERE = "here"
CATALOGUE = Path(__file__).with_name("machines.toml")
LIST = "forwardpass machine --list shows those that are known"
EXAMPLE = "a described one looks like 80GB,3.35TB/s,989TFLOP/s"
MOST_DEVICES = 1_024

_COUNTED = re.compile(r"(?P<count>\d{1,6})\s*[x×*]\s*(?P<rest>.+)", re.DOTALL | re.ASCII)
_QUANTITY = re.compile(
    r"(?P<number>\d{1,12}(?:\.\d{1,12})?)\s*(?P<prefix>[kKMGTP]?)(?P<binary>i?)"
    r"(?P<unit>B/s|B|FLOP/?[sS]|flop/?s)",
    re.ASCII,
)
_PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_CHANNEL_BYTES = 8


@dataclass(frozen=True)
class Known:
    """`count` devices of one kind, and what each can do at most; what nobody states is None.

    `memory`: bytes. `read_rate`: bytes a second. `flop_rate`: FLOP a second of products in
    `flop_type`. `figures` says whose they are: `vendor`, `measured` or `given`; `source` where they
    stand. `computes` is whether forwardpass itself can run there: on processors, not on GPUs.
    """

    name: str
    title: str
    memory: float | None
    read_rate: float | None
    flop_rate: float | None
    flop_type: str
    figures: str
    source: str
    also: tuple[str, ...] = ()
    count: int = 1
    computes: bool = False

    @property
    def label(self) -> str:
        """`2xh100`, as it can be typed again."""
        return self.name if self.count == 1 else f"{self.count}x{self.name}"

    @property
    def memory_together(self) -> float | None:
        """Bytes of memory of all devices."""
        return None if self.memory is None else self.count * self.memory

    @property
    def read_rate_together(self) -> float | None:
        """Bytes a second that all devices read."""
        return None if self.read_rate is None else self.count * self.read_rate

    @property
    def flop_rate_together(self) -> float | None:
        """FLOP a second of all devices."""
        return None if self.flop_rate is None else self.count * self.flop_rate

    def times(self, count: int) -> Known:
        """So many of these devices."""
        return replace(self, count=count)

    def as_dict(self) -> dict[str, object]:
        """The keys of a machine in JSON; rates and memory are those of one device."""
        return {
            "name": self.name,
            "title": self.title,
            "count": self.count,
            "memory": None if self.memory is None else int(self.memory),
            "bytes_per_second": self.read_rate,
            "flop_per_second": self.flop_rate,
            "flop_type": self.flop_type,
            "figures": self.figures,
            "source": self.source,
        }


@cache
def known_machines() -> tuple[Known, ...]:
    """The catalogue, in its order."""
    groups = tomllib.loads(CATALOGUE.read_text("utf-8"))["group"]
    return tuple(_entry(group, entry) for group in groups for entry in group["machines"])


def _entry(group: Mapping[str, Any], entry: Mapping[str, Any]) -> Known:
    reads, flop = entry.get("reads"), entry.get("flop")
    if "channels" in entry:
        reads = entry["channels"] * entry["transfers"] * _CHANNEL_BYTES
        flop = entry["cores"] * entry["clock"] * entry["flop_per_cycle"]
    return Known(
        name=entry["name"],
        title=entry["title"],
        memory=entry.get("memory"),
        read_rate=reads,
        flop_rate=flop,
        flop_type=group.get("flop_type", ""),
        figures="vendor",
        source=group["source"],
        also=tuple(entry.get("also", ())),
        computes=group.get("processor", False),
    )


def is_here(text: str) -> bool:
    """Whether a machine's text names the one that this runs on."""
    return text.strip().lower() == HERE


def machine(text: str) -> Known:
    """The machine that `text` names or describes.

    Errors: RequestError for an unknown name, with the nearest, and for a description that says
    nothing, the same twice, or what cannot be.
    """
    counted = _COUNTED.fullmatch(text.strip())
    count, rest = (int(counted["count"]), counted["rest"]) if counted else (1, text)
    if not 1 <= count <= MOST_DEVICES:
        raise RequestError(f'"{text:.60}": wanted 1 to {MOST_DEVICES:,} devices')
    parts = [part.strip() for part in rest.split(",")]
    first = quantity(parts[0])
    found = _by_name(parts[0]) if first is None else _nameless(rest)
    given: dict[str, float] = {}
    for part in parts if first is not None else parts[1:]:
        amount = quantity(part)
        if amount is None:
            raise RequestError(
                f'"{part:.60}" is no memory and no rate of a machine', EXAMPLE, advice=LIST
            )
        if amount[0] in given:
            raise RequestError(f'"{text:.60}" says twice what one thing is: {part}', EXAMPLE)
        given[amount[0]] = amount[1]
    if given and first is None:
        source = f"{found.source}; {', '.join(parts[1:])} as given"
        name, figures = ",".join([found.name, *parts[1:]]), f"{found.figures}, in part given"
        found = replace(found, name=name, figures=figures, source=source)
    return replace(found, count=count, **given)  # type: ignore[arg-type]


def split_machines(text: str) -> list[str]:
    """The machines in a list with commas: an amount belongs to the machine before it.

    Unless that one has such an amount already: then a described machine begins.

    >>> split_machines("h100,m4-max,48GB,80GB,3.35TB/s")
    ['h100', 'm4-max,48GB', '80GB,3.35TB/s']
    """
    found: list[list[str]] = []
    kinds: set[str] = set()
    for part in (part.strip() for part in text.split(",")):
        amount = quantity(part)
        if amount is None or not found or amount[0] in kinds:
            found.append([part])
            counted = _COUNTED.fullmatch(part)
            amount = quantity(counted["rest"]) if counted else amount
            kinds = set() if amount is None else {amount[0]}
        else:
            found[-1].append(part)
            kinds.add(amount[0])
    return [",".join(parts) for parts in found]


def quantity(text: str) -> tuple[str, float] | None:
    """Which field of a machine an amount such as `3.35TB/s` sets, and to what; None if it is none.

    Errors: RequestError for an amount of nothing.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    unit = match["unit"].upper()
    field = {"B": "memory", "B/S": "read_rate"}.get(unit, "flop_rate")
    base = 1024 if match["binary"] else 1000
    value = float(match["number"]) * float(base ** _PREFIXES[match["prefix"].upper()])
    if value <= 0:
        raise RequestError(f'"{text}": a machine needs more than nothing')
    return field, value


def _nameless(text: str) -> Known:
    name = ",".join(part.strip() for part in text.split(","))
    return Known(name, "described machine", None, None, None, "", "given", "as given")


def _by_name(name: str) -> Known:
    names = dict(_names())
    found = names.get(_plain(name))
    if found is None:
        offered = [HERE, *(known.name for known in known_machines())]
        near = did_you_mean(name.strip().lower(), offered)
        raise RequestError(f'there is no machine "{name:.60}"{near}', EXAMPLE, advice=LIST)
    return found


def _names() -> Iterator[tuple[str, Known]]:
    for known in known_machines():
        for name in (known.name, known.title, *known.also):
            yield _plain(name), known


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def listed(machines: Sequence[Known]) -> list[str]:
    """The catalogue as lines: each source, and below it its machines."""
    rows = [
        (
            known.name,
            known.title,
            "-" if known.memory is None else amount(known.memory, "B"),
            "-" if known.read_rate is None else amount(known.read_rate, "B/s"),
            "-" if known.flop_rate is None else amount(known.flop_rate, "FLOP/s"),
            known.flop_type,
            known.figures,
        )
        for known in machines
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines: list[str] = []
    source = ""
    for known, row in zip(machines, rows, strict=True):
        if known.source != source:
            source = known.source
            lines += ["", source] if lines else [source]
        cells = [
            f"{cell:>{width}}" if 2 <= i <= 4 else f"{cell:<{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return lines


def amount(value: float, unit: str, digits: int = 5) -> str:
    """The value with a decimal prefix and at most `digits` digits, none of them an idle zero.

    >>> amount(3.35e12, "B/s"), amount(989e12, "FLOP/s"), amount(80e9, "B")
    ('3.35 TB/s', '989 TFLOP/s', '80 GB')
    """
    number, _, rest = short(value, unit, digits).partition(" ")
    decimals = max(0, digits - len(number.partition(".")[0]))
    number = f"{float(number):.{decimals}f}"
    return f"{number.rstrip('0').rstrip('.') if decimals else number} {rest}"
