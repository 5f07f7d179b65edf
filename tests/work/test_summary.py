from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from forwardpass.architectures import model_types
from forwardpass.describe import Description, describe_config
from forwardpass.dtypes import DTYPES
from forwardpass.errors import ConfigError, RequestError
from forwardpass.shapes import SHAPES
from forwardpass.work.summary import Asked, Count, count_model
from forwardpass.work.weight_types import bytes_in

# Parameters of the published models, and those that one token reads.
OWN_COUNTS = {
    "llama-3.1-8b": (8_030_261_248, 8_030_261_248),
    "llama-3.1-70b": (70_553_706_496, 70_553_706_496),
    "qwen3-0.6b": (596_049_920, 596_049_920),
    "gpt2": (124_439_808, 124_439_808),
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248),
    "qwen3-30b-a3b": (30_532_122_624, 3_353_032_704),
    "gpt-oss-20b": (20_914_757_184, 4_187_440_704),
    "deepseek-v3": (671_026_404_352, 37_552_282_624),
    "qwen3-next-80b-a3b": (79_674_391_296, 3_874_929_408),
}


def shape(name: str) -> Description:
    return describe_config(name, SHAPES[name])


def table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file, delimiter="\t")}


def test_bundled_shapes_are_counted_exactly() -> None:
    assert OWN_COUNTS.keys() == SHAPES.keys()
    for name, (unique, active) in OWN_COUNTS.items():
        parameters = count_model(shape(name)).parameters
        assert (parameters.unique, parameters.active) == (unique, active), name


def test_work_and_cache_of_every_config_are_those_of_an_outside_count(cases: Path | None) -> None:
    if cases is None:
        count = count_model(shape("llama-3.1-8b"))
        assert count.kv_bytes_per_token == 131_072
        return
    for name, row in table(cases / "flops_ref.tsv").items():
        path = cases / "configs" / f"{name}.json"
        raw = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if raw.get("model_type") not in model_types():
            continue
        count = count_model(describe_config(name, raw))
        flop = count.flop_per_token
        assert flop is not None
        assert flop.matmul == int(row["weight_FLOP_per_token"]), name
        # The outside table keeps to the layers whose attention never stops growing, if any.
        fixed = sum(window.flop_per_visible_token for window in count.windows)
        fixed = fixed if fixed < flop.per_visible_token else 0
        growing = flop.per_visible_token - fixed
        assert growing == int(row["attention_FLOP_per_earlier_token(full-attention layers)"]), name
        assert count.kv_bytes_per_token is not None
        cached = count.kv_bytes_per_token
        cached -= sum(w.kv_bytes_per_token for w in count.windows) if fixed else 0
        assert cached == int(row["KV_bytes_per_token_bf16"]), name


def test_a_cache_needs_less_than_one_that_keeps_what_windows_passed() -> None:
    raw: dict[str, object] = {"model_type": "gemma3_text", "sliding_window": 512}
    found = count_model(describe_config("gemma", raw), Asked((), 2_000, 48)).kv_cache
    assert found is not None
    row = 2 * 4 * 256 * 2  # a key and a value of 4 heads of 256 elements of 2 bytes
    assert found.reserved == 26 * 2_048 * row
    assert found.needed == (4 * 2_048 + 22 * 512) * row


def test_the_keys_of_the_json_are_the_promised_ones() -> None:
    found = count_model(shape("llama-3.1-8b"), Asked((128,), 12_060, 300)).as_dict()
    # norms, rope, softmax, SiLU and product, residual adds
    other = 65 * 4 * 4_096 + 32 * (3 * 5_120 + 3 * 32 * 128 + 5 * 14_336 + 2 * 4_096)
    prompt = found.pop("prompt")
    assert isinstance(prompt, dict)
    # 12,360 tokens × 131,072 bytes; nothing slides, so all of it is needed
    assert found.pop("kv_cache") == {
        "tokens": 12_360,
        "needed": 1_620_049_920,
        "reserved": 1_620_049_920,
    }
    assert json.loads(json.dumps(found)) == {
        "model": "llama-3.1-8b",
        "architecture": "llama",
        "parameters": {
            "unique": 8_030_261_248,
            "stored": None,
            "active": 8_030_261_248,
            "embedding": 525_336_576,
            "layers": 6_979_584_000,
            "head": 525_336_576,
            "by_role": {
                "embedding": 525_336_576,
                "attention.qkv": 32 * 25_165_824,
                "attention.read": 0,
                "attention.output": 32 * 16_777_216,
                "mlp.up": 32 * 117_440_512,
                "mlp.down": 32 * 58_720_256,
                "head": 525_336_576,
                "other": 65 * 4_096,
            },
        },
        "bytes": {
            "unique": 16_060_522_496,
            "stored": None,
            "dtype": "bf16",
            "file": None,
            "header": None,
        },
        "flop_per_token": {
            "weights": 15_009_849_344,
            "matmul": 15_009_316_864,
            "per_visible_token": 524_288,
            "at": [
                {
                    "visible": 128,
                    "total": 15_076_425_728,
                    "other": other,
                    "total_with_other": 15_076_425_728 + other,
                    "by_role": {
                        "embedding": 0,
                        "attention.qkv": 1_610_612_736,
                        "attention.read": 67_108_864,
                        "attention.output": 1_073_741_824,
                        "mlp.up": 7_516_192_768,
                        "mlp.down": 3_758_096_384,
                        "head": 1_050_673_152,
                        "other": other,
                    },
                }
            ],
        },
        "kv_bytes_per_token": 131_072,
        "crossover_tokens": 28_629,
        "answer": {
            "passes": 300,
            "layer_runs": 9_600,
            "flop_weights": 4_502_954_803_200,
            "flop_attention": 1_920_388_300_800,
            "flop_total": 6_423_343_104_000,
        },
    }


def test_gpt2_does_the_work_of_the_worked_table() -> None:
    flop = count_model(shape("gpt2"), Asked((128, 1_024, 8_192))).flop_per_token
    assert flop is not None
    assert flop.matmul == 2 * 123_532_032
    assert [at.other for at in flop.at] == [445_440, 832_512, 3_929_088]
    millions = [round(at.total_with_other / 1e6, 1) for at in flop.at]
    assert millions == [252.2, 285.6, 553.0]
    shares = [at.by_role["attention.read"] / at.total_with_other for at in flop.at]
    assert [round(100 * share, 1) for share in shares] == [1.9, 13.2, 54.6]


@pytest.mark.parametrize(
    ("shape_name", "kv_type", "cached"),
    [
        ("llama-3.1-8b", "bf16", 131_072),
        ("llama-3.1-8b", "f32", 262_144),
        ("qwen3-0.6b", "f16", 114_688),
    ],
)
def test_the_cache_grows_by_the_bytes_of_its_type(
    shape_name: str, kv_type: str, cached: int
) -> None:
    assert count_model(shape(shape_name), Asked(kv_type=kv_type)).kv_bytes_per_token == cached


def in_bytes(count: Count) -> tuple[str, int | None]:
    return count.bytes.dtype, count.bytes.unique


def test_a_named_type_replaces_that_of_the_config() -> None:
    unique, vectors = 596_049_920, 596_049_920 - 595_984_384
    qwen = shape("qwen3-0.6b")
    assert in_bytes(count_model(qwen)) == ("bf16", 2 * unique)
    assert in_bytes(count_model(qwen, Asked(dtype="f32"))) == ("f32", 4 * unique)
    # 34 bytes for 32 elements of a table, 4 bytes for each element of a vector
    blocks = (unique - vectors) // 32 * 34 + 4 * vectors
    assert in_bytes(count_model(qwen, Asked(dtype="q8_0"))) == ("q8_0", blocks)
    assert bytes_in(qwen.graph, DTYPES["f4"]) == unique // 2


def test_a_type_whose_blocks_the_rows_do_not_fill_is_refused() -> None:
    odd = describe_config("odd", {**SHAPES["gpt2"], "n_embd": 720})
    with pytest.raises(RequestError, match=r"blocks of 256 elements, and the rows of wte\.weight"):
        count_model(odd, Asked(dtype="q4_k"))


def test_a_type_that_no_weights_have_is_refused() -> None:
    with pytest.raises(RequestError, match=r'type of weights "q4k"  \(did you mean q4_k\?\)'):
        Asked(dtype="q4k")
    with pytest.raises(RequestError, match='no type of weights "i32"'):
        Asked(dtype="i32")
    with pytest.raises(RequestError, match='"q8_0" is no type of a KV cache, wanted bf16, f16'):
        Asked(kv_type="q8_0")
    strange = describe_config("strange", {**SHAPES["gpt2"], "torch_dtype": "int3"})
    with pytest.raises(ConfigError, match="strange: dtype 'int3'") as refused:
        count_model(strange)
    assert "--dtype" in str(refused.value)


@pytest.mark.parametrize(
    "asked",
    [{"visible": (128, 0)}, {"prompt": 0}, {"prompt": 5, "answer": -1}, {"answer": 3}],
    ids=str,
)
def test_a_number_of_tokens_that_makes_no_sense_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        Asked(**asked)  # type: ignore[arg-type]


def test_an_accepted_value_that_json_cannot_hold_is_given_as_text() -> None:
    raw = {**SHAPES["gpt2"], "strange": float("inf")}
    count = count_model(describe_config("a model", raw, accept_unknown=["strange"]))
    assert count.as_dict()["accepted_unknown"] == {"strange": "inf"}
