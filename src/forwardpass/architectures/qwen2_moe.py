"""Qwen1.5-MoE and Qwen2-MoE.

Differs from `qwen2.py`: in every `decoder_sparse_step`-th layer that `mlp_only_layers` does not
name there are many small MLPs instead of one. A router chooses some for each token; they weigh what
the softmax over all experts gives them, brought to a sum of 1 where `norm_topk_prob` is set. A
shared expert works for every token, times the sigmoid of a number that a projection of its own
makes. The biases of query, key and value can be off. Where `use_sliding_window` is set, every
second layer below `max_window_layers` slides, the first one included.

GGUF files do not say `norm_topk_prob`, which is false, and have experts in all layers.

Source: https://qwenlm.github.io/blog/qwen-moe/, arXiv:2407.10671 section 2.2.2; windows as in
transformers 5.24. Weight names as in the checkpoints, where each expert has tables of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forwardpass.architectures.family import (
    LLAMA_TENSORS,
    Family,
    GgufNames,
    Stored,
    Transform,
    expert_tensors,
)
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.architectures.qwen2 import SLIDING_KEYS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, SIZE, Kind, listed, size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu, swiglu_experts
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.rope import FULL, SLIDING


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen2-MoE with these sizes."""
    g = GraphBuilder(config)
    d, bias = config.hidden_size, config.flag("qkv_bias")
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, bias))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, bias))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, bias))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.flat(g.attention(q, k, v, window=config.window(i)))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            if is_sparse(config, i):
                x = g.add(x, g.add(routed(g, y), shared(g, y)))
            else:
                x = g.add(x, swiglu(g, y, "mlp", config.intermediate_size))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def is_sparse(config: ModelConfig, layer: int) -> bool:
    """Whether the layer has experts."""
    dense = config.entries("mlp_only_layers") if config.has("mlp_only_layers") else ()
    return layer not in dense and (layer + 1) % config.whole("decoder_sparse_step") == 0


def routed(g: GraphBuilder, y: Value) -> Value:
    """What the chosen experts of `mlp.experts` add up to, n d."""
    config = g.config
    normal = "sum" if config.flag("norm_topk_prob") else "none"
    experts, chosen = config.whole("num_experts"), config.whole("num_experts_per_tok")
    routing = Routing(experts, chosen, normal=normal)
    scores = router(g, y, "mlp.gate", routing)  # n x
    return swiglu_experts(
        g, y, scores, "mlp.experts", config.whole("moe_intermediate_size"), routing
    )


def shared(g: GraphBuilder, y: Value) -> Value:
    """What the expert that all tokens share adds, n d."""
    rows = swiglu(g, y, "mlp.shared_expert", g.config.whole("shared_expert_intermediate_size"))
    number = g.linear(y, "mlp.shared_expert_gate", 1, Role.MLP_ROUTER)  # n 1
    return g.apply("sigmoid_scale", [rows, number])


def _windows_of_early_layers(values: dict[str, object]) -> list[str]:
    use, end = values.pop("use_sliding_window"), values.pop("max_window_layers")
    layers = values["num_hidden_layers"]
    assert isinstance(end, int)
    assert isinstance(layers, int)
    if not use:
        # The window's size stays in configs that do not use it, or is 0 there.
        values.pop("sliding_window", None)
    elif values.get("sliding_window") == 0:
        return ["sliding_window = 0 where use_sliding_window is set"]
    elif "sliding_window" in values:
        kinds = [SLIDING if i % 2 == 0 and i < end else FULL for i in range(layers)]
        values.setdefault("layer_types", kinds)
    return []


def _bias_by_tensor(shapes: Mapping[str, Sequence[int]]) -> Mapping[str, object]:
    return {"qkv_bias": "blk.0.attn_q.bias" in shapes}


SPARSE_KEYS: Mapping[str, Kind] = {
    "num_experts": SIZE,
    "num_experts_per_tok": SIZE,
    "moe_intermediate_size": SIZE,
    "norm_topk_prob": FLAG,
    "decoder_sparse_step": SIZE,
    "mlp_only_layers": listed(size(0)),
}
EXPERT_ROWS = r"(model\.layers\.\d+\.mlp\.experts)\.(\d+)(\.(?:gate|up|down)_proj)\.weight"
EXPERT_KEYS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_SHARED_TENSORS: dict[str, Stored] = {
    f"model.layers.{{i}}.mlp.shared_expert{ours}.weight": (f"blk.{{i}}.ffn_{theirs}.weight", how)
    for ours, theirs, how in (
        (".gate_proj", "gate_shexp", Transform.AS_STORED),
        (".up_proj", "up_shexp", Transform.AS_STORED),
        (".down_proj", "down_shexp", Transform.AS_STORED),
        ("_gate", "gate_inp_shexp", Transform.ONE_ROW),
    )
}

FAMILY = Family(
    "qwen2_moe",
    spec=ConfigSpec(
        understood=SLIDING_KEYS,
        neutral=ROUTER_TRAINING,
        keys={
            **SPARSE_KEYS,
            "shared_expert_intermediate_size": SIZE,
            "qkv_bias": FLAG,
            "sliding_window": size(0),
        },
        defaults={
            "vocab_size": 151_936,
            "hidden_size": 2_048,
            "intermediate_size": 5_632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "max_position_embeddings": 32_768,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "sliding_window": 4_096,
            "max_window_layers": 28,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1_408,
            "shared_expert_intermediate_size": 5_632,
            "norm_topk_prob": False,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "qkv_bias": True,
        },
        accepts={"hidden_act": ("silu",)},
        derive=_windows_of_early_layers,
    ),
    build=build,
    gguf=GgufNames(
        "qwen2moe",
        tensors={**LLAMA_TENSORS, **expert_tensors("mlp.gate", "mlp.experts"), **_SHARED_TENSORS},
        keys={
            **EXPERT_KEYS,
            "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
        },
        fixed={"norm_topk_prob": False},
        told_by_tensors=_bias_by_tensor,
    ),
    stacks=(EXPERT_ROWS,),
)
