"""The modules that a quantized checkpoint's config names: whole names, parts of them, patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

_NOT_SIMPLE = frozenset("\\[](){}|+?^$")


@dataclass(frozen=True)
class ModuleNames:
    """Names as `modules_to_not_convert` and `ignore` have them.

    An entry names a module, all that is inside it, and, where it is the end of a name, every
    module that is called so. Expressions (`re:.*mlp.*`) are only taken where they say no more
    than `*` does: one out of a file can take longer to match than anybody waits.
    """

    entries: Sequence[str] = ()

    @cached_property
    def _sorted(self) -> tuple[frozenset[str], tuple[str, ...], bool]:
        """Whole names, patterns, and whether there are expressions that are not taken."""
        forms = [_as_pattern(entry) for entry in self.entries]
        plain = frozenset(form for form in forms if form is not None and "*" not in form)
        patterns = tuple(form for form in forms if form is not None and "*" in form)
        return plain, patterns, None in forms

    def include(self, module: str) -> bool:
        """Whether the module is surely meant."""
        names, patterns, _ = self._sorted
        words = module.split(".")
        runs = (
            ".".join(words[first:last])
            for first in range(len(words))
            for last in range(first + 1, len(words) + 1)
        )
        return (bool(names) and any(run in names for run in runs)) or any(
            fnmatchcase(module, form)
            for pattern in patterns
            for form in (pattern, f"{pattern}.*", f"*.{pattern}", f"*.{pattern}.*")
        )

    def may_include(self, module: str) -> bool:
        """Whether any reader could take the module to be meant: a piece of its name is enough."""
        names, patterns, doubt = self._sorted
        return (
            doubt
            or any(name in module for name in names)
            or any(fnmatchcase(module, f"*{pattern}*") for pattern in patterns)
        )


NO_MODULES = ModuleNames()


def _as_pattern(entry: str) -> str | None:
    """The entry with no special sign but `*`; None where that does not say what it says."""
    text = entry.removeprefix("re:").removeprefix("^").removesuffix("$")
    text = text.replace("\\.", "\0").replace(".*", "*").replace("\0", ".")
    return None if _NOT_SIMPLE & set(text) else text
