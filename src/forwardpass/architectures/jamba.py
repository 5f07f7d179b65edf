"""Jamba v0.1, 1.5 and later: selective scans and a few layers of attention, counted only.

Differs from `llama.py`: one of every `attn_layer_period` layers attends, without positions; the
others are Mamba mixers whose time step, B and C are normalised. One of every `expert_layer_period`
layers has experts, whose weights are the softmax over all of them, in place of the one MLP.

Source: arXiv:2403.19887 section 3. Config keys and weight names as in transformers 5.24,
models/jamba, and in the checkpoints, where each expert has tables of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mamba import NEUTRAL_KEYS, nulls, standard_names
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, SIZE, either, size, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu, swiglu_experts
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.mixers import SelectiveScan, mamba1
from forwardpass.rope import FULL, RECURRENT_LAYER, shown


def build(config: ModelConfig) -> Graph:
    """The graph of a Jamba with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    experts = config.whole("num_experts")
    scan = SelectiveScan(
        channels=config.whole("mamba_expand") * d,
        state=config.whole("mamba_d_state"),
        taps=config.whole("mamba_d_conv"),
        rank=config.whole("mamba_dt_rank"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias"),
        norms="gain",
    )
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            if config.layer_types[i] == FULL:
                q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV))  # n h e
                k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV))  # n g e
                v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV))  # n g e
                y = g.flat(g.attention(q, k, v))  # n (h e)
                y = g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT)
            else:
                y = mamba1(g, y, "mamba", scan)
            x = g.add(x, y)
            y = g.rms_norm(x, "pre_ff_layernorm")
            if experts > 1 and _is_turn(config, "expert", i):
                routing = Routing(experts, config.whole("num_experts_per_tok"))
                scores = router(g, y, "feed_forward.router", routing)  # n x
                y = swiglu_experts(g, y, scores, "feed_forward.experts", f, routing)
            else:
                y = swiglu(g, y, "feed_forward", f)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.final_layernorm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"), proven=False)  # r v


_KEYS = {
    "num_experts": SIZE,
    "num_experts_per_tok": SIZE,
    "expert_layer_period": SIZE,
    "expert_layer_offset": size(0),
    "attn_layer_period": SIZE,
    "attn_layer_offset": size(0),
    "mamba_d_state": SIZE,
    "mamba_d_conv": SIZE,
    "mamba_expand": SIZE,
    "mamba_dt_rank": either(SIZE, word("auto")),
    "mamba_conv_bias": FLAG,
    "mamba_proj_bias": FLAG,
    "mamba_inner_layernorms": FLAG,
}


def _is_turn(config: ModelConfig, what: str, layer: int) -> bool:
    period, offset = config.whole(f"{what}_layer_period"), config.whole(f"{what}_layer_offset")
    return layer % period == offset


def _layers(values: dict[str, object]) -> list[str]:
    """Says which layers attend, and how wide the time step's projection is."""
    if problems := nulls(values, _KEYS):
        return problems
    for what in ("attn", "expert"):
        period, offset = (values[f"{what}_layer_{part}"] for part in ("period", "offset"))
        assert isinstance(period, int)
        assert isinstance(offset, int)
        if offset >= period:
            problems.append(f"{what}_layer_offset = {offset}  (wanted one below {period})")
    experts, chosen = values["num_experts"], values["num_experts_per_tok"]
    assert isinstance(experts, int)
    assert isinstance(chosen, int)
    if chosen > experts > 1:
        problems.append(f"num_experts_per_tok = {chosen}  (there are {experts} experts)")
    layers, every, first = (
        values[key] for key in ("num_hidden_layers", "attn_layer_period", "attn_layer_offset")
    )
    assert isinstance(layers, int)
    assert isinstance(every, int)
    kinds = [FULL if i % every == first else RECURRENT_LAYER for i in range(layers)]
    standard_names(values)
    stated = values.get("layer_types")
    if stated not in (None, kinds):
        problems.append(f"layer_types = {shown(stated)}  (the period says otherwise)")
    values["layer_types"] = kinds
    hidden = values["hidden_size"]
    assert isinstance(hidden, int)
    if values["mamba_dt_rank"] == "auto":
        values["mamba_dt_rank"] = -(-hidden // 16)
    return problems


FAMILY = Family(
    "jamba",
    spec=ConfigSpec(
        neutral=NEUTRAL_KEYS
        | {"calc_logits_for_entire_prompt", "output_router_logits", "router_aux_loss_coef"},
        spellings={"layers_block_type": "layer_types", "num_local_experts": "num_experts"},
        keys=_KEYS,
        defaults={
            "vocab_size": 65_536,
            "hidden_size": 4_096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 262_144,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_dt_rank": "auto",
            "mamba_conv_bias": True,
            "mamba_proj_bias": False,
            "mamba_inner_layernorms": True,
        },
        accepts={"hidden_act": ("silu",), "mamba_inner_layernorms": (True,)},
        derive=_layers,
        rope=False,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    stacks=(r"(model\.layers\.\d+\.feed_forward\.experts)\.(\d+)(\.\w+_proj)\.weight",),
)
