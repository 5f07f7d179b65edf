"""Bamba 9B: scans with one decay a head and a few layers of attention, counted only.

Differs from `llama.py`: all layers but `attn_layer_indices` are Mamba-2 mixers; those that attend
turn half of each head.

Source: arXiv:2405.21060 section 7.1. Config keys and weight names as in transformers 5.24,
models/bamba, and in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.granitemoehybrid import (
    SCAN_DEFAULTS,
    SCAN_KEYS,
    scan_heads,
    scan_size,
)
from forwardpass.architectures.mamba import NEUTRAL_KEYS, standard_names
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import Kind, listed, size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.mixers import mamba2
from forwardpass.rope import FULL, RECURRENT_LAYER, shown


def build(config: ModelConfig) -> Graph:
    """The graph of a Bamba with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    attn, mlp, scan = config.attention_bias, config.mlp_bias, scan_size(config)
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            if config.layer_types[i] == FULL:
                q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
                k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
                v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
                q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
                y = g.flat(g.attention(q, k, v))  # n (h e)
                y = g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn)
            else:
                y = mamba2(g, y, "mamba", scan)
            x = g.add(x, y)
            y = g.rms_norm(x, "pre_ff_layernorm")
            gate = g.linear(y, "feed_forward.gate_proj", f, Role.MLP_UP, mlp)  # n f
            up = g.linear(y, "feed_forward.up_proj", f, Role.MLP_UP, mlp)  # n f
            y = g.silu_multiply(gate, up)
            x = g.add(x, g.linear(y, "feed_forward.down_proj", d, Role.MLP_DOWN, mlp))
    x = g.rms_norm(g.wanted_rows(x), "model.final_layernorm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"), proven=False)  # r v


_KEYS: dict[str, Kind] = {**SCAN_KEYS, "attn_layer_indices": listed(size(0))}


def _layers(values: dict[str, object]) -> list[str]:
    """Says which layers attend; the scans' heads must share the expanded width."""
    standard_names(values)
    layers, attending = values["num_hidden_layers"], values.get("attn_layer_indices", ())
    assert isinstance(layers, int)
    assert isinstance(attending, list | tuple)
    kinds = [FULL if i in attending else RECURRENT_LAYER for i in range(layers)]
    stated = values.get("layer_types")
    values["layer_types"] = kinds
    problems = scan_heads(values)
    if stated not in (None, kinds):
        problems.append(f"layer_types = {shown(stated)}  (attn_layer_indices says otherwise)")
    return problems


FAMILY = Family(
    "bamba",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "mlp_bias"}),
        neutral=NEUTRAL_KEYS | {"mamba_chunk_size", "z_loss_coefficient"},
        spellings={"layers_block_type": "layer_types"},
        keys=_KEYS,
        defaults={
            **SCAN_DEFAULTS,
            "vocab_size": 128_000,
            "hidden_size": 4_096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 262_144,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "partial_rotary_factor": 0.5,
            "attn_rotary_emb": 64,  # neutral at this value: half of each head of 128
        },
        accepts={"hidden_act": ("silu",), "partial_rotary_factor": (0.5,)},
        derive=_layers,
        partial_rotary=0.5,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
)
