"""What a plan assumes, in sentences, and how its times are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from forwardpass.describe import Description
from forwardpass.units import exact, size
from forwardpass.work.layout import wrapped
from forwardpass.work.plan import Plan
from forwardpass.work.plan_memory import CHUNK
from forwardpass.work.plan_price import significant

_FEW = 20  # passes of which a single one shows
_WORDS = re.compile(r" (?!(?:m?s|[kMGT]?B|%)\b)")  # a number and its unit stay together


def notes(plans: Sequence[Plan], description: Description) -> list[str]:
    """What was assumed, for all plans together."""
    found = [*_read_note(plans, description)]
    found.append(
        f"Work: values alive at once in a chunk of {CHUNK:,} prompt tokens, 2 bytes each; scores "
        "of attention are not stored. GB is 10⁹ bytes; what system and driver take is not counted."
    )
    mixes = sorted({plan.dtype for plan in plans if plan.estimated})
    if mixes:
        found.append(
            f"~ in {', '.join(mixes)}: by llama.cpp's rules for each table; "
            "a publisher's may differ."
        )
    if description.quantization and description.file is None:
        found.append(f"The checkpoint is {description.quantization}; its files say how many bytes.")
    longest, positions = plans[0].request.tokens, description.config.max_position_embeddings
    if longest > positions:
        found.append(
            f"{exact(longest)} tokens are beyond the {exact(positions)} positions of the config."
        )
    if any(plan.fits is not False for plan in plans):
        found += [*_rate_notes(plans), _floors(plans, description)]
    return [line for text in found for line in wrapped(_WORDS.split(text), " ", "  ")]


def _read_note(plans: Sequence[Plan], description: Description) -> Iterator[str]:
    """Which part of the weights a pass reads, where it is not all of them."""
    plan = plans[0]
    unread, rate = plan.memory.weights - plan.read_weights, plan.machine.read_rate_together
    if len(plans) > 1 or rate is None or plan.fits is False or unread * 1_000 < plan.memory.weights:
        return
    read, whole, answer = plan.read_weights, plan.memory.weights, plan.request.answer
    why = ["the embedding is looked up"] * bool(description.graph.embedding_only)
    if any("expert" in node.op.name for node in description.graph.nodes):
        why.append("experts that are not chosen are not read")
    whose = "A token reads" if plan.request.concurrency == 1 else "A pass reads"
    times = "That" if answer == 1 else f"{exact(answer)} times that"
    yield (
        f"{whose} {size(read, 2)} of the weights, not {size(whole, 2)}: {', '.join(why)}. "
        f"{times} takes {seconds(answer * read / rate)} without the cache; "
        f"with all the weights {seconds(answer * whole / rate)}."
    )


def _rate_notes(plans: Sequence[Plan]) -> Iterator[str]:
    """At which rate products are counted, and which pass is counted twice."""
    types = sorted({plan.machine.flop_type for plan in plans if plan.machine.flop_type})
    if any(plan.dtype not in kind for plan in plans for kind in types):
        yield f"Products count at the rate of {' or '.join(types)}, whatever the weights' type."
    if plans[0].request.answer < _FEW:
        yield "The answer's first pass is the prompt's last row: it counts with both."


def _floors(plans: Sequence[Plan], description: Description) -> str:
    machine = plans[0].machine
    whose = {plan.machine.figures for plan in plans}
    random = "" if description.weights is not None else " --weights random"
    bench = f"`forwardpass bench {description.label}{random}`"
    if whose == {"measured"}:
        how = f"measured just now ({machine.source})"
        return f"These are floors from ceilings {how}; {bench} measures the model itself."
    text = "These are floors from the vendor's figures." * (whose == {"vendor"})
    text = f"{text or 'These are floors.'} Measured machines reach 40 to 90 % of them; "
    if all(plan.machine.computes for plan in plans):
        return f"{text}{bench} on the machine itself replaces them by measurements."
    return f"{text}a measurement on the machine itself replaces them (`bench`: on processors)."


def seconds(value: float) -> str:
    """Seconds, or milliseconds below a tenth of one.

    >>> seconds(1.4875), seconds(0.0049583), seconds(754.2)
    ('1.49 s', '4.96 ms', '754 s')
    """
    if value >= 0.1:
        return f"{value:,.0f} s" if value >= 100 else f"{value:.2f} s"
    return f"{significant(1e3 * value, 3)} ms"


def per_second(rate: float) -> str:
    """A rate, with a decimal only where it is small."""
    return f"{rate:,.0f}" if rate >= 10 else significant(rate)
