"""DeepSeek-V2, V2-Lite, V2.5 and Coder-V2.

Differs from `llama.py`: keys and values are expanded from one narrow row a token, which alone is
cached, and queries from a narrow row too where the config sets `q_lora_rank`; neighbors turn, not
halves, and only in a part of each head that all heads' keys share; scores are scaled by what YaRN's
`mscale_all_dim` asks for. From layer `first_k_dense_replace` on, the MLP is a mixture: some experts
take every token, as one wide MLP, and of the others the softmax chooses, from the best groups of
them (as good as their best expert) where `topk_method` says so. The chosen scores weigh as they
are, times `routed_scaling_factor`.

Source: arXiv:2405.04434 sections 2.1 and 2.2. Weight names as in the checkpoints, where each expert
has tables of its own.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, NUMBER, SIZE, size, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu, swiglu_experts
from forwardpass.graph.graph import Graph, Value
from forwardpass.graph.latent import Latent, latent_attention

GROUPED = "group_limited_greedy"


def build(config: ModelConfig) -> Graph:
    """The graph of a DeepSeek-V2 with these sizes."""
    g = GraphBuilder(config)
    sizes = Latent.of(config)
    grouped = config.word("topk_method") == GROUPED
    routing = Routing(
        config.whole("n_routed_experts"),
        config.whole("num_experts_per_tok"),
        factor=config.number("routed_scaling_factor"),
        groups=config.whole("n_group") if grouped else 1,
        kept=config.whole("topk_group") if grouped else 1,
    )
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


def shared_and_routed(g: GraphBuilder, x: Value, routing: Routing) -> Value:
    """The experts that take every token, as one wide MLP, and the chosen ones; their sum, n d."""
    width = g.config.whole("moe_intermediate_size")
    scores = router(g, x, "mlp.gate", routing)  # n x
    y = swiglu_experts(g, x, scores, "mlp.experts", width, routing)
    if not g.config.has("n_shared_experts"):
        return y
    shared = swiglu(g, x, "mlp.shared_experts", width * g.config.whole("n_shared_experts"))
    return g.add(y, shared)


def one_key_a_head(values: dict[str, object]) -> list[str]:
    """Checks what latent attention fixes, and states what of a head turns as its width.

    transformers overwrites a config's head_dim with that, too.
    """
    still, turned = values.get("qk_nope_head_dim"), values.get("qk_rope_head_dim")
    if not isinstance(still, int) or not isinstance(turned, int):
        return ["qk_nope_head_dim or qk_rope_head_dim is null"]
    values["head_dim"] = turned
    heads = values["num_attention_heads"]
    problems = []
    if values.setdefault("num_key_value_heads", heads) != heads:
        problems.append(
            f"num_key_value_heads = {values['num_key_value_heads']}  (in this family each of the "
            f"{heads} attention heads has a key and a value of its own)"
        )
    together = values.pop("qk_head_dim", still + turned)
    if together != still + turned:
        problems.append(
            f"qk_head_dim = {together}  (it is qk_nope_head_dim + qk_rope_head_dim, "
            f"{still + turned})"
        )
    return problems


# Keys of latent attention and of its mixtures, that several families share.
LATENT_KEYS = {
    **dict.fromkeys(
        (
            *("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "v_head_dim", "qk_head_dim"),
            *("moe_intermediate_size", "n_routed_experts", "n_shared_experts"),
            *("num_experts_per_tok", "n_group", "topk_group"),
        ),
        SIZE,
    ),
    "qk_nope_head_dim": SIZE,
    "first_k_dense_replace": size(0),
    "moe_layer_freq": SIZE,
    "routed_scaling_factor": NUMBER,
    "norm_topk_prob": FLAG,
}
# How experts were kept in balance and spread over machines while training.
TRAINING = frozenset({"aux_loss_alpha", "seq_aux", "ep_size", "output_router_logits"})
EXPERT_STACKS = (r"(model\.layers\.\d+\.mlp\.experts)\.(\d+)(\.(?:gate|up|down)_proj)\.weight",)

FAMILY = Family(
    "deepseek_v2",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias"}),
        neutral=TRAINING,
        keys={
            **LATENT_KEYS,
            "scoring_func": word("softmax"),
            "topk_method": word("greedy", GROUPED),
        },
        spellings={"num_experts": "n_routed_experts"},
        defaults={
            "vocab_size": 102_400,
            "hidden_size": 4_096,
            "intermediate_size": 11_008,
            "moe_intermediate_size": 1_407,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "max_position_embeddings": 2_048,
            "hidden_act": "silu",
            "norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "first_k_dense_replace": 0,
            "kv_lora_rank": 512,
            "q_lora_rank": 1_536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "routed_scaling_factor": 1.0,
            "topk_method": "greedy",
            "norm_topk_prob": False,
            "moe_layer_freq": 1,
            "scoring_func": "softmax",
        },
        accepts={
            "hidden_act": ("silu",),
            "moe_layer_freq": (1,),
            # The published code divides the chosen scores by their sum, transformers does not.
            "norm_topk_prob": (False,),
        },
        derive=one_key_a_head,
    ),
    build=build,
    stacks=EXPERT_STACKS,
)
