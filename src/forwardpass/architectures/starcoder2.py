"""StarCoder2 3B, 7B and 15B.

Differs from `llama.py`: norms center and have a bias (LayerNorm); every projection has a bias
unless `use_bias` is false; one expanding table and GELU instead of SwiGLU; every layer sees a
sliding window where the config sets one.

Source: arXiv:2402.19173 section 6. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Stored, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.graph.ops import ACTIVATIONS
from forwardpass.rope import SLIDING


def build(config: ModelConfig) -> Graph:
    """The graph of a StarCoder2 with these sizes."""
    g = GraphBuilder(config)
    d, f, bias = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.layer_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, bias))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, bias))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, bias))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, bias))
            y = g.layer_norm(x, "post_attention_layernorm")
            y = g.activation(g.linear(y, "mlp.c_fc", f, Role.MLP_UP, bias))  # n f
            x = g.add(x, g.linear(y, "mlp.c_proj", d, Role.MLP_DOWN, bias))
    x = g.layer_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _slide_everywhere(values: dict[str, object]) -> None:
    layers = values["num_hidden_layers"]
    assert isinstance(layers, int)
    if "sliding_window" in values:
        values.setdefault("layer_types", [SLIDING] * layers)


def _what_files_leave_out(config: dict[str, object]) -> None:
    """GGUF files do not keep the window, which is the same in all three sizes.

    Source: arXiv:2402.19173 section 6.1, "sliding window attention of size 4,096".
    """
    config.setdefault("sliding_window", 4_096)


_TENSORS: dict[str, Stored] = {
    f"model.{ours}.{kind}": (f"{theirs}.{kind}", Transform.AS_STORED)
    for ours, theirs in {
        "norm": "output_norm",
        "layers.{i}.mlp.c_fc": "blk.{i}.ffn_up",
        "layers.{i}.mlp.c_proj": "blk.{i}.ffn_down",
    }.items()
    for kind in ("weight", "bias")
}

FAMILY = Family(
    "starcoder2",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "sliding_window"}),
        spellings={"norm_epsilon": "norm_eps", "use_bias": "attention_bias"},
        # Published configs keep settings of an earlier code beside those that are read.
        neutral=frozenset(
            {
                "activation_function",
                "attention_softmax_in_fp32",
                "embedding_dropout",
                "layer_norm_epsilon",
                "residual_dropout",
                "scale_attention_softmax_in_fp32",
            }
        ),
        defaults={
            "vocab_size": 49_152,
            "hidden_size": 3_072,
            "intermediate_size": 12_288,
            "num_hidden_layers": 30,
            "num_attention_heads": 24,
            "num_key_value_heads": 2,
            "max_position_embeddings": 4_096,
            "hidden_act": "gelu_pytorch_tanh",
            "norm_eps": 1e-5,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "mlp_type": "default",
            "norm_type": "layer_norm",
            "scale_attn_weights": True,
        },
        accepts={"hidden_act": tuple(ACTIVATIONS)},
        derive=_slide_everywhere,
    ),
    build=build,
    gguf=GgufNames(
        "starcoder2",
        tensors={**LLAMA_TENSORS, **_TENSORS},
        keys={"attention.layer_norm_epsilon": "norm_eps"},
        finish=_what_files_leave_out,
    ),
)
