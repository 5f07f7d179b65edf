"""Granite 3 with experts: 1B-A400M and 3B-A800M.

Differs from `granite.py`: instead of one MLP there are several, of which a router chooses some for
each token; their results are weighed by the softmax of the chosen ones' scores. Gate and up tables
of all experts are one.

Source: arXiv:2408.13359 and "Granite 3.0 Language Models" (IBM, 2024) section 2. Config keys and
weight names as in transformers 5.24, models/granitemoe, and in the checkpoints.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mamba import nulls
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import size
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, combine, expert_linear, route, router, to_experts
from forwardpass.graph.graph import Graph, Role, Value

MULTIPLIERS = frozenset(
    {
        *("embedding_multiplier", "attention_multiplier", "residual_multiplier"),
        *("logits_scaling", "attention_bias"),
    }
)
# Training, and how the weights began.
NEUTRAL_KEYS = frozenset(
    {"init_method", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise"}
)
EXPERT_KEYS = {"num_local_experts": size(0), "num_experts_per_tok": size(0)}
DEFAULTS: dict[str, object] = {
    "vocab_size": 32_000,
    "hidden_size": 4_096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2_048,
    "hidden_act": "silu",
    "norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "embedding_multiplier": 1.0,
    "attention_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "logits_scaling": 1.0,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "normalization_function": "rmsnorm",  # neutral at this value
}


def build(config: ModelConfig) -> Graph:
    """The graph of a Granite with experts of these sizes."""
    g = GraphBuilder(config)
    x = g.scale(g.embed("model.embed_tokens"), config.embedding_multiplier)  # n d
    for i in range(config.num_hidden_layers):
        with g.layer(f"model.layers.{i}", i):
            y = attended(g, g.rms_norm(x, "input_layernorm"), i)
            x = g.add(x, g.scale(y, config.residual_multiplier))
            y = chosen_experts(g, g.rms_norm(x, "post_attention_layernorm"))
            x = g.add(x, g.scale(y, config.residual_multiplier))
    return finished(g, x)


def attended(g: GraphBuilder, y: Value, layer: int, turned: bool = True) -> Value:
    """Attention of layer `layer`, with its projections, n d; `turned` by position, or not."""
    config = g.config
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    attn = config.attention_bias
    q = g.heads(g.linear(y, "self_attn.q_proj", q_width, Role.QKV, attn))  # n h e
    k = g.heads(g.linear(y, "self_attn.k_proj", kv_width, Role.QKV, attn))  # n g e
    v = g.heads(g.linear(y, "self_attn.v_proj", kv_width, Role.QKV, attn))  # n g e
    if turned:
        q, k = g.rope(q, config.rope(layer)), g.rope(k, config.rope(layer))
    y = g.flat(g.attention(q, k, v, scale=config.attention_multiplier))  # n (h e)
    return g.linear(y, "self_attn.o_proj", config.hidden_size, Role.ATTENTION_OUTPUT, attn)


def chosen_experts(g: GraphBuilder, x: Value) -> Value:
    """What the chosen experts add up to, n d."""
    name, f = "block_sparse_moe", g.config.intermediate_size
    routing = Routing(
        g.config.whole("num_local_experts"),
        g.config.whole("num_experts_per_tok"),
        scoring="none",
        normal="softmax",
    )
    scores = router(g, x, f"{name}.router.layer", routing)  # n x
    chosen, weights = route(g, scores, routing)  # n k
    y = to_experts(g, x, chosen)  # n k d
    both = expert_linear(g, y, chosen, f"{name}.input_linear", 2 * f, routing, Role.MLP_UP)
    y = g.silu_multiply(g.columns(both, 0, f), g.columns(both, f, 2 * f))  # n k f
    d = g.config.hidden_size
    rows = expert_linear(g, y, chosen, f"{name}.output_linear", d, routing, Role.MLP_DOWN)
    return combine(g, rows, weights)


def finished(g: GraphBuilder, x: Value, *, proven: bool = True) -> Graph:
    """The graph that ends behind the layers' x; `proven` as `GraphBuilder.finish` has it."""
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    logits = g.head(x, tied_to="model.embed_tokens")  # r v
    return g.finish(g.scale(logits, 1 / g.config.logits_scaling), proven=proven)


def experts_and_choice(values: dict[str, object]) -> list[str]:
    """What is wrong with so many chosen experts."""
    if problems := nulls(values, EXPERT_KEYS):
        return problems
    experts, chosen = values["num_local_experts"], values["num_experts_per_tok"]
    assert isinstance(experts, int)
    assert isinstance(chosen, int)
    if 1 <= chosen <= experts:
        return []
    return [f"num_experts_per_tok = {chosen}  (wanted one to num_local_experts, {experts})"]


FAMILY = Family(
    "granitemoe",
    spec=ConfigSpec(
        understood=MULTIPLIERS,
        neutral=NEUTRAL_KEYS,
        keys=EXPERT_KEYS,
        defaults=DEFAULTS,
        accepts={"hidden_act": ("silu",)},
        derive=experts_and_choice,
    ),
    build=build,
)
