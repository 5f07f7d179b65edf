"""`Entry`: a value of a JSON file that nobody vouches for, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from forwardpass.errors import FormatError, did_you_mean
from forwardpass.sampling.ranges import shown


@dataclass(frozen=True, slots=True)
class Entry:
    """A value as JSON reads it, the file and its place there. Every method raises FormatError,
    naming both."""

    value: object
    file: str
    path: str = ""

    @property
    def where(self) -> str:
        """What an error begins with."""
        return f"{self.file}: {self.path}" if self.path else self.file

    def _inside(self, value: object, path: str) -> Entry:
        return Entry(value, self.file, path)

    def refuse(self, wanted: str) -> NoReturn:
        raise FormatError(f"{self.where} = {shown(self.value)}: wanted {wanted}")

    def members(self) -> dict[str, Entry]:
        """The values of an object, by key."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        before = f"{self.path}." if self.path else ""
        return {key: self._inside(value, f"{before}{key:.60}") for key, value in self.value.items()}

    def having(self, *names: str) -> dict[str, Entry]:
        """The values of an object that has these keys and no others."""
        found = self.members()
        for name in found:
            if name not in names:
                near = did_you_mean(name, names) if len(name) < 60 else ""
                raise FormatError(f"{self.where}: no key is called {name!r:.60}{near}")
        for name in names:
            if name not in found:
                raise FormatError(f"{self.where}: {name} is missing")
        return found

    def values(self) -> list[object]:
        if not isinstance(self.value, list):
            self.refuse("a list")
        return self.value

    def items(self) -> Iterator[Entry]:
        """The values of a list."""
        for place, value in enumerate(self.values()):
            yield self._inside(value, f"{self.path}[{place}]")

    def text(self) -> str:
        """A text that can be written: no half of a surrogate pair."""
        if not isinstance(self.value, str):
            self.refuse("a text")
        try:
            self.value.encode()
        except UnicodeEncodeError:
            self.refuse("a text without half a surrogate pair")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.refuse("true or false")
        return self.value

    def whole(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        if type(self.value) is not int or not low <= self.value <= high:
            self.refuse(f"a whole number from {low:,} to {high:,}")
        return self.value

    def real(self, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(f"a number from {low:g} to {high:g}")
        if not low <= value <= high:
            self.refuse(f"a number from {low:g} to {high:g}")
        return float(value)

    def logprob(self) -> float:
        """A log probability, null for one of a token that cannot come."""
        # a probability of 1 may come out above it by rounding
        return -math.inf if self.value is None else self.real(-1e300, 1e-6)

    def ids(self, vocabulary: int) -> npt.NDArray[np.int64]:
        """A list of token ids."""
        values = self.values()
        for place, value in enumerate(values):
            if type(value) is not int or not 0 <= value < vocabulary:
                self._token(place, value, vocabulary)
        return np.array(values, dtype=np.int64)

    def id(self, vocabulary: int) -> int:
        """A token id."""
        return self.whole(0, vocabulary - 1)

    def floats(self) -> npt.NDArray[np.float32]:
        """A list of float32 values, none of them infinite."""
        values = self.values()
        for place, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int | float):
                self._inside(value, f"{self.path}[{place}]").refuse("a number")
        with np.errstate(over="ignore"):
            found = np.array(values, dtype=np.float64).astype(np.float32)
        if not np.isfinite(found).all():
            raise FormatError(f"{self.where}: a number beyond every float32")
        return found

    def _token(self, place: int, value: object, vocabulary: int) -> NoReturn:
        self._inside(value, f"{self.path}[{place}]").refuse(
            f"a token id from 0 to {vocabulary - 1:,}"
        )
