"""A template's form of calls: learned from what it writes, checked, or known by its text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forwardpass.errors import RequestError
from forwardpass.text.calls.form import CallForm, Thinking
from forwardpass.text.calls.known import (
    COUNTED_ID,
    DEFAULT_ID,
    NAMED,
    OVERRULING,
    PLAIN,
    REFUSED,
    STATED,
    THINKING,
    Known,
)
from forwardpass.text.calls.parse import parse_calls
from forwardpass.text.calls.pieces import (
    Arguments,
    CallId,
    Name,
    Piece,
    Pieces,
    Written,
    is_tag,
    literal,
    units,
    written,
)
from forwardpass.text.calls.probe import ANSWER, FIRST, SECOND, Probe, question, reading_of
from forwardpass.text.template import ChatTemplate

_ID = "\ue000"  # stands for an id among units
_SEPARATORS = ((", ", ": "), (",", ":"))
_THIRD = Written("second_probe", '{"beta": ["a \\"b\\" {c}", "ü\\n"]}', "eeeeffff3")


def call_form(template: ChatTemplate, special_tokens: Mapping[str, str] | None = None) -> CallForm:
    """How a model with this template writes its calls, every mark in it a `Literal`.

    `CallForm.bound_to` turns those marks into ids of a tokenizer. The form of a template that
    lists no tools is `prompted`: the one in which it shows calls, else `PLAIN`.
    Errors: RequestError where a template lists tools and writes calls in a way that cannot be
    enforced, or in none that can be told.
    """
    form = (
        _known(template, OVERRULING)
        or _learned(Probe(template, special_tokens or {}))
        or _known(template, STATED)
    )
    if not template.reads("tools"):
        form = replace(form or PLAIN, prompted=True)
    if form is None:
        raise _refusal(template)
    return form if form.thinking else replace(form, thinking=thinking_of(template))


def _known(template: ChatTemplate, table: Sequence[Known]) -> CallForm | None:
    for known in table:
        if all(needle in template.source for needle in known.needles):
            return known.form
    return None


def thinking_of(template: ChatTemplate) -> Thinking | None:
    """What its models put around their reasoning, where the template tells."""
    for pair in THINKING:
        if pair.begin.strip() in template.source and all(
            tag in template.source for tag in units(pair.end) if is_tag(tag)
        ):
            return pair
    return None


def _refusal(template: ChatTemplate) -> RequestError:
    for manner, needles in REFUSED.items():
        if any(needle in template.source for needle in needles):
            return RequestError(
                f"{template.name} writes calls of tools {manner}: this version cannot enforce that",
                advice="--template FILE brings a template that writes calls as JSON",
            )
    return RequestError(
        f"{template.name} takes tools, but how it writes calls of them cannot be told",
        advice="--template FILE brings a template that shows calls in a conversation",
    )


@dataclass(frozen=True, slots=True)
class _Seams:
    """A rendering of calls, cut at names and arguments.

    `opening` ends where the first name begins; `middles` stand between a name and its arguments;
    `seams` between two calls; `closing` after the last; `values` are the arguments as written.
    """

    opening: str
    middles: tuple[str, ...]
    seams: tuple[str, ...]
    closing: str
    values: tuple[str, ...]


def _cut(rendered: str, start: int, calls: Sequence[Written]) -> _Seams | None:
    """The rendering from `start` cut at the calls; None where one's arguments are not JSON."""
    between: list[str] = []
    middles: list[str] = []
    values: list[str] = []
    at = start
    for call in calls:
        name = rendered.find(call.name, at)
        if name < 0:
            return None
        between.append(rendered[at:name].replace(call.id, _ID))
        after = name + len(call.name)
        found = _json_at(rendered, after, json.loads(call.arguments))
        if found is None:
            return None
        middles.append(rendered[after : found[0]].replace(call.id, _ID))
        values.append(rendered[found[0] : found[1]])
        at = found[1]
    closing = rendered[at:]
    for call in calls:  # an id may follow its call's arguments
        closing = closing.replace(call.id, _ID)
        between = [text.replace(call.id, _ID) for text in between]
    return _Seams(between[0], tuple(middles), tuple(between[1:]), closing, tuple(values))


def _json_at(text: str, at: int, value: object) -> tuple[int, int] | None:
    """Where the next JSON object begins and ends, if that is `value`."""
    start = text.find("{", at)
    if start < 0:
        return None
    try:
        found, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (start, end) if found == value else None


def _learned(probe: Probe) -> CallForm | None:
    reading = reading_of(probe.template)
    one = probe.calls([FIRST], reading)
    if one is None:
        return None
    try:
        prompt = probe.render([question()], answer=True)
    except RequestError:
        return None
    start = _shared(prompt, one)
    alone = _cut(one, start, [FIRST])
    two = probe.calls([FIRST, SECOND], reading)
    pair = None if two is None else _cut(two, _shared(prompt, two), [FIRST, SECOND])
    if alone is None or (two is not None and pair is None):
        return None
    if pair is not None and pair.closing != alone.closing:
        return None  # what ends one call does not end two
    thinking = thinking_of(probe.template)
    opening = alone.opening
    if thinking and thinking.end in opening:
        opening = opening.rpartition(thinking.end)[2]
    closing, end = _ending(alone.closing, probe)
    form = _form(opening.lstrip(), alone, pair, closing, end)
    if form is None or (end and form.marker and written(form.marker).startswith(end)):
        return None  # its calls would be turns of their own: the answer has ended before
    form = replace(form, thinking=thinking)
    return form if _holds(form, probe) else None


def _shared(prompt: str, rendered: str) -> int:
    """How far a rendered conversation agrees with the prompt of its last answer, in whole marks."""
    length = 0
    for ours, theirs in zip(units(prompt), units(rendered), strict=False):
        if ours != theirs:
            break
        length += len(ours)
    return length


def _ending(closing: str, probe: Probe) -> tuple[str, str]:
    """What follows the last arguments, without the end of the turn; and the mark that ends it."""
    plain = probe.plain(ANSWER) or ""
    usual = plain.rpartition(ANSWER)[2] if ANSWER in plain else ""
    if closing.endswith(usual):
        marks = [unit for unit in units(usual) if is_tag(unit)]
        return closing[: len(closing) - len(usual)], marks[0] if marks else ""
    parts = units(closing.rstrip())
    if parts and is_tag(parts[-1]):
        return "".join(parts[:-1]), parts[-1]
    return closing, ""


def _form(
    opening: str, alone: _Seams, pair: _Seams | None, closing: str, end: str
) -> CallForm | None:
    """The form whose single call is written as in `alone`, and whose two as in `pair`."""
    before, between, after = "", "", ""
    middle = alone.middles[0]
    first, last = opening, closing
    if pair is not None:
        seam = pair.seams[0]
        middle = _counted(pair.middles)
        last = _common_start(seam, closing)
        first = _common_end(seam[len(last) :], opening)
        before = opening[: len(opening) - len(first)]
        between = seam[len(last) : len(seam) - len(first)]
        after = closing[len(last) :]
    if _ID in before + between + after or (first + middle + last).count(_ID) > 1:
        return None
    if not (before + first).strip():
        return None  # nothing says that a call begins
    whole = before + first
    entry = next((entry for entry in NAMED if whole.startswith(entry.begins)), None)
    pattern = (entry.id_pattern if entry else None) or DEFAULT_ID
    if middle != alone.middles[0]:
        pattern = COUNTED_ID
    call: Pieces = (
        *_with_ids(first, pattern),
        Name(),
        *_with_ids(middle, pattern),
        Arguments(),
        *_with_ids(last, pattern),
    )
    marker = _marker(whole)
    value = alone.values[0]
    fits = [s for s in _SEPARATORS if _dumped(value, s) == value]
    return CallForm(
        name=entry.name if entry else "learned",
        call=call,
        marker=literal(marker),
        before=literal(before),
        between=literal(between),
        after=literal(after),
        parallel=pair is not None,
        text_before=not marker.startswith("{"),  # an object alone is not told from text
        end=(end,) if end else (),
        text=literal(entry.text) if entry else (),
        also=entry.also(call) if entry else (),
        separators=fits[0] if fits else _SEPARATORS[0],
    )


def _dumped(value: str, separators: tuple[str, str]) -> str:
    return json.dumps(json.loads(value), ensure_ascii=False, separators=separators)


def _marker(opening: str) -> str:
    """The first mark of what opens the calls; without one, all of it up to the name or an id."""
    text = opening.partition(_ID)[0]
    parts = units(text)
    return parts[0] if parts and is_tag(parts[0]) else text


def _counted(middles: Sequence[str]) -> str:
    """What stands between name and arguments; a place that counts calls is an id."""
    first, second = middles[0], middles[1]
    if first == second:
        return first
    place = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    return first[:place] + _ID + first[place + 1 :]


def _with_ids(text: str, pattern: str) -> list[Piece]:
    pieces: list[Piece] = []
    for place, part in enumerate(text.split(_ID)):
        if place:
            pieces.append(CallId(pattern))
        pieces += literal(part)
    return pieces


def _common_start(one: str, other: str) -> str:
    shared = []
    for a, b in zip(units(one), units(other), strict=False):
        if a != b:
            break
        shared.append(a)
    return "".join(shared)


def _common_end(one: str, other: str) -> str:
    shared: list[str] = []
    for a, b in zip(reversed(units(one)), reversed(units(other)), strict=False):
        if a != b:
            break
        shared.append(a)
    return "".join(reversed(shared))


def _holds(form: CallForm, probe: Probe) -> bool:
    """Whether the form writes calls that it was not learned from as the template does."""
    reading = reading_of(probe.template)
    lists = [[_THIRD]] + ([[FIRST, _THIRD]] if form.parallel else [])
    for calls in lists:
        rendered = probe.calls(calls, reading)
        counted = CallId(COUNTED_ID) in form.call
        wanted = [replace(c, id=str(i)) if counted else c for i, c in enumerate(calls)]
        read = parse_calls(form, form.write(wanted))
        same = [(c.name, json.loads(c.arguments)) for c in read.calls] == [
            (c.name, json.loads(c.arguments)) for c in calls
        ]
        own = [replace(c, arguments=form.arguments_text(json.loads(c.arguments))) for c in wanted]
        if rendered is None or not same or form.write(own) not in rendered:
            return False
    return True
