"""Qwen3-Next.

Differs from `qwen3.py`: three of four layers are gated delta layers (graph/delta.py) and the fourth
attends, turning a quarter of each head, its result multiplied by the sigmoid of a gate that the
query projection makes beside each head; norms multiply by 1 + gain, but for that of the delta
layers; a mixture of experts with a shared one behind a gate of its own instead of an MLP, unless
`mlp_only_layers` or `decoder_sparse_step` say otherwise. Prediction layers (`mtp.…`) are no part of
a pass and are not counted.

Source: arXiv:2505.06708 (gate), arXiv:2412.06464 (delta layers); transformers 5.24,
models/qwen3_next. Weight names as in the checkpoints, where each expert has tables of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from forwardpass.architectures.family import Family, Transform
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.architectures.qwen2_moe import (
    EXPERT_ROWS,
    SPARSE_KEYS,
    is_sparse,
    routed,
    shared,
)
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import SIZE, Kind, size, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.delta import DeltaSizes, delta_layer
from forwardpass.graph.experts import swiglu
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.rope import FULL, RECURRENT_LAYER

_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen3-Next with these sizes."""

    def mlp(g: GraphBuilder, y: Value, i: int) -> Value:
        if config.whole("num_experts") and is_sparse(config, i):
            return gated_mixture(g, y)
        return swiglu(g, y, "mlp", config.intermediate_size)

    return hybrid(config, mlp, fused=True)


def hybrid(
    config: ModelConfig, mlp: Callable[[GraphBuilder, Value, int], Value], *, fused: bool
) -> Graph:
    """A graph of delta layers and gated attention; `mlp` adds that of a layer, n d."""
    g = GraphBuilder(config)
    sizes = DeltaSizes(
        key_heads=config.whole("linear_num_key_heads"),
        value_heads=config.whole("linear_num_value_heads"),
        key_width=config.whole("linear_key_head_dim"),
        value_width=config.whole("linear_value_head_dim"),
        taps=config.whole("linear_conv_kernel_dim"),
        state_bytes=_STATE_BYTES[config.word(_STATE)] if config.has(_STATE) else None,
    )
    x = g.embed("model.embed_tokens")  # n d
    for i, kind in enumerate(config.layer_types):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            if kind == RECURRENT_LAYER:
                y = delta_layer(g, y, "linear_attn", sizes, fused)
            else:
                y = _gated_attention(g, y, i)
            x = g.add(x, y)
            x = g.add(x, mlp(g, g.rms_norm(x, "post_attention_layernorm"), i))
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _gated_attention(g: GraphBuilder, y: Value, i: int) -> Value:
    config, e = g.config, g.config.head_dim
    q_width, attn = config.num_attention_heads * e, config.attention_bias
    kv_width = config.num_key_value_heads * e
    both = g.heads(g.linear(y, "self_attn.q_proj", 2 * q_width, Role.QKV, attn), 2 * e)
    q = g.apply("head_columns", [both], given={"o": e}, start=0, stop=e)  # n h e
    gate = g.apply("head_columns", [both], given={"o": e}, start=e, stop=2 * e)  # n h e
    k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
    v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
    q = g.rope(g.rms_norm(q, "self_attn.q_norm"), config.rope(i))
    k = g.rope(g.rms_norm(k, "self_attn.k_norm"), config.rope(i))
    y = g.flat(g.apply("sigmoid_multiply", [gate, g.attention(q, k, v)]))  # n (h e)
    return g.linear(y, "self_attn.o_proj", config.hidden_size, Role.ATTENTION_OUTPUT, attn)


def gated_mixture(g: GraphBuilder, x: Value) -> Value:
    """The chosen experts and the shared one, which has a gate, added up, n d."""
    return g.add(routed(g, x), shared(g, x))


def every_fourth_attends(values: dict[str, object]) -> list[str]:
    """Says which layers attend, where the config does not; what of it cannot be honoured."""
    layers, every = values["num_hidden_layers"], values["full_attention_interval"]
    assert isinstance(layers, int)
    assert isinstance(every, int)
    kinds = [RECURRENT_LAYER if (i + 1) % every else FULL for i in range(layers)]
    values.setdefault("layer_types", kinds)
    values.setdefault("intermediate_size", values.get("moe_intermediate_size"))
    keys, heads = values["linear_num_key_heads"], values["linear_num_value_heads"]
    assert isinstance(keys, int)
    assert isinstance(heads, int)
    if heads % keys:
        return [
            f"linear_num_value_heads = {heads}  (wanted a multiple of linear_num_key_heads, {keys})"
        ]
    return []


_STATE = "mamba_ssm_dtype"
DELTA_KEYS: dict[str, Kind] = {
    **dict.fromkeys(
        (
            *("linear_num_key_heads", "linear_num_value_heads", "linear_conv_kernel_dim"),
            *("linear_key_head_dim", "linear_value_head_dim", "full_attention_interval"),
        ),
        SIZE,
    ),
    _STATE: word(*_STATE_BYTES),
}
DELTA_DEFAULTS: dict[str, object] = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}
PREDICTION_TENSORS = (r"mtp\..*",)
PREDICTION = frozenset({"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"})
ADDED_ONE = {
    f"{name}.weight": Transform.ADD_ONE
    for name in (
        *("model.norm", "input_layernorm", "post_attention_layernorm"),
        *("self_attn.q_norm", "self_attn.k_norm"),
    )
}

FAMILY = Family(
    "qwen3_next",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        neutral=ROUTER_TRAINING | PREDICTION,
        keys={
            **DELTA_KEYS,
            **SPARSE_KEYS,
            "num_experts": size(0),
            "shared_expert_intermediate_size": SIZE,
        },
        defaults={
            **DELTA_DEFAULTS,
            "vocab_size": 151_936,
            "hidden_size": 2_048,
            "intermediate_size": 5_632,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "max_position_embeddings": 32_768,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
            "attn_output_gate": True,
        },
        accepts={"hidden_act": ("silu",)},
        derive=every_fourth_attends,
        partial_rotary=0.25,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    transforms=ADDED_ONE,
    not_run=PREDICTION_TENSORS,
    stacks=(EXPERT_ROWS,),
)
