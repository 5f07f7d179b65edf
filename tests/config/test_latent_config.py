"""Configs with latent attention, indexers and steered routers: what is understood, what refused."""

from __future__ import annotations

import pytest

from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError
from forwardpass.graph.graph import Node

Raw = dict[str, object]
_SIZES: Raw = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
}
_EXPERTS: Raw = {
    **_SIZES,
    "moe_intermediate_size": 24,
    "n_routed_experts": 12,
    "n_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
}
_LATENT: Raw = {
    **_EXPERTS,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 6,
    "v_head_dim": 10,
    "first_k_dense_replace": 1,
}
CONFIGS: dict[str, Raw] = {
    "deepseek_v2": {**_LATENT},
    "deepseek_v3": {**_LATENT},
    "deepseek_v32": {**_LATENT},
    "glm_moe_dsa": {**_LATENT},
    "glm4_moe": {**_EXPERTS, "num_key_value_heads": 2, "head_dim": 16},
    "minimax_m2": {**_SIZES, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 6},
}


def nodes(family: str, **settings: object) -> tuple[Node, ...]:
    raw = {"model_type": family, **CONFIGS[family], **settings}
    return describe_config("a model", raw).graph.nodes


def scales(family: str, **settings: object) -> set[object]:
    return {
        node.attributes["scale"] for node in nodes(family, **settings) if "scale" in node.attributes
    }


def test_scores_are_scaled_by_what_yarn_lengthens_whole_heads_by() -> None:
    """0.1 × 0.8 × ln 40 + 1 = 1.29511..., squared, over the root of 12 + 6."""
    yarn = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
    plain = 18**-0.5
    assert scales("deepseek_v3") == scales("deepseek_v3", rope_scaling=yarn) == {plain}
    (scaled,) = scales("deepseek_v3", rope_scaling={**yarn, "mscale_all_dim": 0.8})
    assert scaled == pytest.approx(plain * 1.2951103563**2, rel=1e-9)


def test_groups_choose_only_where_the_method_says_so() -> None:
    def groups(**settings: object) -> set[object]:
        found = nodes("deepseek_v2", **settings)
        return {node.attributes["groups"] for node in found if "groups" in node.attributes}

    assert groups() == {1}
    assert groups(topk_method="group_limited_greedy") == {4}


def test_the_layers_that_choose_what_attention_reads_follow_list_pattern_or_period() -> None:
    def choosing(**settings: object) -> list[int | None]:
        found = nodes("glm_moe_dsa", num_hidden_layers=6, **settings)
        return [node.layer for node in found if node.op.name == "select_tokens"]

    assert choosing() == [0, 1, 2, 3, 4, 5]
    assert choosing(index_topk_freq=3) == [0, 1, 4]
    assert choosing(index_topk_freq=4, index_skip_topk_offset=3) == [0, 1, 2]
    assert choosing(index_topk_pattern="FSSFSF") == [0, 3, 5]
    assert choosing(indexer_types=["full", "shared"] * 3) == [0, 2, 4]


def test_without_shared_experts_there_are_none() -> None:
    found = nodes("deepseek_v3", n_shared_experts=None)
    assert not [w.name for node in found for w in node.weights if "shared" in w.name]


REFUSED: dict[str, tuple[str, Raw]] = {
    "other heads": ("deepseek_v3", {"num_key_value_heads": 2}),
    "another head": ("deepseek_v3", {"qk_head_dim": 19}),
    "scores": ("deepseek_v3", {"scoring_func": "softmax"}),
    "choice": ("deepseek_v3", {"topk_method": "greedy"}),
    "normalised": ("deepseek_v2", {"norm_topk_prob": True}),
    "frequency": ("deepseek_v2", {"moe_layer_freq": 2}),
    "biases": ("deepseek_v2", {"mlp_bias": True}),
    "no groups": ("deepseek_v2", {"topk_method": "group_limited_greedy", "n_group": None}),
    "kinds": ("deepseek_v32", {"mlp_layer_types": ["dense"]}),
    "attention": ("deepseek_v32", {"layer_types": ["full_attention"] * 3}),
    "no rank": ("deepseek_v32", {"q_lora_rank": None}),
    "nothing to share": ("glm_moe_dsa", {"indexer_types": ["shared"] * 3}),
    "missing": ("deepseek_v2", {"num_experts_per_tok": None}),
    "no head": ("deepseek_v3", {"qk_rope_head_dim": None}),
    "no values": ("deepseek_v3", {"v_head_dim": None}),
    "odd pairs": ("deepseek_v3", {"qk_rope_head_dim": 7}),
    "no choice": ("glm4_moe", {"topk_method": "greedy"}),
    "pattern": ("glm_moe_dsa", {"index_topk_pattern": "FX"}),
    "shares": ("minimax_m2", {"rotary_dim": 8, "partial_rotary_factor": 0.25}),
    "linear attention": ("minimax_m2", {"attn_type_list": [1, 0]}),
    "shared": ("minimax_m2", {"shared_intermediate_size": 8}),
    "no norms": ("minimax_m2", {"use_qk_norm": False}),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_cannot_be_honoured_is_refused_by_its_key(what: str) -> None:
    family, setting = REFUSED[what]
    with pytest.raises(ConfigError) as caught:
        nodes(family, **setting)
    assert any(key in str(caught.value) for key in (*setting, "indexer_types", "rotary"))
