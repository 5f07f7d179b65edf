"""Gemma 1 and CodeGemma.

Differs from `llama.py`: the embedding is scaled by √d; norms multiply by 1 + gain; head_dim is
independent of hidden_size; GeGLU instead of SwiGLU; the head is the embedding. A config that names
the activation "gelu" means the tanh form, as its first releases do.

Source: arXiv:2403.08295 section 2. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Transform
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role


def build(config: ModelConfig) -> Graph:
    """The graph of a Gemma with these sizes."""
    g = GraphBuilder(config)
    d, f, attn = config.hidden_size, config.intermediate_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.scale(g.embed("model.embed_tokens"), d**0.5)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP)  # n f
            x = g.add(x, g.linear(g.gelu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _gelu_is_the_tanh_form(values: dict[str, object]) -> None:
    values["hidden_act"] = "gelu_pytorch_tanh"


_TANH = ("gelu_pytorch_tanh", "gelu")

FAMILY = Family(
    "gemma",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "hidden_activation"}),
        # In this family the two are separate keys, and the second one was never read.
        spellings={"hidden_activation": "hidden_activation"},
        defaults={
            "vocab_size": 256_000,
            "hidden_size": 3_072,
            "intermediate_size": 24_576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "head_dim": 256,
            "max_position_embeddings": 8_192,
            "hidden_act": "gelu_pytorch_tanh",
            "norm_eps": 1e-6,
            "tie_word_embeddings": True,
        },
        accepts={"hidden_act": _TANH, "hidden_activation": _TANH},
        derive=_gelu_is_the_tanh_form,
    ),
    build=build,
    transforms={
        f"{name}.weight": Transform.ADD_ONE
        for name in ("model.norm", "input_layernorm", "post_attention_layernorm")
    },
    # The GGUF converter adds the 1 to the gains, so those are stored as the graph wants them.
    gguf=GgufNames("gemma", tensors=LLAMA_TENSORS),
)
