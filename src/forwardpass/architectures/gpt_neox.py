"""GPT-NeoX 20B, Pythia, Dolly 2, RedPajama-INCITE, StableLM Alpha.

Differs from `llama.py`: norms center and have a bias (LayerNorm); one fused table for query, key
and value, its rows stored head by head; heads are not grouped, and only the first quarter of each
turns unless the config says otherwise; every projection has a bias (`attention_bias` false:
those of the MLP only); one expanding table and GELU instead of SwiGLU; attention and MLP each
normalise the layer's input and are added to it at once, unless `use_parallel_residual` is false.

Source: arXiv:2204.06745 section 2.1, arXiv:2304.01373 section 2.1. Weight names as in the
checkpoints, whose head is called `embed_out`.
"""

from __future__ import annotations

from forwardpass.architectures.family import SPLIT_QKV, Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.ops import ACTIVATIONS


def build(config: ModelConfig) -> Graph:
    """The graph of a GPT-NeoX with these sizes."""
    g = GraphBuilder(config)
    d, f, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    x = g.embed("embed_in")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"layers.{i}", i):
            y = g.layer_norm(x, "input_layernorm")
            qkv = g.linear(y, "attention.query_key_value", 3 * d, Role.QKV, bias)  # n 3d
            q, k, v = g.split_heads(qkv)  # n h e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n d
            attended = g.add(x, g.linear(y, "attention.dense", d, Role.ATTENTION_OUTPUT, bias))
            seen = x if config.use_parallel_residual else attended
            y = g.layer_norm(seen, "post_attention_layernorm")
            y = g.activation(g.linear(y, "mlp.dense_h_to_4h", f, Role.MLP_UP, bias=True))  # n f
            x = g.add(attended, g.linear(y, "mlp.dense_4h_to_h", d, Role.MLP_DOWN, bias=True))
    x = g.layer_norm(g.wanted_rows(x), "final_layer_norm")  # r d
    return g.finish(g.head(x, tied_to="embed_in"))  # r v


def _what_files_leave_out(config: dict[str, object]) -> None:
    """GGUF files do not keep `hidden_act`: all published models use `gelu` but the 20B.

    Source: https://huggingface.co/EleutherAI/gpt-neox-20b (44 layers: `gelu_fast`).
    """
    if config["num_hidden_layers"] == 44:
        config["hidden_act"] = "gelu_fast"


_TENSORS: dict[str, Stored] = {
    "embed_in.weight": ("token_embd.weight", Transform.AS_STORED),
    "lm_head.weight": ("output.weight", Transform.AS_STORED),
    **{
        f"{ours}.{kind}": (f"{theirs}.{kind}", Transform.AS_STORED)
        for ours, theirs in {
            "final_layer_norm": "output_norm",
            "layers.{i}.input_layernorm": "blk.{i}.attn_norm",
            "layers.{i}.post_attention_layernorm": "blk.{i}.ffn_norm",
            # The converter stores all queries, then all keys, then all values.
            "layers.{i}.attention.query_key_value": "blk.{i}.attn_qkv",
            "layers.{i}.attention.dense": "blk.{i}.attn_output",
            "layers.{i}.mlp.dense_h_to_4h": "blk.{i}.ffn_up",
            "layers.{i}.mlp.dense_4h_to_h": "blk.{i}.ffn_down",
        }.items()
        for kind in ("weight", "bias")
    },
}

FAMILY = Family(
    "gpt_neox",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "use_parallel_residual"}),
        spellings={
            "layer_norm_eps": "norm_eps",
            "rotary_emb_base": "rope_theta",
            "rotary_pct": "partial_rotary_factor",
        },
        neutral=frozenset(
            {
                "attention_probs_dropout_prob",
                "custom_pipelines",
                "hidden_dropout",
                "hidden_dropout_prob",
                "is_decoder",
            }
        ),
        defaults={
            "vocab_size": 50_432,
            "hidden_size": 6_144,
            "num_hidden_layers": 44,
            "num_attention_heads": 64,
            "intermediate_size": 24_576,
            "hidden_act": "gelu",
            "max_position_embeddings": 2_048,
            "norm_eps": 1e-5,
            "attention_bias": True,
            "use_parallel_residual": True,
            "tie_word_embeddings": False,
        },
        accepts={"hidden_act": tuple(ACTIVATIONS)},
        partial_rotary=0.25,
        grouped=False,
    ),
    build=build,
    embedding="embed_in.weight",
    prefixes=("gpt_neox.",),
    renamed={"embed_out.weight": "lm_head.weight"},
    transforms=SPLIT_QKV,
    buffers=(r"layers\.\d+\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)",),
    gguf=GgufNames(
        "gptneox",
        tensors=_TENSORS,
        keys={
            "attention.layer_norm_epsilon": "norm_eps",
            "use_parallel_residual": "use_parallel_residual",
        },
        told_by_tensors=lambda shapes: {"attention_bias": "blk.0.attn_qkv.bias" in shapes},
        finish=_what_files_leave_out,
    ),
)
