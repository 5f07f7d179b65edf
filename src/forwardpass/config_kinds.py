"""What kind of value a config key holds, and how a value of another kind is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forwardpass.rope import finite

MAX_LAYERS = 4_096
MAX_SIZE = 2**31
_MAX_LIST = 65_536  # entries of a list in a config


@dataclass(frozen=True)
class Kind:
    """`wanted` says what a value should be; `fits` whether one is that."""

    wanted: str
    fits: Callable[[object], bool]


def size(least: int = 1, most: int = MAX_SIZE) -> Kind:
    """A whole number from `least` to `most`."""
    return Kind(
        f"a whole number from {least} to {most:,}",
        lambda value: _is_whole(value) and least <= value <= most,  # type: ignore[operator]
    )


def word(*offered: str) -> Kind:
    """A string; one of those offered, where there are any."""
    return Kind(
        f"one of {', '.join(offered)}" if offered else "a string",
        lambda value: isinstance(value, str) and (not offered or value in offered),
    )


def listed(of: Kind) -> Kind:
    """A list of values of one kind."""
    return Kind(
        f"a list, each entry {of.wanted}",
        lambda value: (
            isinstance(value, list | tuple)
            and len(value) <= _MAX_LIST
            and all(of.fits(entry) for entry in value)
        ),
    )


def either(first: Kind, second: Kind) -> Kind:
    """A value of one of two kinds."""
    return Kind(
        f"{first.wanted}, or {second.wanted}",
        lambda value: first.fits(value) or second.fits(value),
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    number = finite(value)
    return number is not None and number > 0


SIZE = size()
NUMBER = Kind("a finite number above 0", _is_positive)
SHARE = Kind("a number above 0, up to 1", lambda value: _is_positive(value) and value <= 1)  # type: ignore[operator]
ANY_NUMBER = Kind("a finite number", lambda value: finite(value) is not None)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
WORD = word()
OBJECT = Kind("an object", lambda value: isinstance(value, Mapping))
LIST = Kind("a list", lambda value: isinstance(value, list | tuple))

NUMBERS = (NUMBER, SHARE, ANY_NUMBER)  # of these, whole numbers are read as fractions too

# Keys that more than one family reads, or that have a field of their own in `ModelConfig`.
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(
        (
            *("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads"),
            *("head_dim", "intermediate_size", "max_position_embeddings", "sliding_window"),
            *("sliding_window_pattern", "no_rope_layer_interval", "num_ln_in_parallel_attn"),
            "word_embed_proj_dim",
        ),
        SIZE,
    ),
    "num_hidden_layers": size(most=MAX_LAYERS),
    "max_window_layers": size(0),
    "rotary_dim": size(2),
    "original_max_position_embeddings": size(2),
    **dict.fromkeys(
        (
            *("norm_eps", "query_pre_attn_scalar", "final_logit_softcapping"),
            *("attn_logit_softcapping", "embedding_multiplier", "attention_multiplier"),
            *("residual_multiplier", "logits_scaling", "logit_scale"),
            *("rope_theta", "rope_local_base_freq"),
        ),
        NUMBER,
    ),
    "partial_rotary_factor": SHARE,
    **dict.fromkeys(
        (
            *("tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"),
            *("use_qk_norm", "qk_layernorm", "use_parallel_residual", "do_layer_norm_before"),
            *("multi_query", "new_decoder_architecture"),
        ),
        FLAG,
    ),
    **dict.fromkeys(("model_type", "hidden_act", "dtype"), WORD),
    **dict.fromkeys(("rope_scaling", "rope_parameters"), OBJECT),
}
