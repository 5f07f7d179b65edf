"""`forwardpass plan MODEL`: memory, least times and cost on a machine, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated

import typer

from forwardpass.cli.console import as_json, data, patience
from forwardpass.cli.groups import with_groups
from forwardpass.cli.html import HtmlFile, check_page, typed, write_page
from forwardpass.cli.options import AcceptUnknown, Json, KvType, Model
from forwardpass.describe import Description
from forwardpass.errors import RequestError
from forwardpass.planning import found_machine, planned
from forwardpass.work.machines import HERE, split_machines
from forwardpass.work.plan import Plan, Request, make_plan
from forwardpass.work.plan_price import price as read_price
from forwardpass.work.plan_report import report, table
from forwardpass.work.plan_ways import Ways, ways


@dataclass(frozen=True)
class Machines:
    """Where the model is to run, and what that costs."""

    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="NAME|DESCRIPTION",
            help="such as h100, 2xh100, m4-max,48GB, 80GB,3.35TB/s,989TFLOP/s, or here, which "
            "measures this machine (the default); machine --list shows those that are known",
        ),
    ] = None
    machines: Annotated[
        str | None,
        typer.Option("--machines", metavar="A,B,…", help="a table of several machines"),
    ] = None
    price: Annotated[
        str | None,
        typer.Option("--price", metavar="2.00/h", help="of all devices together; also $2/h, 0.1/s"),
    ] = None

    def names(self) -> list[str]:
        """The machines that are asked for: this one, unless another is."""
        if self.machines is None:
            return [HERE if self.machine is None else self.machine]
        if self.machine is not None:
            raise RequestError("--machine and --machines: one of them is enough")
        found = split_machines(self.machines)
        if self.price is not None and len(found) > 1:
            raise RequestError(
                "--price is that of one machine, and --machines names several",
                advice="--machine NAME --price tells the cost on each",
            )
        return found


@dataclass(frozen=True)
class Types:
    """What the weights are stored in."""

    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="TYPE", help="weights in this type or mix of types"),
    ] = None
    quantisations: Annotated[
        str | None,
        typer.Option(
            "--quantisations",
            "--quantizations",
            metavar="A,B,…",
            help="a table of several types: bf16,q8_0,q4_k_m",
        ),
    ] = None

    def names(self) -> list[str | None]:
        """The types that are asked for; None is the model's own."""
        if self.quantisations is None:
            return [self.dtype]
        if self.dtype is not None:
            raise RequestError("--dtype and --quantisations: one of them is enough")
        return [part.strip() for part in self.quantisations.split(",")]


@with_groups
def command(
    context: typer.Context,
    model: Model,
    where: Machines,
    weights: Types,
    prompt: Annotated[
        int, typer.Option("--prompt", metavar="N", help="tokens of the prompt")
    ] = Request.prompt,
    answer: Annotated[
        int, typer.Option("--answer", metavar="N", help="tokens of the answer")
    ] = Request.answer,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", help="so many such requests at once")
    ] = Request.concurrency,
    kv_type: KvType = Request.kv_type,
    accept_unknown: AcceptUnknown = None,
    html: HtmlFile = None,
    json: Json = False,
) -> None:
    """Predicts memory, times and cost on a machine; says what binds, and what would fit."""
    check_page(html)
    request = Request(prompt, answer, concurrency, kv_type)
    price = None if where.price is None else read_price(where.price)
    names, types = where.names(), weights.names()
    many = bool(where.machines or weights.quantisations)
    with planned(model, accept_unknown or ()) as described:
        with patience("measuring"):
            found = [found_machine(name) for name in names]
        plans = [make_plan(described, m, request, t, price) for m, t in product(found, types)]
        out = None
        if not many and plans[0].fits is False:
            out = ways(described, plans[0], types[0])
        if html is not None:
            write_page(html, _page(plans, described, out, many, typed(context)))
        if json:
            as_json({"plans": [plan.as_dict() for plan in plans]} if many else plans[0].as_dict())
        elif many:
            data("\n".join(table(plans, described)))
        else:
            data("\n".join(report(plans[0], described, out)))


def _page(
    plans: list[Plan], described: Description, out: Ways | None, many: bool, line: str
) -> str:
    from forwardpass.pages.plan_page import plan_page, plans_page

    if many:
        return plans_page(plans, described, line)
    return plan_page(plans[0], described, out, line)
