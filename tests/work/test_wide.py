"""Lines that keep within the terminal where names are long and numbers large."""

from __future__ import annotations

import pytest

from forwardpass.describe import describe_config
from forwardpass.errors import ConfigError
from forwardpass.work.machines import machine
from forwardpass.work.plan import Request, make_plan
from forwardpass.work.plan_report import report as plan_report
from forwardpass.work.plan_ways import ways
from forwardpass.work.report import report
from forwardpass.work.summary import Asked, count_model

Raw = dict[str, object]
KIMI_K2: Raw = {
    "model_type": "kimi_k2",
    "vocab_size": 163_840,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
}
GEMMA_4_E4B: Raw = {
    "model_type": "gemma4_text",
    "hidden_size": 2_560,
    "intermediate_size": 10_240,
    "num_hidden_layers": 42,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 18,
    "layer_types": 7 * [*5 * ["sliding_attention"], "full_attention"],
}


def counted(raw: Raw) -> list[str]:
    description = describe_config("a model", raw)
    return report(count_model(description), description, Asked(), "counted")


@pytest.mark.parametrize(("raw", "briefly"), [(KIMI_K2, "of each"), (GEMMA_4_E4B, "as embedding")])
def test_notes_are_brief_where_numbers_are_large(raw: Raw, briefly: str) -> None:
    lines = counted(raw)
    assert max(map(len, lines)) <= 99
    assert any(line.endswith(briefly) for line in lines)


def test_layers_that_read_another_s_cache_attend_and_have_none() -> None:
    """Of 42 layers 35 see a window and 7 everything; 24 cache, of these 20 with a window."""
    growing = [line.split() for line in counted(GEMMA_4_E4B) if "each visible" in line]
    assert [words[-2:] for words in growing] == [["42", "layers"], ["7", "layers"]]
    cached = [line.split() for line in counted(GEMMA_4_E4B) if "KV cache" in line]
    assert [words[-2:] for words in cached] == [["24", "layers"], ["4", "layers"]]


def test_what_would_fit_goes_on_in_the_next_line() -> None:
    description = describe_config("mixtral", {"model_type": "mixtral"})
    plan = make_plan(description, machine("h100"), Request(concurrency=8), "bf16")
    lines = plan_report(plan, description, ways(description, plan, "bf16"))
    assert max(map(len, lines)) <= 99
    first = next(i for i, line in enumerate(lines) if line.startswith("would fit"))
    assert lines[first].endswith(";")
    assert lines[first + 1].startswith(" " * 13 + "in ")


def test_the_architectures_that_there_are_fill_several_lines() -> None:
    with pytest.raises(ConfigError) as error:
        describe_config("a model", {"model_type": "kimi_k3"})
    assert max(map(len, str(error.value).splitlines())) <= 99
    assert "starcoder2" in str(error.value)
