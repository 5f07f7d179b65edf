"""MiMo-V2-Flash.

Differs from `qwen3.py`: no norms of heads; values are narrower than keys and multiplied by a
constant; a third of each head turns; sliding layers have more key and value heads than full ones, a
rope of their own and a sink a head; all layers but the first, or those that `mlp_layer_types` or
`moe_layer_freq` say, have a mixture of experts without a shared one, chosen by sigmoids and a
steered bias. Prediction layers (`mtp.…`) are no part of a pass and are not counted.

Published configs say in keys of their own what slides (`hybrid_layer_pattern`, 1) and how far:
`sliding_window_size` tokens before the one that asks.

Source: arXiv:2601.02780 section 2; transformers 5.24, models/mimo_v2_flash. Weight names as in
the checkpoints, where each expert has tables of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from forwardpass.architectures.family import Family
from forwardpass.architectures.qwen2_moe import EXPERT_ROWS
from forwardpass.config import ConfigSpec, ModelConfig
from forwardpass.config_kinds import FLAG, NUMBER, SIZE, WORD, listed, size, word
from forwardpass.config_rope import RopeSpec
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.experts import Routing, router, swiglu, swiglu_experts
from forwardpass.graph.graph import Graph, Role, Value
from forwardpass.rope import FULL, SLIDING, shown

_DENSE, _SPARSE = "dense", "sparse"


def build(config: ModelConfig) -> Graph:
    """The graph of a MiMo-V2-Flash with these sizes."""
    g = GraphBuilder(config)
    routing = Routing(
        config.whole("n_routed_experts"),
        config.whole("num_experts_per_tok"),
        scoring="sigmoid",
        normal="sum" if config.flag("norm_topk_prob") else "none",
        factor=config.number("routed_scaling_factor"),
        bias="mlp.gate.e_score_correction_bias",
        groups=config.whole("n_group"),
        kept=config.whole("topk_group"),
        group_best=2,
    )
    width = config.whole("moe_intermediate_size")
    x = g.embed("model.embed_tokens")  # n d
    for i, kind in enumerate(config.entries("mlp_layer_types")):
        with g.layer(f"model.layers.{i}", i):
            x = g.add(x, _attention(g, g.rms_norm(x, "input_layernorm"), i))
            y = g.rms_norm(x, "post_attention_layernorm")
            if kind == _DENSE:
                y = swiglu(g, y, "mlp", config.intermediate_size)
            else:
                scores = router(g, y, "mlp.gate", routing)  # n x
                y = swiglu_experts(g, y, scores, "mlp.experts", width, routing)
            x = g.add(x, y)
    x = g.rms_norm(g.wanted_rows(x), "model.norm")  # r d
    return g.finish(g.head(x, tied_to="model.embed_tokens"), proven=False)  # r v


def _attention(g: GraphBuilder, y: Value, i: int) -> Value:
    config, attn, e = g.config, g.config.attention_bias, g.config.head_dim
    slides = config.layer_types[i] == SLIDING
    groups = config.whole("swa_num_key_value_heads") if slides else config.num_key_value_heads
    heads, w = config.num_attention_heads, config.whole("v_head_dim")
    q = g.heads(g.linear(y, "self_attn.q_proj", heads * e, Role.QKV, attn))  # n h e
    k = g.heads(g.linear(y, "self_attn.k_proj", groups * e, Role.QKV, attn))  # n g e
    v = g.heads(g.linear(y, "self_attn.v_proj", groups * w, Role.QKV, attn), w)  # n g w
    if config.has("attention_value_scale"):
        v = g.scale(v, config.number("attention_value_scale"))
    q, k = g.rope(q, config.rope(i)), g.rope(k, config.rope(i))
    sinks = "self_attn.attention_sink_bias" if slides else None
    y = g.flat(g.attention(q, k, v, window=config.window(i), sinks=sinks))  # n (h w)
    return g.linear(y, "self_attn.o_proj", config.hidden_size, Role.ATTENTION_OUTPUT)


def _complete(values: dict[str, object]) -> list[str]:
    """Says which layers slide and which are dense, from either spelling; what cannot be."""
    layers, groups = values["num_hidden_layers"], values["num_key_value_heads"]
    assert isinstance(layers, int)
    assert isinstance(groups, int)
    every_sixth = [FULL if i == 0 or i % 6 == 5 else SLIDING for i in range(layers)]
    problems = _one_of(values, "layer_types", "hybrid_layer_pattern", (FULL, SLIDING), every_sixth)
    mixed = [_DENSE] + [_SPARSE] * (layers - 1)
    problems += _one_of(values, "mlp_layer_types", "moe_layer_freq", (_DENSE, _SPARSE), mixed)
    kinds = values["mlp_layer_types"]
    if not isinstance(kinds, list) or len(kinds) != layers:
        problems.append(f"mlp_layer_types is not a list of {layers} entries")
    values.setdefault("swa_num_key_value_heads", 2 * groups)
    values.setdefault("routed_scaling_factor", 1.0)
    chunk = values.pop("attention_chunk_size", None)
    before, window = values.pop("sliding_window_size", None), values["sliding_window"]
    if chunk not in (None, before, window):
        problems.append(f"attention_chunk_size = {shown(chunk)}  (wanted the window's)")
    if isinstance(before, int):
        values["sliding_window"] = before + 1
    for key, like in _AS_ELSEWHERE.items():
        if values.get(key) not in (None, values[like]):
            problems.append(f"{key} = {shown(values[key])}  (wanted {like}, {shown(values[like])})")
    heads, sliding = values["num_attention_heads"], values["swa_num_key_value_heads"]
    assert isinstance(heads, int)
    assert isinstance(sliding, int)
    if heads % sliding:
        problems.append(f"swa_num_key_value_heads = {sliding} does not divide {heads} heads")
    experts, parts = values["n_routed_experts"], values["n_group"]
    assert isinstance(experts, int)
    assert isinstance(parts, int)
    if experts % parts:
        problems.append(f"n_group = {parts} does not divide {experts} experts")
    return problems


def _one_of(
    values: dict[str, object],
    names: str,
    numbers: str,
    meaning: tuple[str, str],
    absent: list[str],
) -> list[str]:
    """Sets the list `names`, from itself or from 0 and 1 in `numbers`; what they disagree about."""
    coded = values.pop(numbers, None)
    said = None if not isinstance(coded, list) else [meaning[entry] for entry in coded]
    stated = values.setdefault(names, said or absent)
    return [] if said in (None, stated) else [f"{numbers} contradicts {names}"]


_AS_ELSEWHERE: Mapping[str, str] = {
    "swa_num_attention_heads": "num_attention_heads",
    "swa_head_dim": "head_dim",
    "swa_v_head_dim": "v_head_dim",
}

FAMILY = Family(
    "mimo_v2_flash",
    spec=ConfigSpec(
        understood=frozenset({"attention_bias", "sliding_window", "rope_local_base_freq"}),
        neutral=frozenset({"output_router_logits"}),
        spellings={"layernorm_epsilon": "norm_eps", "swa_rope_theta": "rope_local_base_freq"},
        keys={
            **dict.fromkeys((*_AS_ELSEWHERE, "swa_num_key_value_heads", "v_head_dim"), SIZE),
            **dict.fromkeys(("n_routed_experts", "num_experts_per_tok"), SIZE),
            **dict.fromkeys(("n_group", "topk_group", "moe_intermediate_size"), SIZE),
            **dict.fromkeys(("sliding_window_size", "attention_chunk_size"), SIZE),
            **dict.fromkeys(("hybrid_layer_pattern", "moe_layer_freq"), listed(size(0, 1))),
            **dict.fromkeys(("routed_scaling_factor", "attention_value_scale"), NUMBER),
            **dict.fromkeys(("add_swa_attention_sink_bias", "norm_topk_prob"), FLAG),
            "mlp_layer_types": listed(word(_DENSE, _SPARSE)),
            **dict.fromkeys(("scoring_func", "topk_method"), WORD),
        },
        defaults={
            "vocab_size": 152_576,
            "hidden_size": 4_096,
            "intermediate_size": 16_384,
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 192,
            "v_head_dim": 128,
            "max_position_embeddings": 131_072,
            "hidden_act": "silu",
            "norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "sliding_window": 129,
            "rope_theta": 5_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "n_routed_experts": 256,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 2_048,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "attention_value_scale": 0.707,
        },
        accepts={
            "hidden_act": ("silu",),
            "scoring_func": ("sigmoid",),
            "topk_method": ("noaux_tc",),
            "add_swa_attention_sink_bias": (True,),
        },
        derive=_complete,
        ropes=RopeSpec(own_sliding=True),
        partial_rotary=0.334,
    ),
    build=build,
    stacks=(EXPERT_ROWS,),
    not_run=(r"model\.mtp\..*",),
)
