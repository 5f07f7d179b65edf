"""A GGUF file's metadata as the config that its family would have in `config.json`.

Every key below the architecture's prefix is translated, checked, or passed on under its own name,
so that `read_config` refuses it like any other unknown key.

Key names: the GGUF specification (ggml/docs/gguf.md) and gguf-py/gguf/constants.py of llama.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from forwardpass.architectures.family import Family, GgufNames
from forwardpass.config_gguf_rope import PREFIX, rope_scaling
from forwardpass.errors import ConfigError
from forwardpass.rope import shown

_KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "vocab_size": "vocab_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "norm_eps",
    "attention.causal": "is_causal",
    "rope.freq_base": "rope_theta",
    "final_logit_softcapping": "final_logit_softcapping",
}
# What the readers of llama.cpp insist on; a family's own defaults belong to config.json.
_REQUIRED = (
    "num_hidden_layers",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "norm_eps",
)
# Neither changes a logit: what a LoRA training or a fine-tune recorded about itself.
_NEUTRAL = frozenset({"rope.scaling.finetuned"})
_TOLD_BY_TENSORS = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
_TURNED = "rope.dimension_count"
_NO_EXPERTS = ("expert_count", "expert_used_count")  # written as 0 by some converters


def config_from_gguf(
    metadata: Mapping[str, object],
    shapes: Mapping[str, Sequence[int]],
    family: Family,
    where: str,
) -> dict[str, object]:
    """The config keys that the metadata and the tensors' names and shapes tell.

    `shapes` are row-major. A file with `rope_freqs.weight` rescales its angles by that tensor.
    Raises ConfigError where the two disagree, or where a key is missing that a reader needs.
    """
    names = family.gguf
    assert names is not None
    config, scaling = _translate(
        metadata, names, shapes, family.spec.partial_rotary is not None, where
    )
    config["model_type"] = family.model_type
    config["tie_word_embeddings"] = "output.weight" not in shapes
    for key, tensor in _TOLD_BY_TENSORS.items():
        if key in family.spec.understood:
            config[key] = tensor in shapes
    config |= names.told_by_tensors(shapes)
    if family.spec.rope:
        config.setdefault("rope_theta", 10_000.0)
    if family.spec.partial_rotary is not None:
        config["partial_rotary_factor"] = _turned_part(config, where)
    _take_vocabulary(config, shapes, where)
    if scaling is not None:
        config["rope_scaling"] = scaling
    names.finish(config)
    return {**config, **names.fixed}


def _translate(
    metadata: Mapping[str, object],
    names: GgufNames,
    shapes: Mapping[str, Sequence[int]],
    partial: bool,
    where: str,
) -> tuple[dict[str, object], dict[str, object] | None]:
    """The config's keys, and its `rope_scaling` where there is one."""
    prefix = f"{names.architecture}."
    keys = {**_KEYS, **names.keys}
    config: dict[str, object] = {}
    scaling: dict[str, object] = {}
    checks: dict[str, object] = {}
    for full, value in metadata.items():
        if not full.startswith(prefix):
            continue
        key = full.removeprefix(prefix)
        if key in keys:
            config[keys[key]] = _one_for_all_layers(full, value, where)
        elif key in names.by_layer:
            config[names.by_layer[key]] = value
        elif key.startswith(PREFIX) and key not in _NEUTRAL | names.neutral:
            scaling[key.removeprefix(PREFIX)] = value
        elif key == _TURNED and partial:
            config[_TURNED] = value
        elif key in ("attention.value_length", _TURNED):
            checks[full] = value
        elif key not in _NEUTRAL | names.neutral and not (key in _NO_EXPERTS and value == 0):
            config[full] = value
    key_of = {name: prefix + key for key, name in keys.items()}
    if missing := [key_of[name] for name in _REQUIRED if name not in config]:
        raise ConfigError(f"{where}: without metadata that it needs", *missing)
    _take_head_sizes(config, checks, where)
    found, left = rope_scaling(scaling, shapes)
    config |= {f"{prefix}{PREFIX}{key}": value for key, value in left.items()}
    return config, found


def _turned_part(config: dict[str, object], where: str) -> float:
    """The share of a head that turns, so that times the head it is rope.dimension_count again."""
    head = config.get("head_dim")
    dims = config.pop(_TURNED, head)
    if not isinstance(head, int):
        return 1.0  # heads that are no number are refused with the other keys
    if not isinstance(dims, int) or not 0 < dims <= head:
        raise ConfigError(f"{where}: rope turns {shown(dims)} elements of a head of {head}")
    share = dims / head
    return share if int(head * share) == dims else math.nextafter(share, 1.0)


def _one_for_all_layers(key: str, value: object, where: str) -> object:
    """The value; an array with one entry a layer must repeat one value."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return value
    if not value or any(entry != value[0] for entry in value):
        raise ConfigError(f"{where}: {key} differs between layers, which this family does not have")
    first: object = value[0]
    return first


def _take_head_sizes(config: dict[str, object], checks: Mapping[str, object], where: str) -> None:
    """Fills in what llama.cpp derives, whatever the family's default in config.json is."""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    config.setdefault("num_key_value_heads", heads)
    if isinstance(width, int) and isinstance(heads, int) and heads:
        config.setdefault("head_dim", width // heads)
    for full, value in checks.items():
        if value != config.get("head_dim"):
            raise ConfigError(
                f"{where}: {full} = {shown(value)}, where this version needs the head size "
                f"{shown(config.get('head_dim'))}"
            )


def _take_vocabulary(
    config: dict[str, object], shapes: Mapping[str, Sequence[int]], where: str
) -> None:
    table = shapes.get("token_embd.weight")
    if table is None or len(table) != 2:
        raise ConfigError(f"{where}: there is no table token_embd.weight")
    stated = config.setdefault("vocab_size", table[0])
    if stated != table[0]:
        raise ConfigError(
            f"{where}: the metadata say {shown(stated)} tokens, "
            f"token_embd.weight has {table[0]} rows"
        )
