"""OPT, 125M to 66B.

Differs from `llama.py`: positions are looked up and added instead of turned, that of the first
token in row 2; norms center and have a bias (LayerNorm); heads are not grouped; every projection
has a bias unless `enable_bias` is false; one expanding table and ReLU instead of SwiGLU. The 350M
normalises after each addition instead of before (`do_layer_norm_before` false), has no final norm,
and embeds narrower than its layers (`word_embed_proj_dim`), with a table in and one out.

Norms without gains (`layer_norm_elementwise_affine` false) and `_remove_final_layer_norm` are
refused. llama.cpp has no OPT, so there are no GGUF names.

Source: arXiv:2205.01068 section 2.1; facebookresearch/metaseq. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.graph.ops import ACTIVATIONS

_FIRST = 2  # the row of position 0


def build(config: ModelConfig) -> Graph:
    """The graph of an OPT with these sizes."""
    g = GraphBuilder(config)
    d, f, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    width, before = config.word_embed_proj_dim or d, config.do_layer_norm_before

    def normed(y: Value, name: str, now: bool) -> Value:
        return g.layer_norm(y, name) if now else y

    x = g.embed("embed_tokens", width)  # n width
    if width != d:
        x = g.linear(x, "project_in", d, Role.EMBEDDING)
    x = g.add_positions(x, "embed_positions", offset=_FIRST)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"layers.{i}", i):
            y = normed(x, "self_attn_layer_norm", before)
            q = g.heads(g.linear(y, "self_attn.q_proj", d, Role.QKV, bias))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", d, Role.QKV, bias))  # n h e
            v = g.heads(g.linear(y, "self_attn.v_proj", d, Role.QKV, bias))  # n h e
            y = g.flat(g.attention(q, k, v))  # n d
            x = g.add(x, g.linear(y, "self_attn.out_proj", d, Role.ATTENTION_OUTPUT, bias))
            x = normed(x, "self_attn_layer_norm", not before)
            y = normed(x, "final_layer_norm", before)
            y = g.activation(g.linear(y, "fc1", f, Role.MLP_UP, bias))  # n f
            x = g.add(x, g.linear(y, "fc2", d, Role.MLP_DOWN, bias))
            x = normed(x, "final_layer_norm", not before)
    x = normed(g.wanted_rows(x), "final_layer_norm", before)  # r d
    if width != d:
        x = g.linear(x, "project_out", width, Role.HEAD)
    return g.finish(g.head(x, tied_to="embed_tokens"))  # r v


def _embed_as_wide(values: dict[str, object]) -> None:
    values.setdefault("word_embed_proj_dim", values["hidden_size"])


FAMILY = Family(
    "opt",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "do_layer_norm_before", "word_embed_proj_dim"}),
        spellings={
            "ffn_dim": "intermediate_size",
            "activation_function": "hidden_act",
            "enable_bias": "attention_bias",
        },
        neutral=frozenset({"activation_dropout", "dropout", "init_std", "layerdrop"}),
        defaults={
            "vocab_size": 50_272,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "intermediate_size": 3_072,
            "num_attention_heads": 12,
            "max_position_embeddings": 2_048,
            "hidden_act": "relu",
            "norm_eps": 1e-5,
            "attention_bias": True,
            "do_layer_norm_before": True,
            "layer_norm_elementwise_affine": True,
            "tie_word_embeddings": True,
        },
        # The size of the epsilon is torch's default and no config says another.
        accepts={"hidden_act": tuple(ACTIVATIONS), "norm_eps": (1e-5,)},
        derive=_embed_as_wide,
        rope=False,
        grouped=False,
    ),
    build=build,
    embedding="embed_tokens.weight",
    prefixes=("model.decoder.", "decoder."),
    buffers=(),
)
