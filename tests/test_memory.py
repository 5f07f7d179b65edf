"""Memory that is left, read from files of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from forwardpass.errors import WeightsError
from forwardpass.memory import available_memory, require_memory

GIB = 2**30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


MEMINFO = {"proc/meminfo": "MemTotal:  8388608 kB\nMemAvailable:  4194304 kB\n"}


def test_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    assert available_memory(tree(tmp_path, MEMINFO)) == 4 * GIB


def test_nobody_says_how_much_memory_there_is(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None


def test_the_tightest_control_group_around_the_process_counts(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": "5\n",
            "sys/fs/cgroup/outer/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{GIB}\n",
            "sys/fs/cgroup/outer/memory.stat": f"anon 7\ninactive_file {GIB // 2}\n",
        },
    )
    assert available_memory(root) == 2 * GIB - GIB // 2


def test_a_group_of_the_older_kind_counts_where_only_the_outer_folder_is_seen(
    tmp_path: Path,
) -> None:
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/not/seen/from/here\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {GIB}\n",
        },
    )
    assert available_memory(root) == 0


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    there = available_memory()
    if there is None:
        require_memory(2**80, "weights")  # nobody can say that it does not fit
        return
    require_memory(1, "weights")
    with pytest.raises(
        WeightsError, match=r"^weights need 1000\.0 PB, \S+ .*B of memory are avail"
    ):
        require_memory(10**18, "weights")
