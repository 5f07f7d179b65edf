"""Mistral 7B, Nemo, Small and Ministral 8B.

Differs from `llama.py`: every layer sees a sliding window where the config sets one, and head_dim
is independent of hidden_size; no projection has a bias.

GGUF files are of the architecture `llama` and usually leave the window out: such a file is read as
a Llama, which sees everything, as llama.cpp does. One that states a window is read as this family.

Source: arXiv:2310.06825 section 2. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Transform, stored_as
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.rope import FULL, SLIDING, shown


def build(config: ModelConfig) -> Graph:
    """The graph of a Mistral with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP)  # n f
            x = g.add(x, g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def window_every_layer(values: dict[str, object]) -> list[str]:
    """Says that all layers slide, where there is a window; the config may not say otherwise."""
    kind = FULL if values.get("sliding_window") is None else SLIDING
    layers, stated = values["num_hidden_layers"], values.get("layer_types")
    assert isinstance(layers, int)
    kinds = values["layer_types"] = [kind] * layers
    if stated in (None, kinds):
        return []
    return [f"layer_types = {shown(stated)}  (in this family all layers are {kind})"]


FAMILY = Family(
    "mistral",
    spec=ConfigSpec(
        understood=frozenset({"sliding_window"}),
        defaults={
            "vocab_size": 32_000,
            "hidden_size": 4_096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "sliding_window": 4_096,
        },
        accepts={"hidden_act": ("silu",)},
        derive=window_every_layer,
    ),
    build=build,
    gguf=GgufNames(
        "llama",
        when="attention.sliding_window",
        tensors=stored_as(
            LLAMA_TENSORS,
            {"q_proj": Transform.UNPAIR_QUERY, "k_proj": Transform.UNPAIR_KEY},
        ),
        keys={"attention.sliding_window": "sliding_window"},
    ),
)
