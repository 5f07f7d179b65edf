"""Nemotron-H, Nemotron Nano 2 and 3, Nemotron 3 Super and Ultra, counted only.

Differs from `llama.py`: a layer is one norm and one of four mixers: a Mamba-2 scan, attention
without positions, an MLP without a gate (squared ReLU), or experts of that form. Experts may work
in a narrower width of their own (`moe_latent_size`), between two projections that all share; beside
them there is an MLP that every token passes. The router's sigmoids are weighed as in DeepSeek-V3.

Source: arXiv:2504.03624 section 2, arXiv:2512.20856 section 2. Config keys and weight names as in
transformers 5.24, models/nemotron_h, and in the checkpoints, where each expert has tables of its
own. Layers that predict further tokens (`mtp`) are not read.
"""

from __future__ import annotations

from forwardpass.architectures.family import Family
from forwardpass.architectures.mamba import NEUTRAL_KEYS, nulls, standard_names
from forwardpass.architectures.mamba2 import shared_groups
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, MAX_LAYERS, NUMBER, SIZE, Kind, word
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, combine, expert_linear, route, router, to_experts
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.graph.mixers import StateSpace, mamba2
from forwardpass.rope import FULL, RECURRENT_LAYER, shown

_MLP, _EXPERTS = "mlp", "moe"
_LETTERS = {"M": RECURRENT_LAYER, "*": FULL, "-": _MLP, "E": _EXPERTS}
_STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def build(config: ModelConfig) -> Graph:
    """The graph of a Nemotron-H with these sizes."""
    g = GraphBuilder(config)
    scan = StateSpace(
        heads=config.whole("mamba_num_heads"),
        head=config.whole("mamba_head_dim"),
        state=config.whole("ssm_state_size"),
        groups=config.whole("n_groups"),
        taps=config.whole("conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
        width=_STATE_BYTES[config.word("mamba_ssm_cache_dtype")],
    )
    x = g.embed("backbone.embeddings")  # n d
    for i, kind in enumerate(config.layer_types):
        with g.layer(f"backbone.layers.{i}", i):
            y = g.rms_norm(x, "norm")
            if kind == RECURRENT_LAYER:
                y = mamba2(g, y, "mixer", scan)
            elif kind == FULL:
                y = _attended(g, y)
            elif kind == _MLP:
                y = _mlp(g, y, "mixer", config.intermediate_size)
            else:
                width = config.whole("moe_shared_expert_intermediate_size")
                y = g.add(_experts(g, y), _mlp(g, y, "mixer.shared_experts", width))
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "backbone.norm_f")  # r d
    return g.finish(g.head(x, tied_to="backbone.embeddings"), proven=False)  # r v


def _attended(g: GraphBuilder, y: Value) -> Value:
    config = g.config
    q_width = config.num_attention_heads * config.head_dim
    kv_width = config.num_key_value_heads * config.head_dim
    q = g.heads(g.linear(y, "mixer.q_proj", q_width, Role.QKV))  # n h e
    k = g.heads(g.linear(y, "mixer.k_proj", kv_width, Role.QKV))  # n g e
    v = g.heads(g.linear(y, "mixer.v_proj", kv_width, Role.QKV))  # n g e
    y = g.flat(g.attention(q, k, v))  # n (h e)
    return g.linear(y, "mixer.o_proj", config.hidden_size, Role.ATTENTION_OUTPUT)


def _mlp(g: GraphBuilder, y: Value, name: str, width: int) -> Value:
    bias = g.config.mlp_bias
    y = g.linear(y, f"{name}.up_proj", width, Role.MLP_UP, bias)  # n f
    y = g.apply("relu_squared", [y])
    return g.linear(y, f"{name}.down_proj", g.config.hidden_size, Role.MLP_DOWN, bias)


def _experts(g: GraphBuilder, x: Value) -> Value:
    """What the chosen experts add up to, n d."""
    config = g.config
    d, f, bias = config.hidden_size, config.whole("moe_intermediate_size"), config.mlp_bias
    routing = Routing(
        config.whole("n_routed_experts"),
        config.whole("num_experts_per_tok"),
        scoring="sigmoid",
        normal="sum" if config.flag("norm_topk_prob") else "none",
        factor=config.number("routed_scaling_factor"),
        bias="mixer.gate.e_score_correction_bias",
        groups=config.whole("n_group"),
        kept=config.whole("topk_group"),
        group_best=2,
    )
    latent = config.whole("moe_latent_size") if config.has("moe_latent_size") else None
    chosen, weights = route(g, router(g, x, "mixer.gate", routing), routing)  # n k
    y = x if latent is None else g.linear(x, "mixer.fc1_latent_proj", latent, Role.MLP_UP, bias)
    y = to_experts(g, y, chosen)  # n k l
    y = expert_linear(g, y, chosen, "mixer.experts.up_proj", f, routing, Role.MLP_UP)
    y = g.apply("relu_squared", [y])  # n k f
    rows = expert_linear(
        g, y, chosen, "mixer.experts.down_proj", latent or d, routing, Role.MLP_DOWN
    )
    y = combine(g, rows, weights)
    return y if latent is None else g.linear(y, "mixer.fc2_latent_proj", d, Role.MLP_DOWN, bias)


_KEYS: dict[str, Kind] = {
    **dict.fromkeys(
        (
            *("ssm_state_size", "mamba_num_heads", "mamba_head_dim", "n_groups", "conv_kernel"),
            *("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
            *("moe_shared_expert_intermediate_size", "moe_latent_size", "n_group", "topk_group"),
            "n_shared_experts",
        ),
        SIZE,
    ),
    **dict.fromkeys(("use_bias", "use_conv_bias", "norm_topk_prob"), FLAG),
    "routed_scaling_factor": NUMBER,
    "hybrid_override_pattern": word(),
    "mamba_ssm_cache_dtype": word(*_STATE_BYTES),
    **dict.fromkeys(("mamba_hidden_act", "mlp_hidden_act"), word()),
}
_OPTIONAL = ("moe_latent_size", "hybrid_override_pattern")


def _layers(values: dict[str, object]) -> list[str]:
    """Says what each layer is; the list or the pattern also says how many there are."""
    if problems := nulls(values, _KEYS, _OPTIONAL):
        return problems
    standard_names(values)
    pattern, kinds = values.get("hybrid_override_pattern"), values.get("layer_types")
    if isinstance(pattern, str):
        wrong = sorted(set(pattern) - set(_LETTERS))
        if wrong or not 1 <= len(pattern) <= MAX_LAYERS:
            return [f"hybrid_override_pattern = {shown(pattern)}  (wanted letters of M*-E)"]
        kinds = values.setdefault("layer_types", [_LETTERS[letter] for letter in pattern])
        if kinds != [_LETTERS[letter] for letter in pattern]:
            return [f"hybrid_override_pattern = {shown(pattern)}  (the layers' list differs)"]
    elif kinds is None:
        kinds = values["layer_types"] = [RECURRENT_LAYER, _EXPERTS, FULL, _MLP]
    if not isinstance(kinds, list) or not 1 <= len(kinds) <= MAX_LAYERS:
        return [f"layers_block_type is not a list of 1 to {MAX_LAYERS:,} entries"]
    values.setdefault("num_hidden_layers", len(kinds))
    problems = shared_groups(values["mamba_num_heads"], values["n_groups"])
    return problems + (_choice(values) if _EXPERTS in kinds else [])


def _choice(values: dict[str, object]) -> list[str]:
    """What is wrong with so many experts in so many groups."""
    experts, chosen, groups, kept = (
        values[key] for key in ("n_routed_experts", "num_experts_per_tok", "n_group", "topk_group")
    )
    assert isinstance(experts, int)
    assert isinstance(chosen, int)
    assert isinstance(groups, int)
    assert isinstance(kept, int)
    if experts % groups == 0 and kept <= groups and chosen <= experts // groups * kept:
        return []
    return [f"{chosen} of {experts} experts cannot be chosen from {kept} of {groups} groups"]


FAMILY = Family(
    "nemotron_h",
    spec=ConfigSpec(
        understood=frozenset({"mlp_bias"}),
        # Heads and their size say how wide a mixer is, not `expand`; its time step has no tables
        # of a rank. Attention knows no positions.
        neutral=NEUTRAL_KEYS
        | {
            *("chunk_size", "expand", "moe_shared_expert_overlap", "output_router_logits"),
            *("partial_rotary_factor", "rope_theta", "time_step_rank"),
            *("mtp_hybrid_override_pattern", "mtp_layers_block_type", "num_nextn_predict_layers"),
        },
        spellings={
            "layers_block_type": "layer_types",
            "layer_norm_epsilon": "norm_eps",
            "attention_head_dim": "head_dim",
            "num_local_experts": "n_routed_experts",
            "mamba_n_groups": "n_groups",
            "mamba_d_conv": "conv_kernel",
            "mamba_expand": "expand",
            "mamba_conv_bias": "use_conv_bias",
        },
        keys=_KEYS,
        defaults={
            "vocab_size": 131_072,
            "hidden_size": 4_096,
            "intermediate_size": 21_504,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 4_096,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "ssm_state_size": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "conv_kernel": 4,
            "use_bias": False,
            "use_conv_bias": True,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "moe_intermediate_size": 7_688,
            "moe_shared_expert_intermediate_size": 7_688,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.0,
            "mamba_ssm_cache_dtype": "float32",
            "mamba_hidden_act": "silu",
            "mlp_hidden_act": "relu2",
        },
        accepts={
            "mamba_hidden_act": ("silu",),
            "mlp_hidden_act": ("relu2",),
            "n_shared_experts": (1,),
            "tie_word_embeddings": (False,),
        },
        derive=_layers,
        rope=False,
        layer_kinds=(RECURRENT_LAYER, _MLP, _EXPERTS),
    ),
    build=build,
    embedding="backbone.embeddings.weight",
    places={"model.": "backbone."},
    stacks=(r"(backbone\.layers\.\d+\.mixer\.experts)\.(\d+)(\.(?:up|down)_proj)\.weight",),
    not_run=(r"mtp\..*",),
)
