"""Which value each sampler setting has for one request, and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Literal, TypeVar

from forwardpass.errors import RequestError, did_you_mean
from forwardpass.sampling.model_file import read_model_file
from forwardpass.sampling.ranges import ENGINE_DEFAULTS, Bias, checked

T = TypeVar("T")
Source = Literal["request", "model file", "engine default"]

# What a greedy choice never looks at; bias, penalties and mask act on it all the same.
_ONLY_WHEN_DRAWN = ("top_k", "top_p", "min_p", "seed")


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
    repetition_penalty: Setting[float]
    frequency_penalty: Setting[float]
    presence_penalty: Setting[float]
    logit_bias: Setting[Bias]
    seed: Setting[int | None]

    @property
    def greedy(self) -> bool:
        """Whether the best score wins, with no draw."""
        return self.temperature.value == 0

    def with_seed(self, seed: int, source: Source = "request") -> SamplingSettings:
        """The same settings under another seed; refused outside 64 signed bits."""
        value = checked("seed", seed, label="seed", error=RequestError, advice=None)
        assert isinstance(value, int)
        return replace(self, seed=Setting(value, source))

    def without_effect(self) -> tuple[str, ...]:
        """The settings that the request made although a greedy choice never looks at them."""
        if not self.greedy:
            return ()
        return tuple(name for name in _ONLY_WHEN_DRAWN if getattr(self, name).source == "request")

    def as_dict(self) -> dict[str, dict[str, object]]:
        """`{name: {"value": …, "source": …}}`, ready for JSON; token ids of the bias as strings."""
        shown: dict[str, dict[str, object]] = {}
        for field in fields(self):
            setting: Setting[object] = getattr(self, field.name)
            shown[field.name] = {"value": setting.value, "source": setting.source}
        bias = {str(token): value for token, value in self.logit_bias.value}
        shown["logit_bias"]["value"] = bias
        return shown


def resolve(
    request: Mapping[str, object],
    model: Mapping[str, object] | None = None,
    ignore_model: bool = False,
) -> SamplingSettings:
    """Each setting from the request, else from the model's file, else from the engine (greedy).

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
    return SamplingSettings(**chosen)


def _read_request(request: Mapping[str, object]) -> dict[str, object]:
    unknown = [name for name in request if name not in ENGINE_DEFAULTS]
    if unknown:
        raise RequestError(
            f"no sampler setting is called {unknown[0]!r}"
            f"{did_you_mean(unknown[0], ENGINE_DEFAULTS)}",
            advice=f"the settings are {', '.join(ENGINE_DEFAULTS)}",
        )
    return {
        name: checked(name, value, label=name, error=RequestError, advice=None)
        for name, value in request.items()
        if value is not None
    }
