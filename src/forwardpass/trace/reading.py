"""A trace from what JSON says. Nobody vouches for it: everything is checked before it is used.

What follows from something else (the text, the stages' values, the number drawn) is compared with
that, so that a trace that was read holds together and can be replayed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from forwardpass.errors import FormatError, ForwardpassError
from forwardpass.sampling.outcome import SHOWN, Left, Outcome, Ranked
from forwardpass.sampling.random import uniform
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.trace.entry import Entry
from forwardpass.trace.form import FORMAT, VERSION, stage_as_dict
from forwardpass.trace.masks import notes_from
from forwardpass.trace.reading_choice import check_choice
from forwardpass.trace.reading_scores import best_scores
from forwardpass.trace.step import FinishReason, Step, StepMask
from forwardpass.trace.tokens import TokenNote
from forwardpass.trace.trace import ModelNote, Trace, mentioned

LARGEST_VOCABULARY = 2**24
_LARGEST = 2**63 - 1
_KEYS = (
    *("format", "version", "program", "model", "prompt", "text", "finish_reason", "ends"),
    *("breakers", "max_tokens", "choice", "sampling", "tokens", "steps"),
)
_STEP_KEYS = (
    *("index", "id", "text", "finish_reason", "taken", "logprob", "sampled_logprob", "drawn"),
    *("drawn_logprob", "drawn_sampled_logprob", "random", "interval", "rank", "masked", "best"),
    *("stages", "after", "wanted"),
)
_STAGE_KEYS = (
    *("name", "value", "source", "acts", "survivors", "mass", "best", "best_probability"),
)  # fmt: skip
# A mass or a probability of 1 may come out a little above it.
_ONE = 1 + 1e-6


def from_dict(shown: Mapping[str, object], where: str = "trace") -> Trace:
    """The trace that `form.as_dict` wrote; `where` begins an error.

    Raises FormatError for what is no trace, a newer version's, and a trace that contradicts
    itself.
    """
    top = Entry(dict(shown), where)
    _check_version(top)
    masked = "masks" in top.members()
    found = top.having(*_KEYS, *(["masks"] if masked else []))
    model = _model(found["model"])
    rows = model.vocabulary
    sampling = _sampling(found["sampling"])
    tokens = _tokens(found["tokens"], rows)
    choice = found["choice"].whole(0, _LARGEST)
    reader = _Steps(rows, sampling, choice, tokens)
    steps = tuple(reader.step(i, entry) for i, entry in enumerate(found["steps"].items()))
    prompt = found["prompt"].having("ids")["ids"].ids(rows).tolist()
    trace = Trace(
        model,
        tuple(prompt),
        tokens,
        _set(found["ends"], rows),
        _set(found["breakers"], rows),
        found["max_tokens"].whole(1, _LARGEST),
        choice,
        sampling,
        steps,
        found["program"].text(),
        notes_from(found["masks"], steps, tokens) if masked else None,
    )
    _check_whole(trace, found)
    return trace


def _check_version(top: Entry) -> None:
    found = top.members()
    kind, version = found.get("format"), found.get("version")
    if kind is None or kind.value != FORMAT:
        raise FormatError(
            f"{top.where}: this is no trace",
            advice="forwardpass explain MODEL PROMPT --trace FILE writes one",
        )
    if version is None:
        raise FormatError(f"{top.where}: version is missing")
    if version.whole(1, _LARGEST) > VERSION:
        raise FormatError(
            f"{top.where}: version {version.value} of the format, and this program reads "
            f"version {VERSION}",
            advice="a newer forwardpass reads it: pip install --upgrade forwardpass",
        )


def _check_whole(trace: Trace, found: Mapping[str, Entry]) -> None:
    """What the trace says twice, and what must be there for each of its tokens."""
    if not trace.prompt:
        found["prompt"].refuse("at least one token")
    if len(trace.steps) > trace.max_tokens:
        found["max_tokens"].refuse(f"at least the {len(trace.steps):,} tokens of steps")
    for name in ("text", "finish_reason"):
        if found[name].value != getattr(trace, name):
            found[name].refuse("what steps say")
    for step in [*found["steps"].items()][:-1]:
        reason = step.members()["finish_reason"]
        if reason.value is not None:
            reason.refuse("null before the last step")
    known = trace.tokens.keys()
    missing = {*trace.prompt, *trace.ends, *mentioned(trace.steps)} - known
    if missing:
        raise FormatError(f"{found['tokens'].where}: token id {min(missing)} is missing")


def _model(entry: Entry) -> ModelNote:
    found = entry.having("label", "architecture", "vocabulary", "backend")
    return ModelNote(
        found["label"].text(),
        found["architecture"].text(),
        found["vocabulary"].whole(1, LARGEST_VOCABULARY),
        found["backend"].text(),
    )


def _sampling(entry: Entry) -> SamplingSettings:
    members = {name: member.value for name, member in entry.members().items()}
    try:
        settings = SamplingSettings.from_dict(members)
    except ForwardpassError as error:
        raise FormatError(f"{entry.file}: {error.fact}") from None
    if settings.seed.value is None and not settings.greedy:
        raise FormatError(f"{entry.where}: seed is null: wanted the one of the draws")
    return settings


def _tokens(entry: Entry, vocabulary: int) -> dict[int, TokenNote]:
    notes: dict[int, TokenNote] = {}
    for key, member in entry.members().items():
        # 20 digits hold every 64-bit id; int() of many more is slow or refused
        token = int(key) if key.isascii() and key.isdigit() and len(key) <= 20 else -1
        if not 0 <= token < vocabulary or str(token) != key:
            raise FormatError(
                f"{entry.where}: {key!r:.60}: wanted a token id from 0 to {vocabulary - 1:,}"
            )
        found = member.having("text", "bytes")
        data = [byte.whole(0, 255) for byte in found["bytes"].items()]
        notes[token] = TokenNote(found["text"].text(), bytes(data))
    return notes


def _set(entry: Entry, vocabulary: int) -> frozenset[int]:
    ids = entry.ids(vocabulary).tolist()
    if ids != sorted(set(ids)):
        raise FormatError(f"{entry.where}: wanted rising token ids, each once")
    return frozenset(ids)


class _Steps:
    """Reads the steps of one trace."""

    def __init__(
        self,
        vocabulary: int,
        sampling: SamplingSettings,
        choice: int,
        tokens: Mapping[int, TokenNote],
    ) -> None:
        self.vocabulary, self.sampling, self.choice = vocabulary, sampling, choice
        self.tokens = tokens

    def step(self, index: int, entry: Entry) -> Step:
        found = entry.having(*_STEP_KEYS, *(["held"] if "held" in entry.members() else []))
        found["index"].whole(index, index)
        outcome = self._outcome(index, found)
        token, taken = found["id"].id(self.vocabulary), found["taken"].flag()
        if token not in self.tokens:
            found["id"].refuse("a token that tokens explain")
        logprob, sampled = found["logprob"].logprob(), found["sampled_logprob"].logprob()
        drawn = (outcome.token, outcome.logprob, outcome.sampled_logprob)
        mask, forced = _held(found["held"], outcome) if "held" in found else (None, False)
        apart = taken or (forced and token != outcome.token)
        if not apart and (token, logprob, sampled) != drawn:
            raise FormatError(f"{entry.where}: not the token that was drawn, and taken is false")
        if taken and token == outcome.token:
            found["taken"].refuse("false where id is the token that was drawn")
        return Step(
            index,
            token,
            found["text"].text(),
            self.tokens[token].bytes,
            logprob,
            sampled,
            None if apart else outcome.random,
            _finish_reason(found["finish_reason"]),
            taken,
            outcome,
            mask,
            forced,
        )

    def _random(self, index: int, entry: Entry) -> float | None:
        seed = self.sampling.seed.value
        wanted = None
        if not self.sampling.greedy and seed is not None:
            wanted = uniform(seed, self.choice, index)
        if entry.value != wanted or isinstance(entry.value, bool):
            entry.refuse("null" if wanted is None else f"{wanted}, by seed, choice and place")
        return wanted

    def _outcome(self, index: int, found: Mapping[str, Entry]) -> Outcome:
        rows, greedy = self.vocabulary, self.sampling.greedy
        outcome = Outcome(
            found["drawn"].id(rows),
            self._random(index, found["random"]),
            _interval(found["interval"], greedy),
            found["rank"].whole(1, rows),
            found["drawn_logprob"].real(-1e300, 1e-6),
            found["drawn_sampled_logprob"].real(-1e300, 1e-6),
            best_scores(found["best"], rows),
            self._left(found["stages"]),
            found["masked"].flag(),
            _after(found["after"], rows),
            tuple(_wanted(entry, rows) for entry in found["wanted"].items()),
            self.sampling,
        )
        _check_stages(outcome, found["stages"])
        check_choice(outcome, found)
        return outcome

    def _left(self, entry: Entry) -> tuple[Left, ...]:
        """What the stages left; rescale and draw leave what the others did."""
        greedy = self.sampling.greedy
        order = self.sampling.rules.order
        later = 1 if greedy else len(order) - 1 - order.index("mask")
        entries = list(entry.items())
        if len(entries) != 2 + later + (0 if greedy else 2):
            raise FormatError(f"{entry.where}: {len(entries)} stages, and the settings have others")
        return tuple(self._left_by(stage) for stage in entries[: 2 + later])

    def _left_by(self, entry: Entry) -> Left:
        found = entry.having(*_STAGE_KEYS)
        return Left(
            found["survivors"].whole(1, self.vocabulary),
            found["mass"].real(1e-300, _ONE),
            found["best"].id(self.vocabulary),
            found["best_probability"].real(0, _ONE),
        )


def _held(entry: Entry, outcome: Outcome) -> tuple[StepMask, bool]:
    """What a grammar did to a token, and whether it forced it."""
    if not outcome.masked:
        entry.refuse("no such key where masked is false")
    found = entry.having("forced", "steered")
    left = outcome.left[1]
    removed = max(0.0, 1.0 - left.mass)
    return StepMask(left.survivors, removed, found["steered"].flag()), found["forced"].flag()


def _check_stages(outcome: Outcome, entry: Entry) -> None:
    """That the stages are those of the settings, with their values."""
    for stage, given in zip(outcome.stages, entry.items(), strict=True):
        found = given.having(*_STAGE_KEYS)
        for name, value in stage_as_dict(stage).items():
            if not _same(found[name].value, value):
                found[name].refuse(f"{value!r:.60}, by what the trace says elsewhere")


def _same(given: object, value: object) -> bool:
    if isinstance(value, float) and type(given) in (int, float):
        assert isinstance(given, int | float)
        return math.isclose(given, value, rel_tol=1e-9)
    return type(given) is type(value) and given == value


def _finish_reason(entry: Entry) -> FinishReason | None:
    known: dict[object, FinishReason | None] = {None: None, "stop": "stop", "length": "length"}
    named = entry.value is None or isinstance(entry.value, str)
    if not named or entry.value not in known:
        entry.refuse("stop, length or null")
    return known[entry.value]


def _interval(entry: Entry, greedy: bool) -> tuple[float, float] | None:
    if greedy:
        if entry.value is not None:
            entry.refuse("null where the choice is greedy")
        return None
    ends = [end.real(0, _ONE) for end in entry.items()]
    if len(ends) != 2 or ends[0] > ends[1]:
        entry.refuse("two numbers, the lower one first")
    return ends[0], ends[1]


def _after(entry: Entry, vocabulary: int) -> tuple[Ranked, ...]:
    ranked = []
    for member in entry.items():
        found = member.having("id", "logprob")
        ranked.append(Ranked(found["id"].id(vocabulary), found["logprob"].real(-1e300, 1e-6)))
    if not 1 <= len(ranked) <= SHOWN:
        raise FormatError(f"{entry.where}: {len(ranked):,} tokens: wanted 1 to {SHOWN}")
    return tuple(ranked)


def _wanted(entry: Entry, vocabulary: int) -> tuple[int, float, float]:
    found = entry.having("id", "logprob", "sampled_logprob")
    return (
        found["id"].id(vocabulary),
        found["logprob"].logprob(),
        found["sampled_logprob"].logprob(),
    )
