"""MiniMax M2, M2.1, M2.5 and M2.7.

Differs from `mixtral.py`: head_dim is independent of hidden_size, query and key are normalised over
their whole width, the first `rotary_dim` elements of each head turn, and nothing slides. A
router's numbers become scores by a sigmoid each; a steered bias for each expert is added for the
choice alone, and the chosen scores are divided by their sum.

The published files hold no layers that predict further tokens, though the configs name some.

Source: MiniMax-M2 (MiniMax 2025); transformers 5.24, models/minimax_m2. Weight names as in the
checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping

from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import SIZE, listed, size, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu_experts
from forwardpass.graph.graph import Graph, Role
from forwardpass.rope import finite

_TABLES = ("w1", "w3", "w2")  # gate, up, down


def build(config: ModelConfig) -> Graph:
    """The graph of a MiniMax M2 with these sizes."""
    g = GraphBuilder(config)
    d, f = config.hidden_size, config.intermediate_size
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    experts, chosen = config.whole("num_local_experts"), config.whole("num_experts_per_tok")
    bias = "block_sparse_moe.e_score_correction_bias"
    routing = Routing(experts, chosen, scoring="sigmoid", normal="sum", bias=bias)
    x = g.embed("model.embed_tokens")  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = g.rms_norm(x, "input_layernorm")
            q = g.linear(y, "self_attn.q_proj", q_width, Role.QKV)
            k = g.linear(y, "self_attn.k_proj", kv_width, Role.QKV)
            v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV))  # n g e
            q = g.heads(g.rms_norm(q, "self_attn.q_norm"))  # n h e
            k = g.heads(g.rms_norm(k, "self_attn.k_norm"))  # n g e
            q = g.rope(q, config.rope(i), dims=config.rotary_dim)
            k = g.rope(k, config.rope(i), dims=config.rotary_dim)
            y = g.flat(g.attention(q, k, v))  # n (h e)
            x = g.add(x, g.linear(y, "self_attn.o_proj", d, Role.ATTENTION_OUTPUT))
            y = g.rms_norm(x, "post_attention_layernorm")
            scores = router(g, y, "block_sparse_moe.gate", routing)  # n x
            y = swiglu_experts(g, y, scores, "block_sparse_moe.experts", f, routing, _TABLES)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"))  # r v


def _derive(values: dict[str, object]) -> list[str]:
    """Checks that both ways to say how much of a head turns say the same, and all layers see all.

    rotary_dim counts where the rope names no share.
    """
    problems = []
    dims, head_dim = values.get("rotary_dim"), values["head_dim"]
    parameters = values.get("rope_parameters") or values.get("rope_scaling") or {}
    assert isinstance(parameters, Mapping)
    assert isinstance(head_dim, int)
    part = finite(parameters.get("partial_rotary_factor", values.get("partial_rotary_factor")))
    if dims is not None and part is not None and int(head_dim * part) != dims:
        problems.append(f"rotary_dim = {dims}  (partial_rotary_factor says {head_dim * part:g})")
    if dims is not None and (dims % 2 or dims > head_dim):  # type: ignore[operator]
        problems.append(f"rotary_dim = {dims}  (wanted pairs out of the {head_dim} of a head)")
    kinds, layers = values.get("attn_type_list"), values["num_hidden_layers"]
    if kinds is not None and list(kinds) != [1] * layers:  # type: ignore[call-overload,operator]
        problems.append("attn_type_list has another kind than 1, attention to all tokens")
    return problems


FAMILY = Family(
    "minimax_m2",
    spec=ConfigSpec(
        understood=frozenset({"rotary_dim", "use_qk_norm"}),
        neutral=frozenset(
            {
                *("output_router_logits", "router_aux_loss_coef", "router_jitter_noise"),
                # Layers that predict further tokens; what MiniMax-01 had and these do not.
                *("num_mtp_modules", "mtp_transformer_layers", "use_mtp", "max_model_len"),
                *("mlp_intermediate_size", "shared_moe_mode"),
            }
        ),
        keys={
            "num_local_experts": SIZE,
            "num_experts_per_tok": SIZE,
            "attn_type_list": listed(size(0, 1)),
            "scoring_func": word("sigmoid"),
            "qk_norm_type": word("per_layer"),
        },
        spellings={"num_experts": "num_local_experts"},
        defaults={
            "vocab_size": 200_064,
            "hidden_size": 3_072,
            "intermediate_size": 1_536,
            "num_hidden_layers": 62,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 196_608,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "rope_theta": 5_000_000.0,
            "use_qk_norm": True,
            "use_routing_bias": True,
            "shared_intermediate_size": 0,
            "layernorm_full_attention_beta": 1.0,
            "layernorm_linear_attention_beta": 1.0,
            "layernorm_mlp_beta": 1.0,
        },
        partial_rotary=1.0,
        accepts={"hidden_act": ("silu",), "use_qk_norm": (True,)},
        derive=_derive,
    ),
    build=build,
    stacks=(r"(model\.layers\.\d+\.block_sparse_moe\.experts)\.(\d+)(\.w[123])\.weight",),
)
