"""Which value each sampler setting has for one request, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Literal, TypeVar, get_args

from forwardpass.errors import ConfigError, ForwardpassError, RequestError, did_you_mean
from forwardpass.sampling.model_file import read_model_file
from forwardpass.sampling.ranges import ENGINE_DEFAULTS, Bias, checked
from forwardpass.sampling.rules import PRESETS, SWITCHES, TRUNCATING, Rules, rules

T = TypeVar("T")
Source = Literal["request", "model file", "engine default"]

# What a greedy choice never looks at; bias, penalties and mask act on it all the same.
_ONLY_WHEN_DRAWN = (
    *(SWITCHES[stage][0] for stage in TRUNCATING),
    *("xtc_threshold", "seed"),
)
# What says how others act, with those others: without effect where all of them are off.
_ONLY_BESIDE = {
    "xtc_threshold": ("xtc_probability",),
    "penalty_last_n": ("repetition_penalty", "frequency_penalty", "presence_penalty"),
    "dry_base": ("dry_multiplier",),
    "dry_allowed_length": ("dry_multiplier",),
    "dry_penalty_last_n": ("dry_multiplier",),
    "dry_sequence_breakers": ("dry_multiplier",),
}
_OFF = dict(SWITCHES.values())


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """A value and where it came from."""

    value: T
    source: Source


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Every value that decides how scores become a token; ranges.py says what each may be.

    `seed` is None where nobody set one: whoever runs the request then takes a fresh one
    (`with_seed(random.fresh_seed(), "engine default")`), so that the account can name it.
    """

    temperature: Setting[float]
    top_k: Setting[int]
    top_p: Setting[float]
    min_p: Setting[float]
    typical_p: Setting[float]
    top_n_sigma: Setting[float]
    xtc_probability: Setting[float]
    xtc_threshold: Setting[float]
    repetition_penalty: Setting[float]
    frequency_penalty: Setting[float]
    presence_penalty: Setting[float]
    penalty_last_n: Setting[int]
    dry_multiplier: Setting[float]
    dry_base: Setting[float]
    dry_allowed_length: Setting[int]
    dry_penalty_last_n: Setting[int]
    dry_sequence_breakers: Setting[tuple[str, ...]]
    logit_bias: Setting[Bias]
    seed: Setting[int | None]
    sampler: Setting[str]
    stages: Setting[tuple[str, ...] | None]

    @property
    def rules(self) -> Rules:
        """In what order the stages act, and what they mean where engines differ."""
        return rules(self.sampler.value, self.stages.value)

    @property
    def greedy(self) -> bool:
        """Whether the best score wins, with no draw."""
        return self.temperature.value == 0

    def switch(self, stage: str) -> Setting[Any]:
        """The setting that switches a stage on: any of rules.py but the mask."""
        setting: Setting[Any] = getattr(self, SWITCHES[stage][0])
        return setting

    def acts(self, stage: str) -> bool:
        """Whether a stage does something: its switch is not at the value that is off."""
        return bool(self.switch(stage).value != SWITCHES[stage][1])

    def with_seed(self, seed: int, source: Source = "request") -> SamplingSettings:
        """The same settings under another seed; refused outside 64 signed bits."""
        value = checked("seed", seed, label="seed", error=RequestError, advice=None)
        assert isinstance(value, int)
        return replace(self, seed=Setting(value, source))

    def changed(self, request: Mapping[str, object]) -> SamplingSettings:
        """The same settings but for those that `request` names; None means: as it is.

        A window of penalties that came with a preset goes with it. Raises RequestError as
        `resolve` does, ConfigError where a model's file contradicts the request.
        """
        stated = {name: value for name, value in request.items() if value is not None}
        asked = _read_request({"sampler": self.sampler.value, **stated})
        given: dict[str, Any] = {name: Setting(asked[name], "request") for name in stated}
        if "sampler" in stated and self.penalty_last_n.source == "engine default":
            window: Setting[int] = Setting(PRESETS[given["sampler"].value].window, "engine default")
            given = {"penalty_last_n": window, **given}
        return _agreeing(replace(self, **given))

    def without_effect(self) -> tuple[str, ...]:
        """The settings that the request made although a greedy choice never looks at them."""
        if not self.greedy:
            return ()
        return tuple(name for name in _ONLY_WHEN_DRAWN if getattr(self, name).source == "request")

    def without_switch(self) -> dict[str, tuple[str, ...]]:
        """The settings that the request made although what they shape is off, each with the
        switches that are; those that `without_effect` names are not among them."""
        named = self.without_effect()
        return {
            name: switches
            for name, switches in _ONLY_BESIDE.items()
            if getattr(self, name).source == "request"
            and name not in named
            and all(getattr(self, switch).value == _OFF[switch] for switch in switches)
        }

    def as_dict(self) -> dict[str, dict[str, object]]:
        """`{name: {"value": …, "source": …}}`, ready for JSON; token ids of the bias as strings."""
        shown: dict[str, dict[str, object]] = {}
        for field in fields(self):
            setting: Setting[object] = getattr(self, field.name)
            shown[field.name] = {"value": setting.value, "source": setting.source}
        bias = {str(token): value for token, value in self.logit_bias.value}
        shown["logit_bias"]["value"] = bias
        shown["dry_sequence_breakers"]["value"] = list(self.dry_sequence_breakers.value)
        shown["stages"]["value"] = list(self.rules.order)
        return shown

    @classmethod
    def from_dict(cls, shown: Mapping[str, object]) -> SamplingSettings:
        """The settings that `as_dict` wrote, checked like a request's.

        Raises RequestError for a setting that is missing, unknown or out of range.
        """
        names = [field.name for field in fields(cls)]
        if missing := [name for name in names if name not in shown]:
            raise RequestError(f"sampling: {missing[0]} is missing")
        chosen: dict[str, Setting[Any]] = {}
        sampler = shown["sampler"]
        preset = sampler.get("value") if isinstance(sampler, Mapping) else None
        for name, entry in shown.items():
            if name not in names:
                raise RequestError(f"sampling: no setting is called {name!r:.60}")
            if not (isinstance(entry, Mapping) and entry.keys() == {"value", "source"}):
                raise RequestError(f"sampling: {name}: wanted a value and its source")
            value, source = entry["value"], entry["source"]
            if source not in get_args(Source):
                raise RequestError(f"sampling: {name}: no source is called {source!r:.60}")
            if not (name == "seed" and value is None):
                value = _checked(name, value, f"sampling: {name}", preset)
            chosen[name] = Setting(value, source)
        if chosen["stages"].source == "engine default":
            # as_dict writes the preset's order, which nobody asked for
            if chosen["stages"].value != PRESETS[chosen["sampler"].value].order:
                raise RequestError("sampling: stages: not the preset's order, and nobody set them")
            chosen["stages"] = Setting(None, "engine default")
        return _agreeing(cls(**chosen))


def resolve(
    request: Mapping[str, object],
    model: Mapping[str, object] | None = None,
    ignore_model: bool = False,
) -> SamplingSettings:
    """Each setting from the request, else from the model's file, else from the engine (greedy).

    A preset's window of penalties counts as the engine's.

    `request` names settings as `SamplingSettings` does; None means absent. `model` is what
    `model_file.read_model_file` reads: the object of a `generation_config.json` or the
    metadata of a GGUF file; `ignore_model` leaves it out unread.

    Raises RequestError for an unknown name or a value out of range, ConfigError for what the
    model's file states and we cannot honour.
    """
    asked = _read_request(request)
    stated = read_model_file(model) if model is not None and not ignore_model else {}
    chosen: dict[str, Setting[Any]] = {}
    for name, default in ENGINE_DEFAULTS.items():
        if name in asked:
            chosen[name] = Setting(asked[name], "request")
        elif name in stated:
            chosen[name] = Setting(stated[name], "model file")
        else:
            chosen[name] = Setting(default, "engine default")
    window = chosen["penalty_last_n"]
    if window.source == "engine default":
        preset = PRESETS[chosen["sampler"].value]
        chosen["penalty_last_n"] = Setting(preset.window, "engine default")
    return _agreeing(SamplingSettings(**chosen))


def _agreeing(settings: SamplingSettings) -> SamplingSettings:
    """The settings, where each of them has a stage and a meaning under the rules."""
    chosen = settings.rules
    if settings.top_p.value == 0:
        _checked("top_p", settings.top_p.value, "top_p", chosen.name)
    for stage, (name, off) in SWITCHES.items():
        setting: Setting[object] = getattr(settings, name)
        if stage not in chosen.order and setting.value != off:
            raise _error(setting.source)(
                f"{name} = {setting.value!r:.60} ({setting.source}), and the stages leave "
                f"{stage} out",
                advice=f"name {stage} among the stages, or set {name} to {off or 0!r}",
            )
    return settings


def _error(source: Source) -> type[ForwardpassError]:
    return ConfigError if source == "model file" else RequestError


def _read_request(request: Mapping[str, object]) -> dict[str, object]:
    unknown = [name for name in request if name not in ENGINE_DEFAULTS]
    if unknown:
        raise RequestError(
            f"no sampler setting is called {unknown[0]!r}"
            f"{did_you_mean(unknown[0], ENGINE_DEFAULTS)}",
            advice=f"the settings are {', '.join(ENGINE_DEFAULTS)}",
        )
    stated = {name: value for name, value in request.items() if value is not None}
    preset = stated.get("sampler", ENGINE_DEFAULTS["sampler"])
    return {name: _checked(name, value, name, preset) for name, value in stated.items()}


def _checked(name: str, value: object, label: str, preset: object) -> object:
    """A request's value; a share of 0 for top-p where the preset gives that a meaning."""
    known = PRESETS.get(preset) if isinstance(preset, str) else None
    zero = name == "top_p" and value == 0 and not isinstance(value, bool)
    if zero and known is not None and known.top_p_zero:
        return 0.0
    return checked(name, value, label=label, error=RequestError, advice=None)
