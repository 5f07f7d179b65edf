"""gpt-oss 20b and 120b.

Differs from `mixtral.py`: every projection has a bias, router and experts included, those of
attention where `attention_bias` is set; every second layer slides, the first one included, where
the config does not say which do; each softmax of attention has one more score a head, which no
value follows (a sink); experts are chosen by the router's numbers themselves and weigh the softmax
of the chosen ones'; an expert computes gate × sigmoid(alpha × gate) × (up + 1), gate and up clamped
first. Ropes are rescaled by YaRN without rounding the ends of its blend.

Checkpoints keep all experts of a layer in one tensor, the outputs of gate and up in turns: inputs ×
outputs in floats, outputs × inputs in MXFP4. GGUF files keep gate and up apart, and do not say how
experts compute or how YaRN's blend ends.

Source: arXiv:2508.10925, github.com/openai/gpt-oss (gpt_oss/torch/model.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from forwardpass.architectures.family import (
    LLAMA_TENSORS,
    Family,
    GgufNames,
    Stored,
    Transform,
    expert_tensors,
)
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import NUMBER, SIZE
from forwardpass.config_rope import RopeSpec
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, combine, expert_linear, route, router, to_experts
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.rope import FULL, SLIDING


def build(config: ModelConfig) -> Graph:
    """The graph of a gpt-oss with these sizes."""
    g = GraphBuilder(config)
    d, attn = config.hidden_size, config.attention_bias
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
            k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
            q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
            y = g.attention(q, k, v, window=config.window(i), sinks="self_attn.sinks")  # n h e
            y = g.linear(g.flat(y), "self_attn.o_proj", d, Role.ATTENTION_OUTPUT, attn)
            x = g.add(x, y)
            x = g.add(x, _experts(g, g.rms_norm(x, "post_attention_layernorm")))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _experts(g: GraphBuilder, x: Value) -> Value:
    """What the chosen experts add up to, n d."""
    config, name = g.config, "mlp.experts"
    d, f = config.hidden_size, config.intermediate_size
    experts, chosen_of = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    routing = Routing(experts, chosen_of, scoring="none", normal="softmax")
    scores = router(g, x, "mlp.router", routing, bias=True)  # n x
    chosen, weights = route(g, scores, routing)  # n k
    y = to_experts(g, x, chosen)  # n k d
    gate = expert_linear(g, y, chosen, f"{name}.gate_proj", f, routing, Role.MLP_UP, bias=True)
    up = expert_linear(g, y, chosen, f"{name}.up_proj", f, routing, Role.MLP_UP, bias=True)
    alpha, limit = config.number("swiglu_alpha"), config.number("swiglu_limit")
    y = g.apply("clamped_silu_multiply", [gate, up], alpha=alpha, limit=limit)  # n k f
    rows = expert_linear(g, y, chosen, f"{name}.down_proj", d, routing, Role.MLP_DOWN, bias=True)
    return combine(g, rows, weights)


_YARN: Mapping[str, object] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4_096,
}


def _every_second_layer(values: dict[str, object]) -> list[str]:
    """Says which layers slide; the trained length, where it is stated twice, must be one."""
    layers = values["num_hidden_layers"]
    assert isinstance(layers, int)
    values.setdefault("layer_types", [FULL if i % 2 else SLIDING for i in range(layers)])
    stated = values.pop("initial_context_length", None)
    rope = values.get("rope_parameters") or values.get("rope_scaling") or _YARN
    assert isinstance(rope, Mapping)
    trained = rope.get("original_max_position_embeddings", stated)
    if stated in (None, trained):
        return []
    return [f"initial_context_length = {stated} contradicts {trained} in the rope's scaling"]


def _blend_not_rounded(config: dict[str, object]) -> None:
    """Of a GGUF: YaRN's blend ends where the training had it, whatever other readers round."""
    scaling = config.get("rope_scaling")
    if isinstance(scaling, dict) and scaling.get("rope_type") == "yarn":
        config["rope_scaling"] = {**scaling, "truncate": False}


_STORED: dict[str, Stored] = {
    **{name: how for name, how in LLAMA_TENSORS.items() if ".mlp." not in name},
    **expert_tensors("mlp.router", "mlp.experts", kinds=("weight", "bias")),
    "model.layers.{i}.post_attention_layernorm.weight": (
        "blk.{i}.post_attention_norm.weight",
        Transform.AS_STORED,
    ),
    "model.layers.{i}.self_attn.sinks": ("blk.{i}.attn_sinks.weight", Transform.AS_STORED),
}
_IN_ONE = r"(model\.layers\.\d+\.mlp\.experts\.)"

FAMILY = Family(
    "gpt_oss",
    spec=ConfigSpec(
        understood=frozenset({"sliding_window", "attention_bias"}),
        neutral=ROUTER_TRAINING,
        keys={
            "num_local_experts": SIZE,
            "num_experts_per_tok": SIZE,
            "swiglu_alpha": NUMBER,
            "swiglu_limit": NUMBER,
            "initial_context_length": SIZE,
        },
        spellings={
            "num_experts": "num_local_experts",
            "experts_per_token": "num_experts_per_tok",
        },
        defaults={
            "vocab_size": 201_088,
            "hidden_size": 2_880,
            "intermediate_size": 2_880,
            "num_hidden_layers": 36,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            # Published configs name none; what is not MXFP4 in their files is bf16.
            "dtype": "bfloat16",
            "attention_bias": True,
            "sliding_window": 128,
            "rope_theta": 150_000.0,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "swiglu_alpha": 1.702,
            "swiglu_limit": 7.0,
        },
        accepts={"hidden_act": ("silu",)},
        ropes=RopeSpec(absent=_YARN),
        derive=_every_second_layer,
    ),
    build=build,
    gguf=GgufNames(
        "gpt-oss",
        tensors=_STORED,
        keys={
            "expert_count": "num_local_experts",
            "expert_used_count": "num_experts_per_tok",
            "expert_feed_forward_length": "intermediate_size",
            "attention.sliding_window": "sliding_window",
        },
        finish=_blend_not_rounded,
    ),
    parts={
        f"{_IN_ONE}gate_up_proj": (r"\1gate_proj.weight", r"\1up_proj.weight"),
        f"{_IN_ONE}gate_up_proj_bias": (r"\1gate_proj.bias", r"\1up_proj.bias"),
        f"{_IN_ONE}down_proj": (r"\1down_proj.weight",),
        f"{_IN_ONE}down_proj_bias": (r"\1down_proj.bias",),
    },
)
