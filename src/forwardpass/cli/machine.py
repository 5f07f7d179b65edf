"""`forwardpass machine`: what this machine lets passes use, and with `--measure` how fast it is.

With `--list` the machines that `plan` knows.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forwardpass.backends.levels import Cpu, level_by_kernel, native_report
from forwardpass.backends.threads import set_threads, threads_in_force, usable_cores
from forwardpass.cli.account import plural
from forwardpass.cli.console import as_json, columns, data, patience
from forwardpass.cli.options import Json
from forwardpass.errors import RequestError
from forwardpass.memory import available_memory, total_memory
from forwardpass.units import short, size
from forwardpass.work.machine import cpu_name
from forwardpass.work.machines import known_machines, listed


def command(
    measure: Annotated[
        bool, typer.Option("--measure", help="also measure the rates of reading and of products")
    ] = False,
    list_known: Annotated[
        bool, typer.Option("--list", help="show the machines that plan knows instead of this one")
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", help="threads of matrix products")
    ] = None,
    json: Json = False,
) -> None:
    """Shows instruction-set level, cores, memory, caches and build; with --measure, the rates."""
    if list_known:
        if measure or threads is not None:
            raise RequestError("--list shows what is known of other machines and measures nothing")
        _list(json)
        return
    if threads is not None:
        set_threads(threads)
    found = described(measure)
    if json:
        as_json(found)
        return
    for line in columns(_rows(found), "<<"):
        data(line)


def _list(json: bool) -> None:
    """The catalogue: of each machine the vendor's figures, and where they stand."""
    if json:
        as_json({"machines": [known.as_dict() for known in known_machines()]})
    else:
        data("\n".join(listed(known_machines())))


def described(measure: bool) -> dict[str, Any]:
    """The keys of `machine --json`; what the system does not say is null."""
    # NumPy is loaded before its threads are counted: only then does its library answer.
    blas = _blas()
    report = native_report()
    found: dict[str, Any] = {
        "cpu": cpu_name(),
        "level": report.level if report.available else level_by_kernel(),
        "cores": usable_cores(),
        "memory": {"total": total_memory(), "available": available_memory()},
        "caches": _caches(report.cpu),
        "extension": {"built": report.available, "reason": report.reason},
        "backend": "native" if report.available else "reference",
        "blas": {**blas, "threads": threads_in_force()},
        "measured": None,
    }
    if measure:
        with patience("measuring"):
            found["measured"] = _measured(report.available)
    return found


def _measured(native: bool) -> dict[str, object]:
    from forwardpass.backends.ceilings import native_read_rate, product_rate, read_rates

    source = "measured through NumPy in float32"
    if native:
        one, all_threads = native_read_rate(1), native_read_rate(usable_cores())
        source = "reads measured by plain vector loads, products through NumPy in float32"
    else:
        one, all_threads = read_rates(threads_in_force())
    return {
        "bytes_per_second": all_threads,
        "bytes_per_second_one_thread": one,
        "flop_per_second": product_rate(),
        "source": source,
    }


def _blas() -> dict[str, object]:
    """The library behind NumPy's products, as NumPy says it was built."""
    import numpy as np

    built: Any = np.show_config(mode="dicts")
    named = built.get("Build Dependencies", {}).get("blas", {})
    return {
        "numpy": np.__version__,
        "name": named.get("name"),
        "version": named.get("version"),
    }


def _caches(cpu: Cpu | None) -> dict[str, int | None]:
    """Bytes of the caches as one core sees them."""
    from forwardpass.backends.caches import caches

    if cpu is None:
        return caches()
    return {"l1d": cpu.l1d or None, "l2": cpu.l2 or None, "l3": cpu.l3 or None}


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    memory, extension, blas = found["memory"], found["extension"], found["blas"]
    caches = [
        f"{name.upper()} {size(count, 0)}" for name, count in found["caches"].items() if count
    ]
    rows = [
        ("processor", found["cpu"]),
        ("level", found["level"] or "unknown"),
        ("cores", f"{found['cores']} that this process may use"),
        ("memory", _memory(memory)),
        ("caches", " · ".join(caches) or "unknown"),
        ("C++ part", "built" if extension["built"] else f"not here: {extension['reason']}"),
        ("backend", found["backend"] if extension["built"] else "reference (NumPy)"),
        ("products", _products(blas)),
    ]
    rates = found["measured"]
    if rates is None:
        rows.append(("rates", "not measured; --measure takes about a second"))
        return rows
    one = short(rates["bytes_per_second_one_thread"], "B/s", 1)
    rows.append(("reads", f"{short(rates['bytes_per_second'], 'B/s', 1)}, one thread {one}"))
    rows.append(("multiplies", f"{short(rates['flop_per_second'], 'FLOP/s', 1)} in float32"))
    return rows


def _products(blas: dict[str, Any]) -> str:
    named = " ".join(filter(None, (blas["name"] or "unknown BLAS", blas["version"])))
    return f"NumPy {blas['numpy']}, {named}, {plural(blas['threads'], 'thread')}"


def _memory(memory: dict[str, int | None]) -> str:
    total, available = memory["total"], memory["available"]
    if total is None or available is None:
        return "unknown"
    return f"{size(total)}, {size(available)} of it available to this process"
