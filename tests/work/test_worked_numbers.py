"""Worked numbers of well-known shapes, each checked by hand, counted from the config alone."""

from __future__ import annotations

import pytest

from forwardpass.describe import Description, describe_config
from forwardpass.graph.graph import Graph, Role
from forwardpass.shapes import SHAPES
from forwardpass.work.count import PassWork, count_pass, kv_bytes, kv_bytes_per_token
from forwardpass.work.passes import PassShape, SequenceShape

BF16 = 2


def shape(name: str) -> Description:
    return describe_config(name, SHAPES[name])


def count(graph: Graph, passes: PassShape) -> PassWork:
    return count_pass(graph, passes, lambda weight: BF16 * weight.elements, BF16)


def elements(graph: Graph, *parts: str) -> int:
    """Elements of all weights whose names hold one of the parts."""
    return sum(w.elements for w in graph.weights.values() if any(part in w.name for part in parts))


def one(graph: Graph, name: str) -> int:
    return graph.weights[name].elements


def test_llama_3_1_8b_has_8_030_261_248_parameters() -> None:
    graph = shape("llama-3.1-8b").graph
    first = "model.layers.0."
    assert one(graph, "model.embed_tokens.weight") == 525_336_576
    assert one(graph, f"{first}self_attn.q_proj.weight") == 16_777_216
    assert one(graph, f"{first}self_attn.k_proj.weight") == 4_194_304
    assert one(graph, f"{first}self_attn.v_proj.weight") == 4_194_304
    assert one(graph, f"{first}self_attn.o_proj.weight") == 16_777_216
    assert elements(graph, f"{first}self_attn") == 41_943_040
    assert elements(graph, f"{first}mlp") == 176_160_768
    assert elements(graph, f"{first}input_lay", f"{first}post_attention_lay") == 8_192
    assert elements(graph, first) == 218_112_000
    assert round(100 * 41_943_040 / 218_112_000) == 19
    assert round(100 * 176_160_768 / 218_112_000) == 81
    assert elements(graph, "model.layers.") == 6_979_584_000
    assert one(graph, "model.norm.weight") == 4_096
    assert one(graph, "lm_head.weight") == 525_336_576
    assert shape("llama-3.1-8b").unique_parameters == 8_030_261_248
    assert BF16 * 8_030_261_248 == 16_060_522_496


def test_qwen3_0_6b_has_596_049_920_parameters() -> None:
    graph = shape("qwen3-0.6b").graph
    first = "model.layers.0."
    assert one(graph, "model.embed_tokens.weight") == 155_582_464
    assert elements(graph, f"{first}self_attn") == 6_291_712
    assert one(graph, f"{first}self_attn.q_norm.weight") == 128
    assert elements(graph, f"{first}mlp") == 9_437_184
    assert elements(graph, f"{first}input_lay", f"{first}post_attention_lay") == 2_048
    assert elements(graph, first) == 15_730_944
    assert elements(graph, "model.layers.") == 440_466_432
    assert one(graph, "model.norm.weight") == 1_024
    assert "lm_head.weight" not in graph.weights
    assert shape("qwen3-0.6b").unique_parameters == 596_049_920
    assert BF16 * 596_049_920 == 1_192_099_840
    assert 596_049_920 + 155_582_464 == 751_632_384  # the published file stores the head, too


def test_gpt2_has_124_439_808_parameters() -> None:
    graph = shape("gpt2").graph
    tables = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
    assert shape("gpt2").unique_parameters == 124_439_808
    assert elements(graph, *(f"h.0.{table}" for table in tables)) == 7_077_888
    assert elements(graph, *tables) == 84_934_656
    assert one(graph, "wte.weight") == 38_597_376
    assert [weight.name for weight in graph.embedding_only] == ["wpe.weight"]
    buffers = 12 * 1_024 * 1_024
    assert 124_439_808 + buffers == 137_022_720


def test_one_token_of_llama_3_1_8b() -> None:
    graph = shape("llama-3.1-8b").graph
    arithmetic = 8_030_261_248 - sum(weight.elements for weight in graph.embedding_only)
    assert arithmetic == 7_504_924_672
    assert 2 * arithmetic == 15_009_849_344
    step, longer = count(graph, PassShape.decode(1)), count(graph, PassShape.decode(2))
    assert longer.flop - step.flop == 524_288 == 16_384 * 32
    matmul = step.flop - 524_288
    assert matmul == 15_009_316_864
    assert 2 * arithmetic // 524_288 == 28_629
    assert matmul // 524_288 == 28_628
    last = count(graph, PassShape.decode(12_060)).by_role[Role.READ].flop
    assert last == 6_322_913_280
    assert round(100 * last / 15_009_849_344) == 42
    assert count(graph, PassShape.decode(131_072)).by_role[Role.READ].flop > 4 * 15_009_849_344


def test_an_answer_of_300_tokens_after_a_prompt_of_12_060() -> None:
    graph = shape("llama-3.1-8b").graph
    visible = range(12_060, 12_360)
    assert len(visible) == 300
    assert 300 * graph.config.num_hidden_layers == 9_600
    assert sum(visible) == 3_662_850 == 300 * 12_209.5
    batch = PassShape(tuple(SequenceShape(1, seen - 1) for seen in visible))
    attention = count(graph, batch).by_role[Role.READ].flop
    assert attention == 1_920_388_300_800
    weights = 300 * 15_009_849_344
    assert weights == 4_502_954_803_200
    assert weights + attention == 6_423_343_104_000
    assert round(6_423_343_104_000 / 989e12, 4) == 0.0065
    assert round(300 * 16_060_522_496 / 3.35e12, 2) == 1.44
    assert kv_bytes(graph, 12_360, BF16) == 131_072 * 12_360


def test_a_prompt_of_512_tokens_by_three_conventions() -> None:
    graph = shape("llama-3.1-8b").graph
    all_rows = count(graph, PassShape((SequenceShape(512, 0, 512),)))
    read = all_rows.by_role[Role.READ].flop
    square = read * 512 * 512 // (512 * 513 // 2)
    assert all_rows.flop - read + square == 7_822_209_187_840
    assert all_rows.flop == 7_753_623_928_832
    assert count(graph, PassShape.prompt(512)).flop == 7_216_729_948_160


def test_the_12_059_rows_of_a_prompt_before_its_last() -> None:
    graph = shape("llama-3.1-8b").graph
    rows = count(graph, PassShape((SequenceShape(12_059, 0, 0),)))
    assert rows.by_role[Role.HEAD].flop == 0
    assert rows.flop == 206_451_290_144_768


@pytest.mark.parametrize(
    ("visible", "total", "other", "share"),
    [
        (128, 252.2, 445_440, 1.9),
        (1_024, 285.6, 832_512, 13.2),
        (8_192, 553.0, 3_929_088, 54.6),
    ],
)
def test_one_token_of_gpt2(visible: int, total: float, other: int, share: float) -> None:
    work = count(shape("gpt2").graph, PassShape.decode(visible))
    assert work.flop == 2 * 123_532_032 + 4 * 12 * 768 * visible
    assert work.other.flop == other
    together = work.flop + other
    assert round(together / 1e6, 1) == total
    assert round(100 * work.by_role[Role.READ].flop / together, 1) == share


def test_one_token_of_gpt2_by_part() -> None:
    graph = shape("gpt2").graph
    work = count(graph, PassShape.decode(128))
    together = work.flop + work.other.flop
    table = {
        role: (round(part.flop / 1e6, 2), round(100 * part.flop / together, 1))
        for role, part in work.by_role.items()
        if role in graph.roles
    }
    assert table == {
        Role.EMBEDDING: (0.0, 0.0),
        Role.QKV: (42.47, 16.8),
        Role.READ: (4.72, 1.9),
        Role.ATTENTION_OUTPUT: (14.16, 5.6),
        Role.MLP_UP: (56.62, 22.4),
        Role.MLP_DOWN: (56.62, 22.4),
        Role.HEAD: (77.19, 30.6),
        Role.OTHER: (0.45, 0.2),
    }


@pytest.mark.parametrize(
    ("visible", "total", "shares"),
    [
        (128, 15.08, (17.8, 0.4, 74.8, 7.0)),
        (8_192, 19.30, (13.9, 22.2, 58.4, 5.4)),
        (32_768, 32.19, (8.3, 53.4, 35.0, 3.3)),
    ],
)
def test_one_token_of_llama_3_1_8b_by_part(
    visible: int, total: float, shares: tuple[float, ...]
) -> None:
    work = count(shape("llama-3.1-8b").graph, PassShape.decode(visible))
    assert round(work.flop / 1e9, 2) == total
    parts = (
        (Role.QKV, Role.ATTENTION_OUTPUT),
        (Role.READ,),
        (Role.MLP_UP, Role.MLP_DOWN),
        (Role.HEAD,),
    )
    found = [sum(work.by_role[role].flop for role in roles) / work.flop for roles in parts]
    assert tuple(round(100 * share, 1) for share in found) == shares


@pytest.mark.parametrize(
    ("name", "expected"), [("llama-3.1-8b", 131_072), ("qwen3-0.6b", 114_688), ("gpt2", 36_864)]
)
def test_kv_bytes_of_a_token_in_bf16(name: str, expected: int) -> None:
    assert kv_bytes_per_token(shape(name).graph, BF16) == expected


def test_smollm2_135m_by_its_sizes() -> None:
    raw: dict[str, object] = {
        "model_type": "llama",
        "vocab_size": 49_152,
        "hidden_size": 576,
        "intermediate_size": 1_536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    }
    found = describe_config("smollm2-135m", raw)
    assert found.unique_parameters == 134_515_008
    assert kv_bytes_per_token(found.graph, BF16) == 23_040
    prefill = count(found.graph, PassShape.prompt(44)).flop
    decode = sum(count(found.graph, PassShape.decode(seen)).flop for seen in range(45, 55))
    assert prefill == 9_467_864_064
    assert decode == 2_723_811_840
    assert prefill + decode == 12_191_675_904
