"""Qwen3.5, dense, text; also the text part of the models that see images.

Differs from `qwen3_next.py`: one MLP a layer and no experts; the delta layers have a projection for
queries, keys and values, and one each for gate, β and decay. Image positions are three numbers a
token; those of text are equal, so that `mrope_section` changes nothing.

Source: transformers 5.24, models/qwen3_5. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.qwen3_next import (
    ADDED_ONE,
    DELTA_DEFAULTS,
    DELTA_KEYS,
    PREDICTION_TENSORS,
    every_fourth_attends,
    hybrid,
)
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, size
from forwardpass.config_rope import RopeSpec
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import swiglu
from forwardpass.graph.graph import Graph, Value
from forwardpass.rope import FULL, RECURRENT_LAYER

ROPES = RopeSpec(of_images=frozenset({"mrope_section", "mrope_interleaved"}))
QWEN3_5_DEFAULTS: dict[str, object] = {
    **DELTA_DEFAULTS,
    "vocab_size": 248_320,
    "num_attention_heads": 16,
    "head_dim": 256,
    "max_position_embeddings": 32_768,
    "hidden_act": "silu",
    "norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "attn_output_gate": True,
}


PREDICTION_KEYS = {"mtp_num_hidden_layers": size(0, 64), "mtp_use_dedicated_embeddings": FLAG}
PREDICTION_DEFAULTS = {"mtp_use_dedicated_embeddings": False}


def prediction_layer(graph: Graph) -> int | None:
    """Elements of the one layer that predicts a further token: a last layer that attends.

    In front of it two norms and a projection of embedding and hidden state together, behind it a
    norm. Checked against the totals of Qwen3.5-27B and 35B-A3B. None for more layers than one,
    or tables of its own, which no published total tells.
    """
    config = graph.config
    alone = config.own.get("mtp_num_hidden_layers") == 1
    if not alone or config.flag("mtp_use_dedicated_embeddings"):
        return None
    attending = [i for i, kind in enumerate(config.layer_types) if kind == FULL]
    if not attending:
        return None
    start, d = f"model.layers.{attending[-1]}.", config.hidden_size
    layer = sum(w.elements for name, w in graph.weights.items() if name.startswith(start))
    return layer + 2 * d * d + 3 * d


def build(config: ModelConfig) -> Graph:
    """The graph of a Qwen3.5 with these sizes."""

    def mlp(g: GraphBuilder, y: Value, _: int) -> Value:
        return swiglu(g, y, "mlp", config.intermediate_size)

    return hybrid(config, mlp, fused=False)


FAMILY = Family(
    "qwen3_5_text",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        keys={**DELTA_KEYS, **PREDICTION_KEYS},
        defaults={
            **QWEN3_5_DEFAULTS,
            **PREDICTION_DEFAULTS,
            "hidden_size": 4_096,
            "intermediate_size": 12_288,
            "num_hidden_layers": 32,
            "num_key_value_heads": 4,
        },
        accepts={"hidden_act": ("silu",)},
        derive=every_fourth_attends,
        ropes=ROPES,
        partial_rotary=0.25,
        layer_kinds=(RECURRENT_LAYER,),
    ),
    build=build,
    transforms=ADDED_ONE,
    not_run=PREDICTION_TENSORS,
    prediction_layer=prediction_layer,
)
