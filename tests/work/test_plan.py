"""The figures of a plan, each from the sizes alone, and that `count` says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backends.tiny import CONFIGS
from forwardpass.describe import Description, describe_config
from forwardpass.dtypes import DTYPES
from forwardpass.errors import ConfigError, RequestError
from forwardpass.shapes import SHAPES
from forwardpass.work.count import count_pass, kv_bytes, state_bytes
from forwardpass.work.machines import Known, machine
from forwardpass.work.passes import PassShape, SequenceShape
from forwardpass.work.plan import Bound, Plan, Request, largest, make_plan
from forwardpass.work.plan_memory import steps, work_bytes
from forwardpass.work.plan_price import price, significant
from forwardpass.work.plan_ways import ways
from forwardpass.work.plan_weights import MIXES, checked_type, weight_bytes
from forwardpass.work.summary import KV_WIDTH, Asked, count_model

H100 = machine("h100")
BIG = machine("1000PB,1TB/s,1PFLOP/s")
GEMMA_1B: dict[str, object] = {
    "model_type": "gemma3_text",
    "vocab_size": 262_144,
    "hidden_size": 1_152,
    "num_hidden_layers": 26,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 6_912,
    "sliding_window": 512,
    "torch_dtype": "bfloat16",
}
MODELS = {**SHAPES, **CONFIGS, "gemma-3-1b": GEMMA_1B}
_QUICK = 800  # nodes: larger ones have more layers of the same sorts, and take their time
every_model = pytest.mark.parametrize("name", MODELS)


def shape(name: str) -> Description:
    return describe_config(name, MODELS[name])


@pytest.fixture(scope="module")
def llama() -> Description:
    return shape("llama-3.1-8b")


def planned(llama: Description, **changes: object) -> Plan:
    request = replace(Request(12_060, 300), **changes)  # type: ignore[arg-type]
    return make_plan(llama, H100, request, price=price("2.00/h"))


def test_a_request_to_llama_3_1_8b_on_an_h100(llama: Description) -> None:
    plan = planned(llama)
    assert plan.memory.weights == 16_060_522_496
    assert plan.memory.kv == 131_072 * 12_360
    assert plan.memory.available == 80 * 10**9
    assert plan.fits is True
    assert round(plan.prefill_flop / 1e12, 2) == 206.47
    assert plan.prefill_seconds == pytest.approx(206_472_622_374_912 / 989e12, rel=1e-12)
    assert plan.prefill.bound is Bound.ARITHMETIC
    assert round(plan.read_weights / 1e9, 2) == 15.01
    assert round(plan.read_cache / 1e9, 2) == 1.60
    assert plan.decode.bound is Bound.MEMORY
    assert plan.decode_seconds_per_token is not None
    assert round(1e3 * plan.decode_seconds_per_token, 2) == 4.96
    assert plan.tokens_per_second is not None
    assert round(plan.tokens_per_second) == 202
    assert plan.answer_seconds is not None
    assert round(plan.answer_seconds, 2) == 1.49
    assert plan.answer_flop == 6_423_343_104_000
    assert plan.answer_arithmetic_seconds is not None
    assert round(plan.answer_arithmetic_seconds, 4) == 0.0065
    assert plan.cost is not None
    assert round(plan.cost, 5) == 0.00094
    assert plan.cost_per_million_tokens is not None
    assert round(plan.cost_per_million_tokens, 1) == 3.1
    assert plan.max_concurrency == 39


def test_reading_all_weights_would_take_another_time(llama: Description) -> None:
    plan, rate = planned(llama), 3.35e12
    assert round(300 * plan.read_weights / rate, 2) == 1.34
    assert round(300 * plan.memory.weights / rate, 2) == 1.44


@every_model
@pytest.mark.parametrize(("prompt", "answer"), [(1, 1), (7, 3), (505, 12)])
def test_plan_and_count_agree_to_the_last_flop_and_byte(
    name: str, prompt: int, answer: int
) -> None:
    agree(shape(name), prompt, answer)


def test_plan_and_count_agree_on_published_configs(cases: Path | None) -> None:
    counted = 0
    for path in sorted((cases / "configs").glob("*.json")) if cases else ():
        try:
            described = describe_config(path.stem, json.loads(path.read_text("utf-8")))
        except ConfigError:
            continue  # which ones that is, test_outside_counts holds
        if len(described.graph.nodes) <= _QUICK:
            counted += 1
            agree(described, 511, 3)  # windows of 512 fill on the way
    assert counted > 20 or cases is None


def agree(described: Description, prompt: int, answer: int) -> None:
    counted = count_model(described, Asked((), prompt, answer))
    plan = make_plan(described, BIG, Request(prompt, answer))
    assert counted.prompt is not None
    assert counted.answer is not None
    assert plan.prefill_flop == counted.prompt.flop
    assert plan.answer_flop == counted.answer.flop_total
    assert plan.memory.weights == counted.bytes.unique
    kept = state_bytes(described.graph, 2)
    assert plan.memory.kv == kv_bytes(described.graph, prompt + answer, 2) + kept
    stored = weight_bytes(described, plan.dtype)
    first = count_pass(described.graph, PassShape.prompt(prompt), stored, 2)
    assert plan.prefill_bytes == first.total.bytes + first.other.bytes
    passes = [
        count_pass(described.graph, PassShape.decode(seen), stored, 2)
        for seen in range(prompt, prompt + answer)
    ]
    assert {work.weight_bytes for work in passes} == {plan.read_weights}
    read = sum(work.total.bytes + work.other.bytes - work.weight_bytes for work in passes)
    assert plan.read_cache == read / answer


@every_model
@pytest.mark.parametrize("dtype", ["bf16", "f32", "q8_0", "f8_e4m3", "q4_0"])
def test_the_bytes_of_a_single_type_are_those_that_count_counts(name: str, dtype: str) -> None:
    described = shape(name)
    try:
        wanted = count_model(described, Asked(dtype=dtype)).bytes.unique
    except RequestError:
        with pytest.raises(RequestError):
            make_plan(described, BIG, Request(), dtype)
        return
    stored = weight_bytes(described, dtype)
    assert sum(map(stored, described.graph.parameters)) == wanted
    assert make_plan(described, BIG, Request(), dtype).memory.weights == wanted


@every_model
@pytest.mark.parametrize("many", [1, 2, 5])
def test_requests_at_once_share_the_weights_and_nothing_else(name: str, many: int) -> None:
    described, width = shape(name), KV_WIDTH["f32"]
    plan = make_plan(described, BIG, Request(30, 1, many, "f32"))
    stored = weight_bytes(described, plan.dtype)
    together = PassShape((SequenceShape(1, 29),) * many)
    work = count_pass(described.graph, together, stored, width)
    assert plan.read_weights + plan.read_cache == work.total.bytes + work.other.bytes
    prompts = PassShape((SequenceShape(30),) * many)
    work = count_pass(described.graph, prompts, stored, width)
    assert plan.prefill_flop == work.flop
    assert plan.prefill_bytes == work.total.bytes + work.other.bytes
    kept = state_bytes(described.graph, width)
    assert plan.memory.kv == many * (kv_bytes(described.graph, 31, width) + kept)


def test_rates_each_and_together(llama: Description) -> None:
    one, eight = planned(llama), planned(llama, concurrency=8)
    assert one.decode.seconds is not None
    assert eight.decode.seconds is not None
    assert eight.read_weights == one.read_weights + 7 * 2 * 4_096  # rows of the embedding
    assert eight.read_cache == 8 * one.read_cache
    assert eight.decode.seconds > one.decode.seconds
    assert eight.tokens_per_second == pytest.approx(8 / eight.decode.seconds, rel=1e-12)
    assert eight.as_dict()["tokens_per_second_each"] == pytest.approx(1 / eight.decode.seconds)
    assert eight.prefill_flop == 8 * one.prefill_flop
    assert eight.cost_per_million_tokens is not None
    assert one.cost_per_million_tokens is not None
    assert eight.cost_per_million_tokens < one.cost_per_million_tokens


def test_many_requests_are_bound_by_arithmetic(llama: Description) -> None:
    plan = make_plan(llama, BIG, Request(10, 10, 10_000))
    assert plan.decode.bound is Bound.ARITHMETIC
    assert plan.decode.seconds == pytest.approx(plan.pass_flop / 1e15, rel=1e-12)


def test_the_most_requests_are_the_most_that_fit(llama: Description) -> None:
    most = planned(llama).max_concurrency
    assert most == planned(llama, concurrency=7).max_concurrency
    assert most is not None
    assert planned(llama, concurrency=most).fits is True
    assert planned(llama, concurrency=most + 1).fits is False


def test_a_window_stops_the_cache_from_growing() -> None:
    gemma = shape("gemma-3-1b")
    each_layer = 2 * 1 * 256 * 2  # key and value of one head, in bf16
    sliding, full = 22, 4
    for tokens in (100, 512, 513, 12_360):
        plan = make_plan(gemma, H100, Request(tokens - 1, 1))
        assert plan.memory.kv == each_layer * (sliding * min(tokens, 512) + full * tokens)
    plan = make_plan(gemma, H100, Request(12_060, 300))
    written = each_layer * 26
    assert plan.read_cache == each_layer * (sliding * 512 + full * 12_209.5) + written


def test_devices_add_up(llama: Description) -> None:
    one = make_plan(llama, H100, Request(1_000, 10))
    two = make_plan(llama, H100.times(2), Request(1_000, 10))
    assert two.memory.available == 160 * 10**9
    assert one.prefill_seconds is not None
    assert two.prefill_seconds == pytest.approx(one.prefill_seconds / 2)
    assert one.decode.seconds is not None
    assert two.decode.seconds == pytest.approx(one.decode.seconds / 2)


def test_what_does_not_fit_says_what_binds_and_states_no_time() -> None:
    large = shape("llama-3.1-70b")
    plan = make_plan(large, H100, Request(12_060, 300), price=price("2/h"))
    assert plan.memory.weights == 2 * 70_553_706_496
    assert (plan.fits, plan.memory.binds, plan.decode.bound) == (False, "weights", Bound.CAPACITY)
    assert plan.prefill_seconds is None
    assert plan.tokens_per_second is None
    assert plan.cost is None
    assert plan.max_concurrency == 0
    out = ways(large, plan, None)
    assert out.devices == 2
    assert dict(out.dtypes)["f8_e4m3"] == 70_553_706_496
    assert "q8_0" not in dict(out.dtypes)  # 74.97 GB, and then cache and work
    assert out.tokens == 0


def test_a_cache_that_does_not_fit_says_how_many_tokens_would(llama: Description) -> None:
    small = machine("20GB,1TB/s,100TFLOP/s")
    plan = make_plan(llama, small, Request(100_000, 300))
    assert plan.memory.binds == "kv"
    out = ways(llama, plan, None)
    left = 20 * 10**9 - plan.memory.weights - plan.memory.activations
    assert out.tokens == left // 131_072
    assert out.requests == 0
    many = make_plan(llama, H100, Request(12_060, 300, 50))
    assert (many.memory.binds, ways(llama, many, None).requests) == ("kv", 39)
    tight = make_plan(llama, machine("16.1GB"), Request(12_060, 300))
    assert tight.memory.binds == "activations"


def test_what_nobody_states_is_unknown(llama: Description) -> None:
    apple = make_plan(llama, machine("m4-max"), Request(100, 10), price=price("1/h"))
    assert apple.prefill_seconds is None
    assert apple.cost is None
    assert apple.decode.bound is Bound.MEMORY
    assert apple.fits is True
    server = make_plan(llama, machine("epyc-9654"), Request(100, 10))
    assert server.fits is None
    assert server.max_concurrency is None
    assert server.memory.available is None
    assert server.prefill_seconds is not None
    only_memory = make_plan(llama, machine("80GB"), Request(100, 10))
    assert only_memory.fits is True
    assert only_memory.decode.seconds is None
    assert only_memory.decode.bound is None


@pytest.mark.parametrize(
    ("name", "mix", "data"),
    [
        # Bytes of the tensors of published files, the divisors of llama's rope left out.
        ("llama-3.1-8b", "q4_k_m", 4_912_898_048),
        ("qwen2.5-coder-0.5b", "q4_k_m", 485_452_288),
        ("qwen2.5-coder-1.5b", "q4_k_m", 1_111_370_240),
        ("gemma-3-270m", "q4_k_m", 246_587_904),
    ],
)
def test_a_mix_is_what_published_files_hold(name: str, mix: str, data: int) -> None:
    # Both of these files store head and embedding as two tables.
    two = {"num_key_value_heads": 2, "tie_word_embeddings": False}
    qwen = {"model_type": "qwen2", "vocab_size": 151_936, **two}
    small = {**qwen, "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14}
    larger = {**qwen, "hidden_size": 1_536, "num_hidden_layers": 28, "num_attention_heads": 12}
    gemma = {**GEMMA_1B, "hidden_size": 640, "num_hidden_layers": 18, "intermediate_size": 2_048}
    configs: dict[str, dict[str, object]] = {
        "qwen2.5-coder-0.5b": {**small, "intermediate_size": 4_864},
        "qwen2.5-coder-1.5b": {**larger, "intermediate_size": 8_960},
        "gemma-3-270m": gemma,
    }
    described = describe_config(name, configs.get(name) or MODELS[name])
    stored = weight_bytes(described, mix)
    assert sum(map(stored, described.graph.parameters)) == data
    plan = make_plan(described, H100, Request(), mix)
    assert (plan.memory.weights, plan.estimated) == (data, True)


@every_model
@pytest.mark.parametrize("base", ["q3_k", "q4_k", "q5_k"])
def test_a_mix_takes_no_less_than_its_base_and_more_with_a_larger_name(
    name: str, base: str
) -> None:
    described = shape(name)
    named = [f"{base}_{size}" for size in "sml" if f"{base}_{size}" in MIXES]
    sizes = [sum(map(weight_bytes(described, mix), described.graph.parameters)) for mix in named]
    assert sizes == sorted(sizes)
    weights = (weight for weight in described.graph.parameters if len(weight.shape) > 1)
    assert sizes[0] >= sum(DTYPES[base].bytes * (w.elements // 256) for w in weights)


def test_the_work_of_a_pass_is_what_is_alive_at_once(llama: Description) -> None:
    # While `up` is computed: the running vector, its norm, the gate, and what is made.
    alive = 4_096 + 4_096 + 14_336 + 14_336
    assert work_bytes(steps(llama.graph), 8_192, 1) == 2 * 8_192 * alive
    assert (
        work_bytes(steps(llama.graph), 1, 1) == 4 * 128_256 + 2 * 4_096
    )  # logits, and the last norm
    plan = planned(llama)
    assert plan.memory.activations == 2 * 8_192 * alive
    assert planned(llama, prompt=100).memory.activations == 2 * 100 * alive


def test_a_price_keeps_its_currency() -> None:
    for text, shown in (("2.00/h", "0.0020"), ("$2/h", "$0.0020"), ("2 EUR / hour", "0.0020 EUR")):
        found = price(text)
        assert found.of(3.6) == pytest.approx(0.002)
        assert found.shown(found.of(3.6)) == shown
    assert price("48/d").of(3_600) == pytest.approx(2)
    assert price("0.5/s").words == "a second"


@pytest.mark.parametrize(
    "text", ["", "2", "2.00", "2/", "2/w", "/h", "-2/h", "2,5/h", "1e9/h", "h"]
)
def test_what_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="is no price"):
        price(text)


def test_small_and_large_numbers_are_rounded_without_exponents() -> None:
    written = {0.000942: "0.00094", 3.14: "3.1", 99.6: "100", 1_234.5: "1,234", 0.0: "0"}
    assert {value: significant(value) for value in written} == written
    assert significant(1e-9) == "0.0000000010"
    assert largest(lambda n: n <= 37, 1_000) == 37
    assert largest(lambda n: n <= 37, 20) == 20
    assert [largest(lambda n: n <= 37, 1_000, least) for least in (0, 1, 36, 37)] == [37] * 4
    assert largest(lambda n: False, 20) == 0


@pytest.mark.parametrize(
    "changes",
    [{"concurrency": 0}, {"concurrency": True}, {"concurrency": 2_000_000}, {"prompt": 0},
     {"answer": -1}, {"kv_type": "q8_0"}],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RequestError):
        replace(Request(), **changes)  # type: ignore[arg-type]


def test_an_unknown_type_is_refused_with_the_nearest() -> None:
    assert checked_type(" Q4_K_M ") == "q4_k_m"
    with pytest.raises(RequestError, match=r"q4_k_l.*did you mean q4_k_s") as refused:
        checked_type("q4_k_l")
    assert "q5_k_m" in refused.value.details[0]


def test_a_known_machine_says_so_in_json() -> None:
    found = make_plan(shape("gpt2"), H100, Request()).as_dict()
    assert found["machine"] == H100.as_dict()
    assert isinstance(H100, Known)
