"""Qwen3.5, mixtures of experts, text; also the text part of the models that see images.

Differs from `qwen3_5_text.py`: every layer has the mixture of experts of `qwen3_next.py` instead of
an MLP; the chosen experts' scores always sum to 1.

Source: transformers 5.24, models/qwen3_5_moe. Weight names as transformers writes them, where each
expert has tables of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mixtral import ROUTER_TRAINING
from forwardpass.architectures.qwen2_moe import EXPERT_ROWS
from forwardpass.architectures.qwen3_5_text import (
    PREDICTION_DEFAULTS,
    PREDICTION_KEYS,
    QWEN3_5_DEFAULTS,
    ROPES,
    prediction_layer,
)
from forwardpass.architectures.qwen3_next import (
    ADDED_ONE,
    DELTA_KEYS,
    PREDICTION_TENSORS,
    every_fourth_attends,
    gated_mixture,
    hybrid,
)
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, SIZE
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Graph, Value
from forwardpass.rope import RECURRENT_LAYER


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen3.5 mixture with these sizes."""

    def mlp(g: GraphBuilder, y: Value, _: int) -> Value:
        return gated_mixture(g, y)

    return hybrid(config, mlp, fused=False)


FAMILY = Family(
    "qwen3_5_moe_text",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        neutral=ROUTER_TRAINING,
        keys={
            **DELTA_KEYS,
            **PREDICTION_KEYS,
            **dict.fromkeys(("num_experts", "num_experts_per_tok"), SIZE),
            **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), SIZE),
            "norm_topk_prob": FLAG,
        },
        defaults={
            **QWEN3_5_DEFAULTS,
            **PREDICTION_DEFAULTS,
            "hidden_size": 2_048,
            "num_hidden_layers": 40,
            "num_key_value_heads": 2,
            "num_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 512,
            "shared_expert_intermediate_size": 512,
            "norm_topk_prob": True,
        },
        accepts={"hidden_act": ("silu",), "norm_topk_prob": (True,)},
        derive=every_fourth_attends,
        ropes=ROPES,
        partial_rotary=0.25,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    transforms=ADDED_ONE,
    not_run=PREDICTION_TENSORS,
    stacks=(EXPERT_ROWS,),
    prediction_layer=prediction_layer,
)
