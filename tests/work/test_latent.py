"""Latent attention counted: published figures, closed formulas, and what a pass really does.

The figures are those of DeepSeek-V2-Lite, DeepSeek-V3, DeepSeek-V3.2 and GLM-4.5-Air: totals of
published files, and work by formula: h heads, a elements of a query that stay and b that turn,
w of a value, c of the latent row.
"""

from __future__ import annotations

import pytest

from backends.tiny import RandomWeights, random_tokens
from forwardpass.backends.recorder import Recorder
from forwardpass.backends.reference import Reference
from forwardpass.describe import Description, describe_config
from forwardpass.graph.graph import LATENT, Graph, Role
from forwardpass.work.count import count_pass, kv_bytes
from forwardpass.work.latent import LatentCount
from forwardpass.work.passes import PassShape, SequenceShape
from forwardpass.work.report import report
from forwardpass.work.summary import Asked, Count, count_model

Raw = dict[str, object]
LITE: Raw = {
    "model_type": "deepseek_v2",
    "vocab_size": 102_400,
    "hidden_size": 2_048,
    "intermediate_size": 10_944,
    "moe_intermediate_size": 1_408,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "first_k_dense_replace": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "q_lora_rank": None,
    "torch_dtype": "bfloat16",
}
V3: Raw = {"model_type": "deepseek_v3", "torch_dtype": "bfloat16"}
V32: Raw = {"model_type": "deepseek_v32", "num_nextn_predict_layers": 1, "dtype": "bfloat16"}
AIR: Raw = {
    "model_type": "glm4_moe",
    "head_dim": 128,
    "attention_bias": True,
    "dtype": "bfloat16",
}
# A tile of 128 × 128 elements has one scale in the published files of F8.
TILE = 128
TINY: Raw = {
    "vocab_size": 61,
    "hidden_size": 24,
    "intermediate_size": 40,
    "moe_intermediate_size": 10,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "n_group": 4,
    "topk_group": 2,
    "kv_lora_rank": 14,
    "q_lora_rank": 18,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 6,
    "v_head_dim": 10,
    "first_k_dense_replace": 1,
}


def described(raw: Raw) -> Description:
    return describe_config("a model", raw)


def counted(raw: Raw) -> Count:
    return count_model(described(raw))


def both_forms(count: Count) -> LatentCount:
    assert count.latent is not None
    return count.latent


def test_the_smallest_published_model_has_its_published_work() -> None:
    count = counted(LITE)
    latent = both_forms(count)
    assert count.parameters.unique == 15_706_484_224
    assert count.parameters.active == 2_661_150_208
    assert count.flop_per_token is not None
    assert count.flop_per_token.matmul == 4_902_617_088
    assert count.flop_per_token.per_visible_token == latent.per_visible_token_expanded == 276_480
    assert latent.per_visible_token_absorbed == 940_032
    assert latent.kv_elements_per_token == 15_552
    assert count.kv_bytes_per_token == 31_104
    assert 4_902_617_088 // 276_480 == 17_732
    # Ours also counts the norms among the weights.
    assert count.flop_per_token.weights == 4_902_617_088 + 2 * 126_464
    assert latent.crossover_tokens_expanded == count.crossover_tokens == 17_733
    assert latent.crossover_tokens_absorbed == (4_902_617_088 + 2 * 126_464) // 940_032


def test_both_forms_follow_their_formulas() -> None:
    h, a, b, w, c, layers = 16, 128, 64, 128, 512, 27
    latent = both_forms(counted(LITE))
    assert latent.per_visible_token_expanded == layers * 2 * h * (a + b + w)
    assert latent.per_visible_token_absorbed == layers * 2 * h * (2 * c + b)
    assert latent.kv_elements_per_token == layers * (c + b)
    assert both_forms(counted(V3)).per_visible_token_absorbed == 61 * 2 * 128 * (2 * 512 + 64)


def test_a_model_without_latent_rows_says_nothing_of_them() -> None:
    count = counted(AIR)
    assert count.latent is None
    assert "latent" not in count.as_dict()
    parameters = count.as_dict()["parameters"]
    assert isinstance(parameters, dict)
    assert "with_towers" not in parameters
    assert "active_without_embedding" in parameters


def scales(graph: Graph, more: int) -> int:
    """Scales of the tables of all layers that are kept in F8, the last layer's `more` times more.

    Routers, the projection to the weights of an indexer, embedding and head are not among them, nor
    is a prediction layer's projection from two rows.
    """
    total = 0
    last = f".{graph.config.num_hidden_layers - 1}."
    for weight in graph.weights.values():
        plain = ("embed_tokens", "lm_head", "mlp.gate.", "weights_proj")
        if len(weight.shape) > 1 and not any(word in weight.name for word in plain):
            *experts, rows, columns = weight.shape
            tiles = -(-rows // TILE) * -(-columns // TILE) * (experts[0] if experts else 1)
            total += tiles * (1 + (more if last in weight.name else 0))
    return total


@pytest.mark.parametrize(
    ("raw", "published"), [(V3, 684_531_386_000), (V32, 685_396_921_376)], ids=["V3", "V3.2"]
)
def test_a_prediction_layer_and_scales_make_up_the_published_total(
    raw: Raw, published: int
) -> None:
    found = described(raw)
    whole = count_model(found).parameters.with_prediction_layers
    assert whole is not None
    assert whole + scales(found.graph, 1) == published


def test_a_prediction_layer_and_buffers_make_up_the_published_total() -> None:
    parameters = counted(AIR).parameters
    assert parameters.unique == 106_852_245_504
    assert parameters.with_buffers == 106_852_245_504 + 45 * 128
    assert parameters.with_prediction_layers == 110_468_824_832 == 106_852_245_504 + 3_616_579_328
    assert counted({**AIR, "num_nextn_predict_layers": 0}).parameters.with_prediction_layers is None
    two = counted({**AIR, "num_nextn_predict_layers": 2}).parameters.with_prediction_layers
    assert two == 110_468_824_832 + 3_616_579_328 - 45 * 128


def test_a_selection_bounds_attention_and_not_the_cache() -> None:
    found = described(V32)
    count = count_model(found)
    (window,) = count.windows
    assert (window.tokens, window.layers, window.kv_bytes_per_token) == (2_048, 61, 0)
    assert count.flop_per_token is not None
    index = 61 * 2 * 64 * (128 + 1)
    assert count.flop_per_token.per_visible_token == 4_997_120 + index
    assert count.kv_bytes_per_token == 2 * 61 * (512 + 64 + 128)
    assert kv_bytes(found.graph, 10_000, 2) == 10_000 * count.kv_bytes_per_token
    for visible in (1, 2_048, 2_049, 50_000):
        work = count_pass(found.graph, PassShape.decode(visible), lambda _: 0, 2).by_role[Role.READ]
        assert work.flop == 4_997_120 * min(visible, 2_048) + index * visible
        read = min(visible, 2_048) * (512 + 64) + visible * 128
        assert work.cache_read == 2 * 61 * read
    latent = both_forms(count)
    assert latent.per_visible_token_absorbed == 16_990_208 + index
    assert latent.crossover_tokens_absorbed is not None
    assert latent.crossover_tokens_absorbed < (count.crossover_tokens or 0)


def lines_of(raw: Raw) -> list[str]:
    asked = Asked(visible=(128,), prompt=100, answer=50)
    found = described(raw)
    return report(count_model(found, asked), found, asked, "nothing read")


def test_the_text_says_both_forms_and_what_a_selection_bounds() -> None:
    text = "\n".join(lines_of(V32))
    assert "each visible token beyond the 2,048 that are read" in text
    assert "61 indexers read on" in text
    assert "bytes a token, read or not" in text
    assert "window" not in text
    assert "4,997,120 × 6,225 selected" in text
    assert "absorbed: attention equals the weights at" in text
    assert "with 1 prediction layer" in text
    lite = "\n".join(lines_of(LITE))
    assert "absorbed: each visible token" in lite
    assert "940,032" in lite
    assert "with buffers" not in lite
    assert "prediction" not in lite
    assert max(map(len, lines_of(V32))) <= 104  # as wide as its largest table


def tiny(family: str) -> Reference:
    graph = described({"model_type": family, **TINY}).graph
    return Reference(graph, RandomWeights(graph))


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_a_pass_does_the_work_that_is_counted(family: str) -> None:
    model = tiny(family)
    cache, tokens = model.new_cache(), random_tokens(50, 3)
    for start, stop, generated in ((0, 37, False), (37, 38, True), (38, 50, False)):
        recorder = Recorder()
        model.run(cache, tokens[start:stop], generated=generated, recorder=recorder)
        shape = PassShape((SequenceShape(stop - start, start),))
        work = count_pass(model.graph, shape, lambda _: 0, 2).by_role
        assert recorder.flop() == {role: done.flop for role, done in work.items()}
        h, n, pairs = 4, stop - start, sum(range(start + 1, stop + 1))
        assert work[Role.READ].flop == 3 * 2 * h * (8 + 6 + 10) * pairs
        narrow = 24 * 18 + 18 * h * 14 + 24 * (14 + 6) + 14 * h * (8 + 10)
        assert work[Role.QKV].flop == 3 * 2 * n * narrow


@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_rows_do_not_depend_on_how_a_prompt_is_cut(family: str) -> None:
    model, tokens = tiny(family), random_tokens(70, 5)
    whole = model.run(model.new_cache(), tokens, wanted=range(70))
    cache = model.new_cache()
    parts = [
        model.run(cache, tokens[start : start + 32], wanted=range(len(tokens[start : start + 32])))
        for start in range(0, 70, 32)
    ]
    assert [row.tobytes() for part in parts for row in part] == [row.tobytes() for row in whole]


def test_the_cache_is_counted_as_latent_rows() -> None:
    graph = tiny("deepseek_v3").graph
    kept = [state for state in graph.states if state.elements_per_token]
    assert [state.kind for state in kept] == [LATENT] * 3
    assert {state.shape for state in kept} == {(14 + 6,)}
    shared = [state for state in graph.states if not state.elements_per_token]
    assert {state.shared_with for state in shared} == {state.name for state in kept}
