"""SmolLM3.

Differs from `llama.py`: every fourth layer (or those of `no_rope_layers` with a 0) is not turned by
position; where `use_sliding_window` is set, those layers see a sliding window.

Source: "SmolLM3" (Hugging Face, 2025), arXiv:2501.18795 for the layers without rope. Weight names
as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import LLAMA_TENSORS, Family, GgufNames, Transform, stored_as
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Role
from forwardpass.rope import FULL, SLIDING, shown


def build(config: ModelConfig) -> Graph:
    """The graph of a SmolLM3 with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    attn, mlp = config.attention_bias, config.mlp_bias
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            if config.no_rope_layers[i]:
                q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn))
            y = g.rms_norm(x, "post_attention_layernorm")
            gate = g.linear(y, "mlp.gate_proj", f, Role.MLP_UP, mlp)  # n f
            up = g.linear(y, "mlp.up_proj", f, Role.MLP_UP, mlp)  # n f
            y = g.silu_multiply(gate, up)
            x = g.add(x, g.linear(y, "mlp.down_proj", d, Role.MLP_DOWN, mlp))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _some_layers_without_rope(values: dict[str, object]) -> list[str]:
    """Says which layers turn (1) and which slide; what the list must look like if it does not."""
    use, every = values.pop("use_sliding_window"), values.pop("no_rope_layer_interval")
    layers = values["num_hidden_layers"]
    assert isinstance(every, int)
    assert isinstance(layers, int)
    turned = values.get("no_rope_layers")
    if not turned:
        turned = [int((i + 1) % every != 0) for i in range(layers)]
    if (
        not isinstance(turned, list)
        or len(turned) < layers
        or any(isinstance(entry, bool) or entry not in (0, 1) for entry in turned)
    ):
        return [f"no_rope_layers = {shown(turned)}  (wanted a 0 or 1 for each of {layers} layers)"]
    values["no_rope_layers"] = tuple(turned[:layers])
    if not use:
        # The window's size may stay in configs that do not use it.
        values.pop("sliding_window", None)
    elif "sliding_window" in values:
        kinds = [FULL if turned[i] else SLIDING for i in range(layers)]
        values.setdefault("layer_types", kinds)
    return []


FAMILY = Family(
    "smollm3",
    spec=ConfigSpec(
        understood=frozenset(
            {
                "attention_bias",
                "mlp_bias",
                "no_rope_layers",
                "no_rope_layer_interval",
                "sliding_window",
                "use_sliding_window",
            }
        ),
        neutral=frozenset({"max_window_layers"}),  # written by the training code, read by no one
        defaults={
            "vocab_size": 128_256,
            "hidden_size": 2_048,
            "intermediate_size": 11_008,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32_768,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "rope_theta": 2_000_000.0,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "no_rope_layer_interval": 4,
        },
        accepts={"hidden_act": ("silu",)},
        derive=_some_layers_without_rope,
    ),
    build=build,
    # Files do not say which layers are not turned: llama.cpp takes every fourth for granted.
    gguf=GgufNames(
        "smollm3",
        tensors=stored_as(
            LLAMA_TENSORS,
            {"q_proj": Transform.UNPAIR_QUERY, "k_proj": Transform.UNPAIR_KEY},
        ),
    ),
)
