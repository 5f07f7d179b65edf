"""The rules of a sampler: in what order its stages act, and what they mean where engines differ.

The preset `default` is ours. `transformers` and `llama.cpp` are those engines' rules, for people
who compare: given the same scores and values they keep the same tokens. A preset sets no value
but the penalties' window; who wants an engine's values asks for them.

Sources: transformers 5.24, generation/utils.py `_get_logits_processor` and
generation/logits_process.py; llama.cpp, common/common.h (`samplers` of common_params_sampling)
and src/llama-sampler.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from forwardpass.errors import ForwardpassError, did_you_mean

# Stages that change single scores, and those that leave tokens out of the distribution; between
# them stands the temperature, which a preset or a request may put later.
ADJUSTING = (
    "logit_bias",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "dry",
    "mask",
)
TRUNCATING = ("top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc")
STAGES = (*ADJUSTING, "temperature", *TRUNCATING)

# Each stage by the setting that switches it on, and the value at which it is off. A mask comes
# with the request's grammar, not with a setting.
SWITCHES: Mapping[str, tuple[str, object]] = MappingProxyType(
    {
        "logit_bias": ("logit_bias", ()),
        "repetition_penalty": ("repetition_penalty", 1),
        "frequency_penalty": ("frequency_penalty", 0),
        "presence_penalty": ("presence_penalty", 0),
        "dry": ("dry_multiplier", 0),
        "temperature": ("temperature", 1),
        "top_n_sigma": ("top_n_sigma", 0),
        "top_k": ("top_k", 0),
        "typical_p": ("typical_p", 1),
        "top_p": ("top_p", 1),
        "min_p": ("min_p", 0),
        "xtc": ("xtc_probability", 0),
    }
)


@dataclass(frozen=True, slots=True)
class Rules:
    """How the stages act.

    `order`: their names, those that adjust scores first. `exact_k`: top-k keeps exactly k, typical
    no more than it needs, the lower ids of equals; else both keep all that equal the last.
    `of_what_is_left`: top-p's share is of what the stages before it left; else of the whole
    distribution after the temperature.
    `top_p_zero`: top-p 0 keeps the best alone; else it is refused. `window`: how many tokens
    penalties look back where nobody says (-1: all). `over_prompt`: frequency and presence look at
    the prompt too; repetition always does.
    """

    name: str
    order: tuple[str, ...]
    exact_k: bool = True
    of_what_is_left: bool = True
    top_p_zero: bool = True
    window: int = -1
    over_prompt: bool = False


PRESETS: Mapping[str, Rules] = MappingProxyType(
    {
        "default": Rules("default", STAGES, of_what_is_left=False, top_p_zero=False),
        "transformers": Rules(
            "transformers",
            (
                *ADJUSTING,
                "temperature",
                "top_n_sigma",
                "top_k",
                "top_p",
                "min_p",
                "typical_p",
                "xtc",
            ),
            exact_k=False,
        ),
        "llama.cpp": Rules(
            "llama.cpp", (*ADJUSTING, *TRUNCATING, "temperature"), window=64, over_prompt=True
        ),
    }
)


def rules(preset: str, stages: Sequence[str] | None) -> Rules:
    """The rules of a preset, in the request's order where it states one."""
    chosen = PRESETS[preset]
    return chosen if stages is None else replace(chosen, order=tuple(stages))


def order(
    value: object, label: str, error: type[ForwardpassError], advice: str | None
) -> tuple[str, ...]:
    """`value` as an order of stages: names, with commas or in a list.

    What it leaves out is never applied, but where it names no stage that adjusts scores, all of
    these come first as ever. Raises `error` for a name that is none, empty or given twice, for an
    adjusting stage behind one that is not, and without a temperature.
    """
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise error(f"{label} = {value!r:.60}: wanted names of stages", advice=_offer(advice))
    found: list[str] = []
    names = [name.strip() for name in names]
    if "" in names:
        raise error(f"{label}: an empty name among the stages", advice=_offer(advice))
    for name in names:
        if name not in STAGES:
            near = did_you_mean(name.lower(), STAGES) if len(name) < 60 else ""
            raise error(f"{label}: no stage is called {name!r:.60}{near}", advice=_offer(advice))
        if name in found:
            raise error(f"{label}: {name} is given twice", advice=advice)
        later = next((other for other in found if other not in ADJUSTING), None)
        if name in ADJUSTING and later is not None:
            raise error(
                f"{label}: {name} stands behind {found[-1]}, and scores are adjusted before that",
                advice=advice or f"name it before {later}, or leave it out",
            )
        found.append(name)
    if "temperature" not in found:
        raise error(f"{label}: temperature is missing", advice="temperature 1 changes nothing")
    stated = [name for name in found if name in ADJUSTING]
    # No grammar is left out, and its mask comes last: nothing makes a forbidden token legal again.
    first = [name for name in stated or ADJUSTING if name != "mask"]
    return (*first, "mask", *(name for name in found if name not in ADJUSTING))


def _offer(advice: str | None) -> str:
    return advice or f"the stages are {', '.join(STAGES)}"
