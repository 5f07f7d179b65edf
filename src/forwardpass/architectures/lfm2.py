"""LFM2 350M to 2.6B: gated short convolutions and a few layers of attention, counted only.

Differs from `llama.py`: most layers convolve the last few tokens between two gates instead of
attending; the others normalise query and key heads. The last norm is called `embedding_norm`. The
config's MLP width is that of a plain MLP: a gated one of the same size is two thirds as wide.

Source: arXiv:2511.23404 section 2. Config keys and weight names as in transformers 5.24,
models/lfm2, and in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mamba import nulls, standard_names
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, MAX_SIZE, NUMBER, SIZE, listed, size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.graph.mixers import short_conv
from forwardpass.rope import FULL, shown

CONV_LAYER = "conv"
# How the weights began.
NEUTRAL_KEYS = frozenset(
    {
        *("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init"),
        "conv_use_xavier_init",
    }
)
SPELLINGS = {
    "block_dim": "hidden_size",
    "block_ff_dim": "intermediate_size",
    "block_norm_eps": "norm_eps",
    "conv_dim": "hidden_size",
    "conv_dim_out": "hidden_size",
    "num_heads": "num_attention_heads",
    "tie_embedding": "tie_word_embeddings",
}


def build(config: ModelConfig) -> Graph:
    """The graph of an LFM2 with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            x = g.add(x, mixed(g, g.rms_norm(x, "operator_norm"), i))
            y = g.rms_norm(x, "ffn_norm")
            gate = g.linear(y, "feed_forward.w1", f, Role.MLP_UP)  # n f
            up = g.linear(y, "feed_forward.w3", f, Role.MLP_UP)  # n f
            y = g.linear(g.silu_multiply(gate, up), "feed_forward.w2", d, Role.MLP_DOWN)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.embedding_norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"), proven=False)  # r v


def mixed(g: GraphBuilder, y: Value, layer: int) -> Value:
    """What layer `layer` makes of its normalised input, n d: a convolution, or attention."""
    config = g.config
    if config.layer_types[layer] == CONV_LAYER:
        return short_conv(g, y, "conv", config.whole("conv_L_cache"), config.flag("conv_bias"))
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV))  # n h e
    k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV))  # n g e
    v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV))  # n g e
    q = g.rope(g.rms_norm(q, "self_attn.q_layernorm"), config.rope(layer))
    k = g.rope(g.rms_norm(k, "self_attn.k_layernorm"), config.rope(layer))
    y = g.flat(g.attention(q, k, v))  # n (h e)
    return g.linear(y, "self_attn.out_proj", config.hidden_size, Role.ATTENTION_OUTPUT)


_KEYS = {
    "conv_bias": FLAG,
    "conv_L_cache": SIZE,
    "block_multiple_of": SIZE,
    "block_ffn_dim_multiplier": NUMBER,
    "block_auto_adjust_ff_dim": FLAG,
    "full_attn_idxs": listed(size(0)),
    "block_use_swiglu": FLAG,
    "use_pos_enc": FLAG,
}


def layers_by_name(values: dict[str, object]) -> list[str]:
    """Says which layers attend; where the config has it twice, both must agree."""
    standard_names(values, {"attention": FULL})
    layers, attending = values["num_hidden_layers"], values.pop("full_attn_idxs", None)
    assert isinstance(layers, int)
    if attending is None:
        values.setdefault("layer_types", [FULL] * layers)
        return []
    assert isinstance(attending, list | tuple)
    kinds = [FULL if i in attending else CONV_LAYER for i in range(layers)]
    if values.setdefault("layer_types", kinds) != kinds:
        return [f"full_attn_idxs = {shown(attending)}  (layer_types says otherwise)"]
    return []


def _layers_and_width(values: dict[str, object]) -> list[str]:
    if problems := nulls(values, _KEYS, ("full_attn_idxs",)):
        return problems
    width, factor, multiple = (
        values[key]
        for key in ("intermediate_size", "block_ffn_dim_multiplier", "block_multiple_of")
    )
    assert isinstance(width, int)
    assert isinstance(factor, float)
    assert isinstance(multiple, int)
    if values["block_auto_adjust_ff_dim"]:
        adjusted = factor * (2 * width // 3)
        if not 1 <= adjusted <= MAX_SIZE - multiple:
            return [f"block_ff_dim = {width}  (the MLP would be {adjusted:g} wide)"]
        values["intermediate_size"] = multiple * -(-int(adjusted) // multiple)
    return layers_by_name(values)


FAMILY = Family(
    "lfm2",
    spec=ConfigSpec(
        neutral=NEUTRAL_KEYS,
        spellings=SPELLINGS,
        keys=_KEYS,
        defaults={
            "vocab_size": 65_536,
            "hidden_size": 2_560,
            "intermediate_size": 12_288,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 128_000,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "rope_theta": 1_000_000.0,
            "conv_bias": False,
            "conv_L_cache": 3,
            "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0,
            "block_auto_adjust_ff_dim": True,
            "block_use_swiglu": True,
            "use_pos_enc": True,
        },
        accepts={
            "hidden_act": ("silu",),
            "block_use_swiglu": (True,),
            "use_pos_enc": (True,),
        },
        derive=_layers_and_width,
        layer_kinds=(CONV_LAYER,),
    ),
    build=build,
)
