"""GPT-2: learned positions, LayerNorm with bias, one fused query-key-value table, GELU.

Differs from `llama.py`: positions are looked up and added instead of turned; norms center and have
a bias; every projection has a bias and is stored inputs × outputs; no grouping of heads; one
expanding table and GELU instead of SwiGLU; the head is the embedding.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; weight names as
in the checkpoint `gpt2`.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.ops import ACTIVATIONS


def build(config: ModelConfig) -> Graph:
    """The graph of a GPT-2 with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    x = g.add_positions(g.embed("wte"), "wpe")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"h.{i}", i):
            y = g.layer_norm(x, "ln_1")
            qkv = g.linear(y, "attn.c_attn", 3 * d, Role.QKV, bias=True)  # n 3d
            q, k, v = (g.heads(g.columns(qkv, j * d, (j + 1) * d)) for j in range(3))  # n h e
            y = g.flat(g.attention(q, k, v))  # n d
            x = g.add(x, g.linear(y, "attn.c_proj", d, Role.ATTENTION_OUTPUT, bias=True))
            y = g.layer_norm(x, "ln_2")
            y = g.activation(g.linear(y, "mlp.c_fc", f, Role.MLP_UP, bias=True))  # n f
            x = g.add(x, g.linear(y, "mlp.c_proj", d, Role.MLP_DOWN, bias=True))
    x = g.layer_norm(g.wanted_rows(x), "ln_f")  # r d
    return g.finish(g.head(x, tied_to="wte"))  # r v


def _expand_four_times(values: dict[str, object]) -> None:
    width = values.get("hidden_size")
    if isinstance(width, int):
        values.setdefault("intermediate_size", 4 * width)


_TENSORS: dict[str, Stored] = {
    "wte.weight": ("token_embd.weight", Transform.AS_STORED),
    "wpe.weight": ("position_embd.weight", Transform.AS_STORED),
    "lm_head.weight": ("output.weight", Transform.AS_STORED),
    **{
        f"{ours}.{kind}": (f"{theirs}.{kind}", Transform.AS_STORED)
        for ours, theirs in {
            "ln_f": "output_norm",
            "h.{i}.ln_1": "blk.{i}.attn_norm",
            "h.{i}.ln_2": "blk.{i}.ffn_norm",
            "h.{i}.attn.c_attn": "blk.{i}.attn_qkv",
            "h.{i}.attn.c_proj": "blk.{i}.attn_output",
            "h.{i}.mlp.c_fc": "blk.{i}.ffn_up",
            "h.{i}.mlp.c_proj": "blk.{i}.ffn_down",
        }.items()
        for kind in ("weight", "bias")
    },
}

FAMILY = Family(
    "gpt2",
    spec=ConfigSpec(
        spellings={
            "n_embd": "hidden_size",
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "n_positions": "max_position_embeddings",
            "n_inner": "intermediate_size",
            "activation_function": "hidden_act",
            "layer_norm_epsilon": "norm_eps",
        },
        neutral=frozenset(
            {
                "n_ctx",
                "n_special",
                "reorder_and_upcast_attn",
                "summary_activation",
                "summary_first_dropout",
                "summary_proj_to_labels",
                "summary_type",
                "summary_use_proj",
            }
        ),
        defaults={
            "vocab_size": 50_257,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "max_position_embeddings": 1_024,
            "hidden_act": "gelu_new",
            "norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "scale_attn_weights": True,
        },
        accepts={"hidden_act": tuple(ACTIVATIONS)},
        derive=_expand_four_times,
        rope=False,
        grouped=False,
    ),
    build=build,
    embedding="wte.weight",
    prefixes=("transformer.",),
    transforms={
        f"{name}.weight": Transform.TRANSPOSE
        for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    },
    buffers=(r"h\.\d+\.attn\.(bias|masked_bias)",),
    gguf=GgufNames("gpt2", tensors=_TENSORS, keys={"attention.layer_norm_epsilon": "norm_eps"}),
)
