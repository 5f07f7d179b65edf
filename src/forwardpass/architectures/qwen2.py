"""Qwen2, Qwen2.5 and Qwen2.5-Coder.

Differs from `llama.py`: query, key and value have biases, the output projection has none; layers
from `max_window_layers` on see a sliding window where `use_sliding_window` is set.

Source: arXiv:2407.10671, arXiv:2412.15115. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.rope import FULL, SLIDING


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen2 with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, bias=True))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, bias=True))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, bias=True))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP)  # n f
            x = g.add(x, g.linear(g.silu_multiply(gate, up), "mlp.down_proj", d, Role.MLP_DOWN))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def window_late_layers(values: dict[str, object]) -> None:
    """Says which layers slide: those from `max_window_layers` on, where windows are used at all."""
    use, first = values.pop("use_sliding_window"), values.pop("max_window_layers")
    layers = values["num_hidden_layers"]
    assert isinstance(first, int)
    assert isinstance(layers, int)
    if not use:
        # The window's size stays in configs that do not use it.
        values.pop("sliding_window", None)
    elif "sliding_window" in values:
        kinds = [SLIDING if i >= first else FULL for i in range(layers)]
        values.setdefault("layer_types", kinds)


SLIDING_KEYS = frozenset({"use_sliding_window", "sliding_window", "max_window_layers"})
QWEN_DEFAULTS: dict[str, object] = {
    "vocab_size": 151_936,
    "hidden_size": 4_096,
    "intermediate_size": 22_016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "hidden_act": "silu",
    "norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "sliding_window": 4_096,
    "max_window_layers": 28,
}

FAMILY = Family(
    "qwen2",
    spec=ConfigSpec(
        understood=SLIDING_KEYS,
        defaults=QWEN_DEFAULTS,
        accepts={"hidden_act": ("silu",)},
        derive=window_late_layers,
    ),
    build=build,
    gguf=GgufNames("qwen2", tensors=LLAMA_TENSORS),
)
