"""`plan`: what a model needs and how fast it can be on a machine, from headers alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from forwardpass import hub
from forwardpass.errors import RequestError
from forwardpass.hub.paths import reference_text
from forwardpass.opening import open_headers
from forwardpass.work.machines import HERE, Known, is_here
from forwardpass.work.machines import machine as named_machine
from forwardpass.work.plan import Plan, Request, make_plan
from forwardpass.work.plan_price import price as read_price

if TYPE_CHECKING:
    from collections.abc import Iterator

    from forwardpass.describe import Description


def plan(
    reference: str | os.PathLike[str],
    *,
    machine: str = HERE,
    prompt: int = Request.prompt,
    answer: int = Request.answer,
    concurrency: int = Request.concurrency,
    price: str | None = None,
    dtype: str | None = None,
    kv_type: str = Request.kv_type,
    accept_unknown: Sequence[str] = (),
) -> Plan:
    """Memory, least times and cost of a request; its fields are the keys of `plan --json`.

    `machine`: a name of the catalogue, a description such as `80GB,3.35TB/s,989TFLOP/s`, or `here`,
    which measures this machine. `price`: such as `2.00/h`. `dtype`: the type of the tables, or a
    mix such as `q4_k_m`, instead of the model's own. No weight is read.
    """
    given: dict[str, object] = {"machine": machine, "price": price, "dtype": dtype}
    for name, value in given.items():
        if not isinstance(value, str) and (value is not None or name == "machine"):
            raise RequestError(f"{name} = {value!r:.60}: wanted a text")
    request = Request(prompt, answer, concurrency, kv_type)
    cost = None if price is None else read_price(price)
    with planned(reference_text(reference), accept_unknown) as description:
        return make_plan(description, found_machine(machine), request, dtype, cost)


@contextmanager
def planned(reference: str, accept_unknown: Sequence[str]) -> Iterator[Description]:
    """The description of a model, from its headers alone.

    Errors: RequestError for a file of tensors without a config.
    """
    settings = hub.settings(os.environ)
    with open_headers(reference, settings, accept_unknown=accept_unknown) as opened:
        if opened.description is None:
            raise RequestError(
                f"{opened.label}: a file of tensors alone does not say what model it is",
                advice="put its config.json beside it and name the folder",
            )
        yield opened.description


def found_machine(text: str) -> Known:
    """The machine that a text names, describes, or, where it says `here`, this one, measured."""
    return this_machine() if is_here(text) else named_machine(text)


def this_machine() -> Known:
    """This machine: memory that is available now, and the rates that `machine --measure` measures.

    Takes about a second.
    """
    from forwardpass.backends.levels import missing_reason
    from forwardpass.backends.threads import native_threads
    from forwardpass.memory import available_memory
    from forwardpass.profiling import this_machine as measured

    found = measured(native_threads(None) if missing_reason() is None else None)
    return Known(
        name=HERE,
        title=found.cpu,
        memory=available_memory(),
        read_rate=found.ceilings.read_rate,
        flop_rate=found.ceilings.flop_rate,
        flop_type="f32",
        figures="measured",
        source=found.source,
        computes=True,
    )
