"""Falcon 7B, 40B, 180B and Falcon 2 11B.

Differs from `llama.py`: norms center and have a bias (LayerNorm); one fused table for query, key
and value, whose rows are stored by key/value head: its queries, its key, its value; projections
have a bias only where `bias` says so; one expanding table and GELU instead of SwiGLU; attention and
MLP are added at once. In the 7B (`multi_query`) there is one key/value head, and one norm feeds
both; in the 40B and 180B (`new_decoder_architecture`) each has a norm, `ln_attn` and `ln_mlp`,
unless `num_ln_in_parallel_attn` is 1 (Falcon 2 11B). `parallel_attn` false is the order of Llama.

ALiBi (`alibi`, Falcon-RW) is refused: transformers rounds its biases to bfloat16.

Source: arXiv:2311.16867 sections 3.1 and 4.2, arXiv:2407.14885. Weight names as in the checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forwardpass.architectures.family import SPLIT_QKV, Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.ops import ACTIVATIONS


def build(config: ModelConfig) -> Graph:
    """The graph of a Falcon with these sizes."""
    g = GraphBuilder(config)
    d, f, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    qkv_width = d + 2 * config.num_key_value_heads * config.head_dim
    two_norms = config.num_ln_in_parallel_attn == 2
    x = g.embed("word_embeddings")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"h.{i}", i):
            normed = g.layer_norm(x, "ln_attn" if two_norms else "input_layernorm")
            qkv = g.linear(normed, "self_attention.query_key_value", qkv_width, Role.QKV, bias)
            q, k, v = g.split_heads(qkv)  # n h e, n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n d
            attended = g.add(x, g.linear(y, "self_attention.dense", d, Role.ATTENTION_OUTPUT, bias))
            if two_norms:
                normed = g.layer_norm(x, "ln_mlp")
            elif not config.use_parallel_residual:
                normed = g.layer_norm(attended, "post_attention_layernorm")
            y = g.activation(g.linear(normed, "mlp.dense_h_to_4h", f, Role.MLP_UP, bias))  # n f
            x = g.add(attended, g.linear(y, "mlp.dense_4h_to_h", d, Role.MLP_DOWN, bias))
    x = g.layer_norm(g.wanted_rows(x), "ln_f")  # r d
    return g.finish(g.head(x, tied_to="word_embeddings"))  # r v


def _derive(values: dict[str, object]) -> list[str]:
    """Key/value heads, norms and the MLP's width, as the layouts have them."""
    width, new = values["hidden_size"], values.pop("new_decoder_architecture")
    assert isinstance(width, int)
    values.setdefault("intermediate_size", 4 * width)
    norms = values.setdefault("num_ln_in_parallel_attn", 2 if new else 1)
    one = values.pop("multi_query")
    if not new:
        values["num_key_value_heads"] = 1 if one else values["num_attention_heads"]
    if new and not values["use_parallel_residual"]:
        return ["parallel_attn = false beside new_decoder_architecture"]
    if norms not in (1, 2) or (norms == 2 and not new):
        return [f"num_ln_in_parallel_attn = {norms}  (wanted 1, or 2 in the new architecture)"]
    return []


def _told_by_tensors(shapes: Mapping[str, Sequence[int]]) -> dict[str, object]:
    # Files state the number of key/value heads for all layouts, and the new architecture reads it.
    return {
        "attention_bias": "blk.0.attn_qkv.bias" in shapes,
        "new_decoder_architecture": True,
        "num_ln_in_parallel_attn": 2 if "blk.0.attn_norm_2.weight" in shapes else 1,
    }


def _what_files_leave_out(config: dict[str, object]) -> None:
    """GGUF files leave out rope's base, which is another in Falcon 2 11B (its config.json)."""
    if (config["num_hidden_layers"], config["hidden_size"]) == (60, 4_096):
        config["rope_theta"] = 500_042.0


_TENSORS: dict[str, Stored] = {
    "word_embeddings.weight": ("token_embd.weight", Transform.AS_STORED),
    "lm_head.weight": ("output.weight", Transform.AS_STORED),
    # The converter stores all queries, then all keys, then all values.
    **{
        f"{ours}.{kind}": (f"{theirs}.{kind}", Transform.AS_STORED)
        for ours, theirs in {
            "ln_f": "output_norm",
            "h.{i}.input_layernorm": "blk.{i}.attn_norm",
            "h.{i}.ln_mlp": "blk.{i}.attn_norm",
            "h.{i}.ln_attn": "blk.{i}.attn_norm_2",
            "h.{i}.self_attention.query_key_value": "blk.{i}.attn_qkv",
            "h.{i}.self_attention.dense": "blk.{i}.attn_output",
            "h.{i}.mlp.dense_h_to_4h": "blk.{i}.ffn_up",
            "h.{i}.mlp.dense_4h_to_h": "blk.{i}.ffn_down",
        }.items()
        for kind in ("weight", "bias")
    },
}

FAMILY = Family(
    "falcon",
    spec=ConfigSpec(
        understood=frozenset(
            {
                *("attention_bias", "multi_query", "new_decoder_architecture"),
                *("num_ln_in_parallel_attn", "use_parallel_residual", "alibi"),
            }
        ),
        spellings={
            "activation": "hidden_act",
            "bias": "attention_bias",
            "ffn_hidden_size": "intermediate_size",
            "layer_norm_epsilon": "norm_eps",
            "n_embed": "hidden_size",
            "num_kv_heads": "num_key_value_heads",
            "parallel_attn": "use_parallel_residual",
        },
        neutral=frozenset({"ff_factor", "hidden_dropout"}),
        defaults={
            "vocab_size": 65_024,
            "hidden_size": 4_544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "max_position_embeddings": 2_048,
            "hidden_act": "gelu",
            "norm_eps": 1e-5,
            "attention_bias": False,
            "multi_query": True,
            "new_decoder_architecture": False,
            "use_parallel_residual": True,
            "tie_word_embeddings": True,
        },
        accepts={"hidden_act": tuple(ACTIVATIONS), "alibi": (False,)},
        derive=_derive,
        full_width=True,
    ),
    build=build,
    embedding="word_embeddings.weight",
    prefixes=("transformer.",),
    transforms=SPLIT_QKV,
    gguf=GgufNames(
        "falcon",
        tensors=_TENSORS,
        keys={"attention.layer_norm_epsilon": "norm_eps"},
        neutral=frozenset({"tensor_data_layout"}),
        told_by_tensors=_told_by_tensors,
        finish=_what_files_leave_out,
    ),
)
