"""Mamba 130M to 2.8B: selective scans alone, counted only.

Differs from `llama.py`: no attention and no MLP. A layer is one norm and one recurrent mixer, which
keeps a state of fixed size instead of keys and values; nothing depends on how long a sequence is.

Source: arXiv:2312.00752 section 3.4. Config keys and weight names as in transformers 5.24,
models/mamba, and in the checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, MAX_SIZE, SIZE, Kind, either, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph
from forwardpass.graph.mixers import SelectiveScan, mamba1
from forwardpass.rope import RECURRENT_LAYER, shown

LAYER_NAMES: Mapping[str, str] = {"mamba": RECURRENT_LAYER, "attention": "full_attention"}

# How the weights began, which kernel computes, and in what precision. `time_step_limit` bounds
# time steps: no table and no product follows from it.
NEUTRAL_KEYS = frozenset(
    {
        *("fused_add_norm", "pad_vocab_size_multiple", "rescale_prenorm_residual"),
        *("residual_in_fp32", "time_step_floor", "time_step_init_scheme", "time_step_limit"),
        *("time_step_max", "time_step_min", "time_step_scale", "use_associative_scan"),
        *("use_mamba_kernels", "use_mambapy", "num_logits_to_keep"),
    }
)
SPELLINGS = {
    "d_model": "hidden_size",
    "n_layer": "num_hidden_layers",
    "d_inner": "intermediate_size",
    "layer_norm_epsilon": "norm_eps",
}
KEYS = {
    "state_size": SIZE,
    "expand": SIZE,
    "conv_kernel": SIZE,
    "time_step_rank": either(SIZE, word("auto")),
    "use_bias": FLAG,
    "use_conv_bias": FLAG,
    "rms_norm": FLAG,
}
DEFAULTS: Mapping[str, object] = {
    "vocab_size": 50_280,
    "hidden_size": 768,
    "num_hidden_layers": 32,
    "max_position_embeddings": MAX_SIZE,  # nothing limits a sequence
    "hidden_act": "silu",
    "norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "state_size": 16,
    "expand": 2,
    "conv_kernel": 4,
    "time_step_rank": "auto",
    "use_bias": False,
    "use_conv_bias": True,
    "rms_norm": True,
}


def build(config: ModelConfig) -> Graph:
    """The graph of a Mamba with these sizes."""
    g = GraphBuilder(config)
    size = scan_size(config)
    x = g.embed("backbone.embeddings")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"backbone.layers.{i}", i):
            x = g.add(x, mamba1(g, g.rms_norm(x, "norm"), "mixer", size))
    x = g.rms_norm(g.wanted_rows(x), "backbone.norm_f")  # r d
    return g.finish(g.head(x, tied_to="backbone.embeddings"))  # r v


def scan_size(config: ModelConfig) -> SelectiveScan:
    """The sizes of every layer's scan."""
    return SelectiveScan(
        channels=config.intermediate_size,
        state=config.whole("state_size"),
        taps=config.whole("conv_kernel"),
        rank=config.whole("time_step_rank"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
    )


def nulls(
    values: Mapping[str, object], keys: Mapping[str, Kind], optional: Collection[str] = ()
) -> list[str]:
    """Of a family's own keys those that a config sets to null although the family needs them."""
    absent = [key for key in keys if key not in values and key not in optional]
    return [f"{key} = null  (wanted {keys[key].wanted})" for key in absent]


def every_layer_recurrent(values: dict[str, object]) -> list[str]:
    """Fills in what follows from the width; no layer can be of another type."""
    if problems := nulls(values, KEYS):
        return problems
    hidden, expand = values["hidden_size"], values["expand"]
    assert isinstance(hidden, int)
    assert isinstance(expand, int)
    values.setdefault("intermediate_size", expand * hidden)
    if values["time_step_rank"] == "auto":
        values["time_step_rank"] = -(-hidden // 16)
    return only_recurrent(values)


def only_recurrent(values: dict[str, object]) -> list[str]:
    """Says that all layers are recurrent; the config may not say otherwise."""
    standard_names(values)
    layers, stated = values["num_hidden_layers"], values.get("layer_types")
    assert isinstance(layers, int)
    kinds = values["layer_types"] = [RECURRENT_LAYER] * layers
    if stated in (None, kinds):
        return []
    return [f"layer_types = {shown(stated)}  (in this family all layers are {RECURRENT_LAYER})"]


def standard_names(values: dict[str, object], names: Mapping[str, str] = LAYER_NAMES) -> None:
    """Layer types under their standard names."""
    stated = values.get("layer_types")
    if isinstance(stated, list | tuple):
        values["layer_types"] = [
            names.get(kind, kind) if isinstance(kind, str) else kind for kind in stated
        ]


FAMILY = Family(
    "mamba",
    spec=ConfigSpec(
        neutral=NEUTRAL_KEYS,
        spellings=SPELLINGS,
        keys=KEYS,
        defaults=DEFAULTS,
        accepts={"hidden_act": ("silu",), "rms_norm": (True,)},
        derive=every_layer_recurrent,
        rope=False,
        attention=False,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    embedding="backbone.embeddings.weight",
    renamed={"backbone.embedding.weight": "backbone.embeddings.weight"},
)
