"""Grammars kept in memory by what they were made from, the least recently used out first.

cache = Compiled()
grammar = cache.schema({"type": "integer"})     # compiled
grammar = cache.schema({"type": "integer"})     # the same object

Refusals are kept too, so that a bad schema sent again costs as little. Nothing is kept on disk:
reading a compiled schema back would cost more than compiling it again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import astuple

from forwardpass.constraint.documents import Dialect, Json
from forwardpass.constraint.grammar import Grammar, Style, compile_schema
from forwardpass.errors import SchemaError

PLAIN = Style()
MOST_GRAMMARS = 128
MOST_BYTES = 512 << 20
_AT_LEAST = 64 << 10  # bytes of any grammar: its tables, plans and forms
_A_LANGUAGE = 2_500  # bytes of one with its moves and the states that stand in it


class Compiled:
    """The cache: at most so many grammars, of at most so many bytes by estimate.

    A grammar grows while it is used, since its states are made when they are first reached. So
    sizes are looked at on every call; one that outgrew a quarter of the cache by itself is made
    anew, and whoever still uses the old one keeps it. Safe to call from several threads, which
    may compile the same schema at once; a grammar itself is moved on by one thread at a time.
    """

    def __init__(self, most: int = MOST_GRAMMARS, most_bytes: int = MOST_BYTES) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.hits = self.misses = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[bytes, Grammar | SchemaError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def size(self) -> int:
        """Bytes of everything that is kept, by estimate."""
        with self._lock:
            return sum(map(size_of, self._kept.values()))

    def schema(
        self, schema: Json, style: Style = PLAIN, default: Dialect = Dialect.DRAFT2020
    ) -> Grammar:
        """The grammar of a schema, compiled where it is not known. Raises SchemaError."""
        return self.get(
            [schema, *astuple(style), int(default)], lambda: compile_schema(schema, style, default)
        )

    def get(self, content: Json, make: Callable[[], Grammar]) -> Grammar:
        """The grammar of a content: JSON that says all that `make` makes it from.

        The order of names in the content counts, since names come in that order in the text.
        """
        try:
            key = digest(content)
        except (RecursionError, TypeError, ValueError):  # no JSON, or nested beyond all limits
            return make()
        with self._lock:
            known = self._kept.get(key)
            if known is not None and 4 * size_of(known) <= self.most_bytes:
                self._kept.move_to_end(key)
                self.hits += 1
            else:
                self.misses += 1
                known = None
        if known is None:
            known = _made(make)
            with self._lock:
                self._kept[key] = known
                self._kept.move_to_end(key)
                self._trim()
        if isinstance(known, SchemaError):
            raise SchemaError(known.problems, unsatisfiable=known.unsatisfiable)
        return known

    def _trim(self) -> None:
        """Let go what was not asked for the longest, until the rest is within both limits."""
        size = sum(map(size_of, self._kept.values()))
        while len(self._kept) > self.most or (size > self.most_bytes and len(self._kept) > 1):
            _, oldest = self._kept.popitem(last=False)
            size -= size_of(oldest)


def digest(content: Json) -> bytes:
    """sha256 of the JSON text of a content."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def size_of(kept: Grammar | SchemaError) -> int:
    """About how many bytes a grammar holds now, or a refusal."""
    if isinstance(kept, SchemaError):
        return sum(len(str(problem)) for problem in kept.problems)
    # The states of numbers are shared by all grammars, so they are no grammar's own.
    return _AT_LEAST + _A_LANGUAGE * kept.machine.languages.size


def _made(make: Callable[[], Grammar]) -> Grammar | SchemaError:
    try:
        return make()
    except SchemaError as error:
        return SchemaError(error.problems, unsatisfiable=error.unsatisfiable)
