"""DeepSeek-V3, V3.1 and R1; Moonlight.

Differs from `deepseek_v2.py`: a router's numbers become scores by a sigmoid each; a bias for each
expert, which training steers, is added for the choice alone; a group of experts is as good as its
best two together; the chosen scores are divided by their sum where `norm_topk_prob`. The halves of
what turns are paired where `rope_interleave` is false.

Layers that predict further tokens (`num_nextn_predict_layers`) are not run. Each is one more
mixture layer with three norms, a projection from two rows, and, in the published files, tables of
embedding and head again.

Source: arXiv:2412.19437 section 2. Weight names as in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.deepseek_v2 import (
    EXPERT_STACKS,
    LATENT_KEYS,
    TRAINING,
    one_key_a_head,
    shared_and_routed,
)
from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, size, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, swiglu
from forwardpass.graph.graph import Graph
from forwardpass.graph.latent import Latent, latent_attention

ROUTER_BIAS = "mlp.gate.e_score_correction_bias"


def build(config: ModelConfig) -> Graph:
    """The graph of a DeepSeek-V3 with these sizes."""
    g = GraphBuilder(config)
    sizes = Latent.of(config, interleaved=config.flag("rope_interleave"))
    routing = steered(config)
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            x = g.add(x, latent_attention(g, y, i, sizes))
            y = g.rms_norm(x, "post_attention_layernorm")
            if i < config.whole("first_k_dense_replace"):
                y = swiglu(g, y, "mlp", config.intermediate_size)
            else:
                y = shared_and_routed(g, y, routing)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def steered(config: ModelConfig) -> Routing:
    """Sigmoid scores, of which a steered bias chooses: arXiv:2412.19437 section 2.1.2."""
    return Routing(
        config.whole("n_routed_experts"),
        config.whole("num_experts_per_tok"),
        scoring="sigmoid",
        normal="sum" if config.flag("norm_topk_prob") else "none",
        factor=config.number("routed_scaling_factor"),
        bias=ROUTER_BIAS,
        groups=config.whole("n_group"),
        kept=config.whole("topk_group"),
        group_best=2,
    )


def prediction_layer(graph: Graph) -> int | None:
    """Elements of one layer that predicts a further token, as the published files hold it.

    Checked against the totals of DeepSeek-V3, DeepSeek-V3.2 and GLM-4.5-Air. None where no layer is
    a mixture.
    """
    config = graph.config
    last = f"model.layers.{config.num_hidden_layers - 1}."
    layer = [weight for name, weight in graph.weights.items() if name.startswith(last)]
    if not any(weight.name.endswith(ROUTER_BIAS) for weight in layer):
        return None
    d = config.hidden_size
    again = 2 * config.vocab_size * d  # embedding and head
    return sum(weight.elements for weight in layer) + 2 * d * d + 3 * d + again


STEERED_KEYS = {
    "num_nextn_predict_layers": size(0, 64),
    "scoring_func": word("sigmoid"),
    "topk_method": word("noaux_tc"),
}
STEERED_DEFAULTS: dict[str, object] = {
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_layer_freq": 1,
}
SPELLINGS = {
    "num_local_experts": "n_routed_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}

DEEPSEEK_DEFAULTS: dict[str, object] = {
    "vocab_size": 129_280,
    "hidden_size": 7_168,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2_048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "max_position_embeddings": 4_096,
    "hidden_act": "silu",
    "norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1_536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 8,
    "topk_group": 4,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1,
    **STEERED_DEFAULTS,
}

FAMILY = Family(
    "deepseek_v3",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        neutral=TRAINING,
        keys={**LATENT_KEYS, **STEERED_KEYS, "rope_interleave": FLAG},
        spellings=SPELLINGS,
        defaults={**DEEPSEEK_DEFAULTS, "rope_interleave": True},
        accepts={"hidden_act": ("silu",), "moe_layer_freq": (1,)},
        derive=one_key_a_head,
    ),
    build=build,
    stacks=EXPERT_STACKS,
    prediction_layer=prediction_layer,
)
