"""`Family`: what one architecture file exports besides its builder.

A family knows its config keys, how to build its graph, and under which names the two worlds of
files keep its tensors. Graph names are those of Hugging Face checkpoints; GGUF names map to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.graph import Graph


class Transform(Enum):
    """How a stored tensor becomes the one that the graph names."""

    AS_STORED = "as stored"
    TRANSPOSE = "stored inputs × outputs"
    ADD_ONE = "a norm's gain stored without its 1"
    UNPAIR_QUERY = "rows of a query head stored as neighboring pairs"
    UNPAIR_KEY = "rows of a key head stored as neighboring pairs"
    ONE_ROW = "a table of one row, stored as that row or as a table"
    SPLIT_GROUPS = "query, key and value rows stored by key/value head"


Stored = tuple[str, Transform]  # a file's name for a tensor, and what turns it into the graph's


@dataclass(frozen=True)
class GgufNames:
    """A family's GGUF side.

    `architecture`: `general.architecture`; where several families share it, `when` is the metadata
    key that only files of this one state. `tensors`: graph name -> stored name and transform,
    `{i}` standing for the layer. `keys`: metadata keys, without the architecture's prefix, to
    config keys, beyond the common ones; `by_layer`: those whose arrays are kept. `neutral`:
    metadata keys that cannot change a logit. `fixed`: config values that such files imply without
    saying so. `told_by_tensors`: config values that follow from which tensors there are (names and
    shapes). `finish` completes the config.
    """

    architecture: str
    tensors: Mapping[str, Stored]
    keys: Mapping[str, str] = field(default_factory=dict)
    neutral: frozenset[str] = frozenset()
    fixed: Mapping[str, object] = field(default_factory=dict)
    told_by_tensors: Callable[[Mapping[str, Sequence[int]]], Mapping[str, object]] = lambda _: {}
    finish: Callable[[dict[str, object]], None] = lambda config: None
    when: str | None = None
    by_layer: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One architecture: its `model_type`, config keys, builder and tensor names.

    `embedding`: the table of the tokens, which a tied head shares. `prefixes`: what checkpoints may
    put before the graph's names. `transforms`: how Hugging Face files store a tensor that is not
    stored as the graph wants it, by the end of its name. `buffers`: patterns (regular expressions)
    of stored tensors that no op reads. `renamed`: a checkpoint's name for a tensor, without prefix
    -> the graph's. `stacks`: patterns of tensors that are the rows of one of the graph's; group 1,
    a group 3 where there is one, and `.weight` are its name, group 2 is the row. `parts`: patterns
    of tensors that hold several of the graph's, and those' names (formats/parted.py). `places`:
    prefixes of a model that is part of a larger one, and what they are without that; `not_run`:
    patterns of the larger one's other tensors. `prediction_layer`: elements of one of the layers
    that predict further tokens, as published files hold it; None where that is not known.
    """

    model_type: str
    spec: ConfigSpec
    build: Callable[[ModelConfig], Graph]
    gguf: GgufNames | None = None
    embedding: str = "model.embed_tokens.weight"
    prefixes: tuple[str, ...] = ()
    transforms: Mapping[str, Transform] = field(default_factory=dict)
    buffers: tuple[str, ...] = (r".*rotary_emb\.inv_freq",)
    renamed: Mapping[str, str] = field(default_factory=dict)
    stacks: tuple[str, ...] = ()
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    not_run: tuple[str, ...] = ()
    prediction_layer: Callable[[Graph], int | None] = lambda _: None


# Of families whose checkpoints fuse query, key and value of each key/value head.
SPLIT_QKV = {f"query_key_value.{kind}": Transform.SPLIT_GROUPS for kind in ("weight", "bias")}

LLAMA_TENSORS: dict[str, Stored] = {
    "model.embed_tokens.weight": ("token_embd.weight", Transform.AS_STORED),
    "model.norm.weight": ("output_norm.weight", Transform.AS_STORED),
    "lm_head.weight": ("output.weight", Transform.AS_STORED),
    "rope_freqs.weight": ("rope_freqs.weight", Transform.AS_STORED),
    **{
        f"model.layers.{{i}}.{ours}.{kind}": (f"blk.{{i}}.{theirs}.{kind}", Transform.AS_STORED)
        for ours, theirs in {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "ffn_norm",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_proj": "ffn_gate",
            "mlp.up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }.items()
        for kind in ("weight", "bias")
    },
}


def stored_as(
    tensors: Mapping[str, Stored], transforms: Mapping[str, Transform]
) -> dict[str, Stored]:
    """The map with other transforms, chosen by the part of the graph name before the last dot."""
    result = dict(tensors)
    for name, (stored, _) in tensors.items():
        for end, transform in transforms.items():
            if name.rpartition(".")[0].endswith(end):
                result[name] = (stored, transform)
    return result


def expert_tensors(
    router: str,
    experts: str,
    tables: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    kinds: tuple[str, ...] = ("weight",),
) -> dict[str, Stored]:
    """GGUF's names for a layer's router and its experts' gate, up and down, stacked there too."""
    theirs = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
    ours = (router, *(f"{experts}.{table}" for table in tables))
    return {
        f"model.layers.{{i}}.{name}.{kind}": (f"blk.{{i}}.{stored}.{kind}", Transform.AS_STORED)
        for name, stored in zip(ours, theirs, strict=True)
        for kind in kinds
    }
