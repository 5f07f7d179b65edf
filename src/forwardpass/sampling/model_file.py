"""The sampling values that a model's own file states.

Two worlds: `generation_config.json` (keys as in transformers 5.0,
generation/configuration_utils.py, class GenerationConfig, and of other programs where we have
the same setting) and GGUF metadata
(`general.sampling.*`, gguf 0.17, constants.py, class Keys.General). A key that could change
the answer and is not honoured here is refused by name; nothing is left out in silence.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from types import MappingProxyType

from forwardpass.errors import ConfigError, did_you_mean
from forwardpass.sampling.ranges import checked, shown

WAY_OUT = "--ignore-model-defaults leaves the file's sampling values out"

GENERATION_CONFIG = "generation_config.json"
GGUF_PREFIX = "general.sampling."

GENERATION_CONFIG_KEYS: Mapping[str, str] = MappingProxyType(
    {
        name: name
        for name in (
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "typical_p",
            "repetition_penalty",
            "frequency_penalty",
            "presence_penalty",
            "seed",
        )
    }
)
GGUF_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "temp": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "penalty_repeat": "repetition_penalty",
        "penalty_last_n": "penalty_last_n",
        "xtc_probability": "xtc_probability",
        "xtc_threshold": "xtc_threshold",
    }
)

# Keys that choose tokens by rules that we do not have, with the value at which each does nothing.
_OFF: Mapping[str, object] = MappingProxyType(
    {
        "num_beams": 1,
        "num_beam_groups": 1,
        "diversity_penalty": 0,
        "penalty_alpha": 0,
        "epsilon_cutoff": 0,
        "eta_cutoff": 0,
        "encoder_repetition_penalty": 1,
        "no_repeat_ngram_size": 0,
        "encoder_no_repeat_ngram_size": 0,
        "guidance_scale": 1,
        "min_length": 0,
        "min_new_tokens": 0,
        "top_h": None,
        "bad_words_ids": None,
        "begin_suppress_tokens": None,
        "constraints": None,
        "dola_layers": None,
        "exponential_decay_length_penalty": None,
        "force_words_ids": None,
        "forced_bos_token_id": None,
        "forced_eos_token_id": None,
        "sequence_bias": None,
        "stop_strings": None,
        "stop_words_ids": None,
        "suppress_tokens": None,
        "token_healing": None,
        "watermarking_config": None,
    }
)

# Keys that say how to run, how long, or what to hand back, never which token is likelier.
# length_penalty and early_stopping act on beams alone, remove_invalid_values on NaN (which we
# refuse), renormalize_logits on nothing that a softmax does not undo. chat_format, max_window_size
# and max_context_size are read by the Python of Qwen's first repositories alone.
_NEUTRAL = frozenset(
    {
        "architectures",
        "assistant_confidence_threshold",
        "assistant_early_exit",
        "assistant_ensemble_weight",
        "assistant_lookbehind",
        "attn_implementation",
        "cache_config",
        "cache_implementation",
        "chat_format",
        "compile_config",
        "continuous_batching_config",
        "disable_compile",
        "dtype",
        "early_stopping",
        "is_assistant",
        "length_penalty",
        "low_memory",
        "max_cache_len",
        "max_context_size",
        "max_input_length",
        "max_length",
        "max_matching_ngram_size",
        "max_new_tokens",
        "max_time",
        "max_tokens",
        "max_window_size",
        "model_type",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_logits",
        "output_scores",
        "pad_token",
        "padding_side",
        "prefill_chunk_size",
        "prompt_lookup_num_tokens",
        "remove_invalid_values",
        "renormalize_logits",
        "return_dict_in_generate",
        "return_legacy_cache",
        "speculation_type",
        "target_lookbehind",
        "tokenizer_class",
        "torch_dtype",
        "transformers_version",
        "trust_remote_code",
        "unsloth_fixed",
        "use_cache",
        "use_model_defaults",
        "use_mtp",
    }
)

# The same for GGUF: mirostat's parameters act only where it is switched on.
_GGUF_OFF: Mapping[str, object] = MappingProxyType({"sequence": "", "mirostat": 0})
_GGUF_NEUTRAL = frozenset({"mirostat_tau", "mirostat_eta"})
_SHOWN = 10  # keys that an error lists; a hostile file may hold thousands


def read_model_file(model: Mapping[str, object]) -> dict[str, object]:
    """The settings that `model` states, by our names, checked.

    `model` is the object of a `generation_config.json`, or the metadata of a GGUF file (known by
    its keys `general.*`; those outside `general.sampling.` do not concern sampling).

    Raises ConfigError naming the keys that cannot be honoured or are out of range.
    """
    if any(key.startswith("general.") for key in model):
        return _read_gguf(model)
    return _read_generation_config(model)


def _read_generation_config(model: Mapping[str, object]) -> dict[str, object]:
    """As transformers means it, except where it would drop a stated temperature in silence.

    `do_sample: false` is greedy, whatever temperature stands beside it; `do_sample: true`
    without a temperature is temperature 1, the model's own distribution. Without `do_sample`
    a stated temperature counts. transformers' own `top_k = 50`, which no file states, does not.
    """
    _refuse(
        GENERATION_CONFIG,
        {key: value for key, value in model.items() if not _passes(key, value)},
        [*GENERATION_CONFIG_KEYS, *_OFF, "do_sample"],
    )
    found = _values(model, GENERATION_CONFIG_KEYS, GENERATION_CONFIG)
    do_sample = model.get("do_sample")
    if do_sample is not None and not isinstance(do_sample, bool):
        raise ConfigError(
            f"{GENERATION_CONFIG}: do_sample = {shown(do_sample)}: wanted true or false",
            advice=WAY_OUT,
        )
    if do_sample is False:
        found["temperature"] = 0.0
    elif do_sample is True:
        found.setdefault("temperature", 1.0)
    return found


def _passes(key: str, value: object) -> bool:
    """Whether a key of generation_config.json is honoured or changes no token."""
    if key in _OFF:
        return _is_off(value, _OFF[key])
    return (
        key in GENERATION_CONFIG_KEYS
        or key == "do_sample"
        or key in _NEUTRAL
        or key.startswith("_")
        or key.endswith("_token_id")
        or _is_off(value, None)
    )


def _read_gguf(model: Mapping[str, object]) -> dict[str, object]:
    """The `general.sampling.*` values. GGUF has no do_sample: a file that narrows the choice
    (top-k, top-p, min-p, XTC) and states no temperature means temperature 1. Penalties over the
    last 0 tokens, and an XTC threshold above a half, are those stages switched off.
    """
    stated = {
        key.removeprefix(GGUF_PREFIX): _as_written(value)
        for key, value in model.items()
        if key.startswith(GGUF_PREFIX)
    }
    if stated.get("penalty_last_n") == 0:
        del stated["penalty_last_n"]
        stated.pop("penalty_repeat", None)
    threshold = stated.get("xtc_threshold")
    if isinstance(threshold, float) and threshold > 0.5:
        del stated["xtc_threshold"]
        stated.pop("xtc_probability", None)
    refused = {
        key: value
        for key, value in stated.items()
        if key not in GGUF_KEYS
        and key not in _GGUF_NEUTRAL
        and not _is_off(value, _GGUF_OFF.get(key))
    }
    _refuse(
        "the GGUF metadata",
        {GGUF_PREFIX + key: value for key, value in refused.items()},
        [GGUF_PREFIX + key for key in (*GGUF_KEYS, *_GGUF_OFF)],
    )
    found = _values(stated, GGUF_KEYS, f"the GGUF metadata: {GGUF_PREFIX}", joint="")
    if found.keys() & {"top_k", "top_p", "min_p"} or found.get("xtc_probability"):
        found.setdefault("temperature", 1.0)
    return found


def _values(
    model: Mapping[str, object], names: Mapping[str, str], where: str, joint: str = ": "
) -> dict[str, object]:
    return {
        name: checked(
            name, model[key], label=f"{where}{joint}{key}", error=ConfigError, advice=WAY_OUT
        )
        for key, name in names.items()
        if model.get(key) is not None
    }


def _refuse(where: str, refused: Mapping[str, object], known: list[str]) -> None:
    if not refused:
        return
    count = len(refused)
    first = list(refused.items())[:_SHOWN]
    more = [f"and {count - _SHOWN} more"] if count > _SHOWN else []
    raise ConfigError(
        f"{where}: {count} sampling setting{'s' * (count > 1)} that this version cannot honour",
        *(_line(key, value, known) for key, value in first),
        *more,
        advice=WAY_OUT,
    )


def _line(key: str, value: object, known: list[str]) -> str:
    if not key.isprintable() or len(key) > 60:
        return f"{shown(key)} = {shown(value)}"
    return f"{key} = {shown(value)}{'' if key in known else did_you_mean(key, known)}"


def _is_off(value: object, off: object) -> bool:
    """Null, false and empty switch anything off, as does the key's own neutral value."""
    if value is None or value is False:
        return True
    if isinstance(value, str | list | tuple | dict):
        return len(value) == 0
    return not isinstance(value, bool) and off is not None and value == off


def _as_written(value: object) -> object:
    """A GGUF float32 as the shortest decimal that is that float32: 0.6, not 0.6000000238418579.

    The file's author wrote 0.6; the same model's generation_config.json says 0.6 too.
    """
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    try:
        stored = struct.pack("<f", value)
    except OverflowError:
        return value
    if struct.unpack("<f", stored)[0] != value:
        return value
    shortest = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next(number for number in shortest if struct.pack("<f", number) == stored)
