"""What one request may set, and what is checked of it before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from forwardpass.errors import RequestError, did_you_mean
from forwardpass.sampling.outcome import KEPT
from forwardpass.sampling.ranges import whole
from forwardpass.text.messages import check_values, is_list

DEFAULT_MAX_TOKENS = 1_024
MOST_LOGPROB_IDS = 1_000


class Options(TypedDict, total=False):
    """What one request may set; names as on the command line and in OpenAI's interface.

    The sampler's settings and their ranges are those of `sampling/ranges.py`; `sampler` is a preset
    of `sampling/rules.py`, `stages` an order of its stages. `logprob_ids` are tokens whose log
    probabilities every step gives; `keep_scores` is how many best scores a step keeps (256);
    `take` names, by the place in the answer, tokens to go on with instead of those drawn there.
    `tools` are in
    OpenAI's or Anthropic's form; `thinking` switches the template's thinking on or off;
    `template_args` sets arguments of the template by name; `control_tokens` lets the names of
    control tokens in the prompt be control tokens; `ignore_model_defaults` leaves the model file's
    sampling values out.

    One of `schema` (a JSON Schema), `json_object` (any object), `regex` (ECMA-262, all of the
    answer), `choice` (texts, one of them) and `lark` (a grammar for llguidance) gives the answer a
    shape. `tool_choice` says whether tools are called, in either interface's form, and
    `parallel_tool_calls` whether several at once. `strict` is for tools that do not say: whether
    their schemas are enforced (True). `key_order` is `schema` or `any`; `constraint` is what
    enforces a schema or regex, `own` or `llguidance`.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    top_n_sigma: float | None
    xtc_probability: float | None
    xtc_threshold: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    penalty_last_n: int | None
    dry_multiplier: float | None
    dry_base: float | None
    dry_allowed_length: int | None
    dry_penalty_last_n: int | None
    dry_sequence_breakers: Sequence[str] | None
    logit_bias: Mapping[int, float] | None
    seed: int | None
    sampler: str | None
    stages: str | Sequence[str] | None
    max_tokens: int | None
    logprob_ids: Sequence[int] | None
    keep_scores: int | None
    take: Mapping[int, int] | None
    schema: Mapping[str, object] | bool | None
    json_object: bool | None
    regex: str | None
    choice: Sequence[str] | None
    lark: str | None
    key_order: str | None
    constraint: str | None
    tools: Sequence[Mapping[str, object]] | None
    tool_choice: str | Mapping[str, object] | None
    parallel_tool_calls: bool | None
    strict: bool | None
    thinking: bool | None
    template_args: Mapping[str, object] | None
    control_tokens: bool
    ignore_model_defaults: bool


_SWITCHES = (
    *("thinking", "control_tokens", "ignore_model_defaults"),
    *("json_object", "parallel_tool_calls", "strict"),
)
SHAPES = ("schema", "json_object", "regex", "choice", "lark")
_OF_TOOLS = ("tool_choice", "parallel_tool_calls", "strict")
ENGINES = ("own", "llguidance")
MOST_CHOICES, MOST_PATTERN = 100_000, 100_000
_OF_TEMPLATES = ("tools", "thinking", "template_args")


def whole_number(name: str, value: object, most: int | None) -> int:
    """`value` as a whole number from 1 to `most`; RequestError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= (most or value):
        upto = " up" if most is None else f" to {most:,}"
        raise RequestError(f"{name} = {value!r:.60}: wanted a whole number from 1{upto}")
    return value


@dataclass(frozen=True)
class Limits:
    """How far an answer may go, and what its steps keep: `Options` with the defaults filled in."""

    max_tokens: int
    wanted: tuple[int, ...] = ()
    kept: int = KEPT
    take: Mapping[int, int] = field(default_factory=dict)


def limits_of(options: Options, vocabulary: int) -> Limits:
    """The limits that checked options state.

    Raises RequestError for a token id outside the vocabulary.
    """
    limit, kept = options.get("max_tokens"), options.get("keep_scores")
    wanted = tuple(int(token) for token in options.get("logprob_ids") or ())
    take = {int(place): int(token) for place, token in (options.get("take") or {}).items()}
    for name, ids in (("logprob_ids", wanted), ("take", tuple(take.values()))):
        for token in ids:
            if not 0 <= token < vocabulary:
                raise RequestError(
                    f"{name}: token id {token} is outside the vocabulary of {vocabulary:,}"
                )
    return Limits(
        DEFAULT_MAX_TOKENS if limit is None else limit,
        wanted,
        KEPT if kept is None else min(kept, vocabulary),
        take,
    )


def check(options: Options) -> None:
    """Refuses an option that there is not, and values that would be taken for something else."""
    known = Options.__annotations__
    for name, value in options.items():
        if name not in known:
            raise RequestError(
                f"there is no option {name!r}{did_you_mean(name, known)}",
                advice=f"the options are {', '.join(known)}",
            )
        if name in _SWITCHES and not (value is None or isinstance(value, bool)):
            raise RequestError(f"{name} = {value!r:.60}: wanted True or False")
    for name in ("max_tokens", "keep_scores"):
        if (limit := options.get(name)) is not None:
            whole_number(name, limit, most=None)
    _check_ids(options.get("logprob_ids"))
    _check_take(options.get("take"))
    tools = options.get("tools")
    if not (tools is None or is_list(tools)):
        raise RequestError(f"tools = {tools!r:.60}: wanted a list of tools")
    _check_shape(options)
    arguments = options.get("template_args")
    if arguments is not None:
        if not _has_names(arguments):
            raise RequestError(f"template_args = {arguments!r:.60}: wanted a mapping from names")
        for name, value in arguments.items():
            check_values(value, f"template_args: {name}")


def shape_named(options: Options) -> str | None:
    """The one option that gives the answer a shape, if any does."""
    return next((name for name in SHAPES if _is_set(options, name)), None)


def _is_set(options: Options, name: str) -> bool:
    value = options.get(name)
    return value is not None and not (name == "json_object" and value is False)


def _check_shape(options: Options) -> None:
    shapes = [name for name in SHAPES if _is_set(options, name)]
    if len(shapes) > 1:
        raise RequestError(f"{shapes[0]} and {shapes[1]} were both given: an answer has one shape")
    tools = bool(options.get("tools"))
    schema = options.get("schema")
    if not (schema is None or isinstance(schema, bool) or _has_names(schema)):
        raise RequestError(f"schema = {schema!r:.60}: wanted an object, True or False")
    for name in ("regex", "lark"):
        text = options.get(name)
        if not (text is None or isinstance(text, str)):
            raise RequestError(f"{name} = {text!r:.60}: wanted a text")
        if text is not None and len(text) > MOST_PATTERN:
            raise RequestError(f"{name}: more than {MOST_PATTERN:,} characters")
    _check_choice(options.get("choice"))
    for name, offered in (("key_order", ("schema", "any")), ("constraint", ENGINES)):
        value = options.get(name)
        if value is not None and value not in offered:
            near = did_you_mean(str(value), offered)
            wanted = " or ".join(offered)
            raise RequestError(f"{name} = {value!r:.60}: wanted {wanted}{near}")
    if options.get("key_order") and not (tools or shapes in (["schema"], ["json_object"])):
        raise RequestError("key_order needs schema or tools: there is no order of keys to keep")
    for name in _OF_TOOLS:
        if options.get(name) not in (None, "none", "auto") and not tools:
            raise RequestError(f"{name} needs tools, and none are given")
    _check_engine(options, shapes, tools)


def _check_engine(options: Options, shapes: Sequence[str], tools: bool) -> None:
    """Refuses what the asked engine does not enforce."""
    engine = options.get("constraint")
    if shapes == ["lark"] and engine == "own":
        raise RequestError("lark needs constraint = llguidance: own takes no Lark grammars")
    if engine != "llguidance" and shapes != ["lark"]:
        return
    if tools:
        raise RequestError("llguidance and tools were both given: own alone enforces calls")
    if not shapes or shapes == ["choice"]:
        raise RequestError(
            "constraint = llguidance: wanted with schema, json_object, regex or lark"
        )
    if options.get("key_order") == "any":
        raise RequestError("constraint = llguidance: it keeps the order of the schema, never any")


def _check_choice(choice: object) -> None:
    if choice is None:
        return
    texts = list(choice) if isinstance(choice, Sequence) and is_list(choice) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise RequestError(f"choice = {choice!r:.60}: wanted a list of texts")
    if len(texts) > MOST_CHOICES:
        raise RequestError(f"choice: {len(texts):,} texts: wanted at most {MOST_CHOICES:,}")


def _has_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def refuse_template_options(options: Options) -> None:
    for name in _OF_TEMPLATES:
        value = options.get(name)
        if isinstance(value, bool) or value:
            raise RequestError(
                f"{name} needs a chat template, and this prompt is completed as it is"
            )


def _check_ids(ids: object) -> None:
    if ids is None:
        return
    if not isinstance(ids, Sequence) or isinstance(ids, str) or None in map(whole, ids):
        raise RequestError(f"logprob_ids = {ids!r:.60}: wanted a list of token ids")
    if len(ids) > MOST_LOGPROB_IDS:
        raise RequestError(f"logprob_ids: {len(ids):,} ids: wanted at most {MOST_LOGPROB_IDS:,}")


def _check_take(take: object) -> None:
    if take is None:
        return
    if not isinstance(take, Mapping):
        raise RequestError(f"take = {take!r:.60}: wanted a mapping from places to token ids")
    for place, token in take.items():
        at = whole(place)
        if at is None or at < 0 or whole(token) is None:
            raise RequestError(
                f"take: {place!r:.30}: {token!r:.30}: wanted a place in the answer, from 0 up, and "
                "a token id"
            )
