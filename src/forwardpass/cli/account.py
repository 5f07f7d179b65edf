"""The account of an answer in words: its work, how its tokens were chosen, and on what it ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from forwardpass.cli.console import cells
from forwardpass.sampling.rules import ADJUSTING
from forwardpass.units import exact, short, size

if TYPE_CHECKING:
    from forwardpass.answer import Answer
    from forwardpass.engine.account import Account, Experts
    from forwardpass.model import Generation, Model
    from forwardpass.sampling.settings import SamplingSettings

# Settings with the values at which they do nothing: those that act on scores, whatever is made
# of them, and those that only a draw looks at.
_ON_SCORES = {
    "logit_bias": (),
    "repetition_penalty": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "dry_multiplier": 0,
}
_ON_DRAWS = {
    "temperature": None,
    "top_n_sigma": 0,
    "top_k": 0,
    "typical_p": 1,
    "top_p": 1,
    "min_p": 0,
    "xtc_probability": 0,
    "seed": None,
    "sampler": "default",
    "stages": None,
}
# How those act, told where they do.
_DETAILS = {
    "repetition_penalty": ("penalty_last_n",),
    "frequency_penalty": ("penalty_last_n",),
    "presence_penalty": ("penalty_last_n",),
    "dry_multiplier": (
        "dry_base",
        "dry_allowed_length",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
    ),
    "xtc_probability": ("xtc_threshold",),
}

# Columns of a line of settings, and how many they may take together before they are broken up.
BROKEN_AT = 100
ONE_LINE = 130

_WHY_GREEDY = {
    "request": "temperature 0 in the request",
    "model file": "the model file says so",
    "engine default": "neither the request nor the model file sets sampling",
}


def account_lines(going: Generation) -> list[str]:
    """The account of one answer as far as it has come."""
    answer = going.answer()
    lines = [*work_lines(answer, share_of_bound(going)), *limit_lines(going, answer)]
    lines += shape_lines(answer)
    return [*lines, *run_lines(going.model, answer.sampling)]


def work_lines(answer: Answer, share: float | None = None) -> Iterator[str]:
    """Passes, FLOP, bytes, tokens and seconds; `share`: of what memory allows, in decode."""
    work, prompt = answer.work, plural(answer.usage.prompt_tokens, "token")
    yield f"{work_words(work)} · prompt {prompt} in {work.seconds_prefill:.2f} s"
    if work.experts is not None:
        yield experts_words(work.experts)
    more = answer.usage.completion_tokens - 1
    if more > 0 and work.seconds_decode > 0:
        rate = more / work.seconds_decode
        yield f"{exact(more)} more {'token' if more == 1 else 'tokens'} in " + (
            f"{work.seconds_decode:.2f} s, {rate:.1f} a second"
            + ("" if share is None else f", {100 * share:.0f} % of what this memory allows")
        )


def share_of_bound(going: Generation) -> float | None:
    """Bytes that decoding read a second, as a part of what this memory gives; None if unknown.

    The rate is measured now, which takes a few tenths of a second, and only beside the native
    backend: what NumPy takes is no matter of memory.
    """
    decoded = [done for done in going.sequence.passes if not done.prompt]
    backend = going.model.runner.backend
    if backend.name != "native" or not decoded:
        return None
    from forwardpass.backends.ceilings import native_read_rate

    work = going.model.account(decoded)
    bytes_a_second = (work.weight_bytes + work.cache_bytes) / work.seconds_decode
    return bytes_a_second / native_read_rate(backend.threads)


def work_words(work: Account) -> str:
    """Passes, FLOP and bytes."""
    passes = plural(work.passes, "pass", "passes")
    return f"{passes} · {short(work.flop, 'FLOP')} · {size(work.weight_bytes, 2)} of weights read"


def experts_words(experts: Experts) -> str:
    """How many different experts a layer read in a pass, and how many are to be expected."""
    read, expected = experts.read / experts.passes, experts.expected / experts.passes
    return (
        f"experts read: {read:.1f} of {exact(experts.of)} a layer and pass, {expected:.1f} expected"
    )


def limit_lines(going: Generation, answer: Answer) -> Iterator[str]:
    """Which limit ended the answer, where one did."""
    if answer.finish_reason != "length":
        return
    tokens = plural(answer.usage.completion_tokens, "token")
    if answer.shape is not None and answer.shape.closed_by_budget:
        yield f"closed after {tokens}, as no more were left (--max-tokens, --context)"
        return
    if answer.usage.completion_tokens < going.max_tokens:
        full = f"the context of {exact(going.model.runner.context)} is full"
        yield f"stopped after {tokens}: {full} (--context)"
    else:
        yield f"stopped after {tokens}, the most allowed (--max-tokens)"


def shape_lines(answer: Answer) -> Iterator[str]:
    """What the grammar of the answer did, where there was one."""
    shape = answer.shape
    if shape is None:
        return
    tokens = plural(shape.steps, "token")
    whole = "in shape" if shape.complete else "not whole"
    passes = exact(shape.steps - shape.forced)
    runs = f", {exact(shape.forced)} of them in forced runs: {passes} passes for the answer"
    forced = runs if shape.forced else ""
    most = f"at most {_share(shape.most_removed)} at token {shape.most_removed_at}"
    mask = f"the mask took {_share(shape.mean_removed)} of the probability, {most}"
    yield f"{whole} · {tokens}{forced} · {mask}"
    yield from (f"not enforced: {warning}" for warning in shape.warnings)


def _share(part: float) -> str:
    return "<0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def run_lines(model: Model, sampling: SamplingSettings) -> Iterator[str]:
    """How tokens were chosen, and on what the passes ran."""
    backend = model.runner.backend
    threads = plural(backend.threads, "thread")
    yield sampling_words(sampling, tail=f" · {backend.words}, {threads}")
    if unused := sampling.without_effect():
        yield f"without effect where the choice is greedy: {', '.join(map(_option, unused))}"
    yield from switch_lines(sampling)
    yield from engine_lines(model)


def engine_lines(model: Model) -> Iterator[str]:
    """What is special about how the model was loaded and is computed."""
    for key, value in model.description.config.accepted_unknown:
        yield f"loaded without {key} = {value!r:.60} (--accept-unknown)"
    yield from model.notes


def switch_lines(sampling: SamplingSettings) -> Iterator[str]:
    """Which settings the request made whose main switch is off, where there are any."""
    unused = sampling.without_switch()
    words = [f"{_option(name)} ({_are_off(switches)})" for name, switches in unused.items()]
    if words:
        yield f"without effect: {', '.join(words)}"


def _are_off(names: Sequence[str]) -> str:
    *others, last = map(_option, names)
    return f"{', '.join(others)} and {last} are off" if others else f"{last} is off"


def sampling_words(sampling: SamplingSettings, *more: str, tail: str = "") -> str:
    """The settings that are in force, each with its source, and what else is told among them.

    In one line, or where that takes more than ONE_LINE columns in lines of BROKEN_AT, broken behind
    commas; `tail` ends the last one.
    """
    parts = [[f"greedy ({_WHY_GREEDY[sampling.temperature.source]})"]] if sampling.greedy else []
    acting = _ON_SCORES if sampling.greedy else _ON_DRAWS | _ON_SCORES
    in_force = [name for name, off in acting.items() if getattr(sampling, name).value != off]
    details = dict.fromkeys(detail for name in in_force for detail in _DETAILS.get(name, ()))
    stated = [name for name in details if getattr(sampling, name).source != "engine default"]
    for name in (*in_force, *stated):
        setting = getattr(sampling, name)
        first, *others = _values(name, setting.value)
        parts.append([f"{_option(name)} {first}", *others])
        parts[-1][-1] += f" ({setting.source})"
    return _broken([*parts, *([word] for word in more)], tail)


def _broken(parts: Sequence[Sequence[str]], tail: str) -> str:
    """Parts, each of one value or several, as a text with its commas; `sampling_words` says how."""
    whole = ", ".join(",".join(values) for values in parts)
    if cells(whole) <= ONE_LINE:
        return whole + tail
    pieces: list[str] = []
    for *values, last in parts:
        pieces += [*(f"{value}," for value in values), f"{last}, "]
    pieces[-1] = pieces[-1].removesuffix(", ") + tail
    lines = [""]
    for piece in pieces:
        if lines[-1] and cells(f"{lines[-1]}{piece}".rstrip()) > BROKEN_AT:
            lines.append("  ")
        lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines)


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 pass`, `11 passes`."""
    return f"{exact(count)} {one if count == 1 else many or one + 's'}"


def _values(name: str, value: object) -> list[str]:
    """A setting's value as it is shown, a list of texts one by one.

    Stages that adjust scores go unsaid where they are all there in their own order, as they are
    whenever nobody names one.
    """
    if name == "stages" and isinstance(value, tuple) and value[: len(ADJUSTING)] == ADJUSTING:
        value = value[len(ADJUSTING) :]
    if isinstance(value, tuple) and all(isinstance(item, str) for item in value):
        return [item if item.isidentifier() else repr(item) for item in value] or ["none"]
    if isinstance(value, tuple):
        return [f"of {plural(len(value), 'token')}"]
    return [f"{value:g}" if isinstance(value, float) else str(value)]


def _option(name: str) -> str:
    return name.replace("_", "-")
