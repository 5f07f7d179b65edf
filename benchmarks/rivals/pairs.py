"""Runs of two engines in turn, and the medians of the ratios of the pairs.

A shared machine's speed drifts by more than most differences, so a run is compared with the one
beside it only, and a pair in which another process took the processor is dropped and counted.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

Prompts = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Sample:
    """One engine's run: `tokens` in `seconds`, and `others`, the share that others took in it.

    `parts` are seconds of what the run consists of; `own` is the rate by the engine's own clocks.
    """

    tokens: int
    seconds: float
    others: float
    own: float | None = None
    parts: Mapping[str, float] | None = None

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Pair:
    """Two runs on the same prompts, one right after the other."""

    first: Sample
    second: Sample

    @property
    def ratio(self) -> float:
        """How many times faster the first was."""
        return self.first.rate / self.second.rate

    def quiet(self, limit: float) -> bool:
        """Whether others took at most `limit` of the machine, 0 to 1, in either run."""
        return max(self.first.others, self.second.others) <= limit


@dataclass(frozen=True)
class Spread:
    """The median of some values, what the middle half of them spans, and the extremes."""

    median: float
    quarters: tuple[float, float]
    extremes: tuple[float, float]

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """The spread of one value or more; quartiles are interpolated between values.

        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(median=2.0, quarters=(1.5, 2.5), extremes=(1.0, 3.0))
        """
        low, middle, high = (
            statistics.quantiles(values, n=4, method="inclusive") if values[1:] else 3 * [values[0]]
        )
        return Spread(middle, (low, high), (min(values), max(values)))


def interleave(
    first: Callable[[Prompts], Sample],
    second: Callable[[Prompts], Sample],
    draw: Callable[[], Prompts],
    *,
    wanted: int,
    limit: float,
    most: int,
) -> list[Pair]:
    """Pairs A B A B …, each on prompts of its own, until `wanted` are quiet or `most` were run."""
    pairs: list[Pair] = []
    while len(pairs) < most and sum(pair.quiet(limit) for pair in pairs) < wanted:
        prompts = draw()
        pairs.append(Pair(first(prompts), second(prompts)))
    return pairs


def summary(pairs: Sequence[Pair], limit: float) -> dict[str, object]:
    """What the results hold of one measure: counts, medians, spreads, and every sample.

    `ratio` is None where no pair was quiet; `ratio_of_all` counts the dropped ones too and is for
    nothing but to see what dropping did. Each pair's `kept` says whether it counts.
    """
    kept = [pair for pair in pairs if pair.quiet(limit)]
    found: dict[str, object] = {
        "kept": len(kept),
        "dropped": len(pairs) - len(kept),
        "ratio": None,
        "ratio_of_all": asdict(Spread.of([pair.ratio for pair in pairs])),
    }
    if kept:
        found["ratio"] = asdict(Spread.of([pair.ratio for pair in kept]))
        for side in ("first", "second"):
            runs: list[Sample] = [getattr(pair, side) for pair in kept]
            found[side] = {
                "rate": asdict(Spread.of([run.rate for run in runs])),
                "seconds": statistics.median(run.seconds for run in runs),
                "own_rate": _median([run.own for run in runs]),
                "parts": _parts(runs),
            }
    found["pairs"] = [asdict(pair) | {"kept": pair.quiet(limit)} for pair in pairs]
    return found


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _parts(runs: Sequence[Sample]) -> dict[str, float] | None:
    if runs[0].parts is None:
        return None
    return {
        name: statistics.median(run.parts[name] for run in runs if run.parts is not None)
        for name in runs[0].parts
    }
