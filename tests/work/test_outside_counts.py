"""Parameters and work of published configs, against outside figures for the families built here."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from forwardpass.architectures import model_types
from forwardpass.describe import Description, describe_config
from forwardpass.graph.graph import Role
from forwardpass.work.count import count_pass, kv_bytes_per_token
from forwardpass.work.passes import PassShape

# One published model, for where there is no folder of outside cases: meta-llama/Llama-3.2-1B.
_OWN_CONFIG: dict[str, object] = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 2_048,
    "intermediate_size": 8_192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
_OWN_COUNTS = {"parameters": 1_235_814_400}
_OWN_WORK = {
    "matmul_params": 1_235_746_816,
    "weight_FLOP": 2_471_493_632,
    "attention_FLOP": 131_072,
    "KV_elements": 16_384,
    "KV_bytes": 32_768,
    "crossover": 18_856,
    "lookup": 0,
    "norm_bias": 67_584,
    "torch": 2_471_624_704,
}


def rows(cases: Path, file: str) -> list[tuple[Description, dict[str, str]]]:
    """The rows of a table whose config is of a family that is built, described."""
    found = []
    with (cases / file).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            raw = json.loads((cases / "configs" / f"{row['name']}.json").read_text("utf-8"))
            if raw.get("model_type") in model_types():
                found.append((describe_config(row["name"], raw), row))
    return found


def column(row: dict[str, str], start: str) -> str:
    return next(value for key, value in row.items() if key.startswith(start))


def test_unique_parameters_equal_those_of_published_models(cases: Path | None) -> None:
    if cases is None:
        found = describe_config("own", _OWN_CONFIG)
        assert found.unique_parameters == _OWN_COUNTS["parameters"]
        return
    table = rows(cases, "counts.tsv")
    assert len(table) >= 17
    for description, row in table:
        expected = int(column(row, "params_unique_meta"))
        assert description.unique_parameters == expected, row["name"]
        published, surplus = row["published_exact"], row["published_minus_meta"]
        if published:
            assert int(published) - int(surplus) == expected


def test_what_published_files_store_beyond_is_a_second_head_or_mask_buffers(
    cases: Path | None,
) -> None:
    if cases is None:
        return
    for description, row in rows(cases, "counts.tsv"):
        if not row["published_minus_meta"]:
            continue
        config = description.config
        table = description.graph.weights[description.family.embedding].elements
        buffers = config.num_hidden_layers * config.max_position_embeddings**2  # masks
        if config.model_type == "gpt_neox":
            # … and the angles of the quarter of a head that turns
            buffers += config.num_hidden_layers * config.head_dim // 4 // 2
        has_buffers = config.model_type in ("gpt2", "gpt_neox")
        surplus = int(row["published_minus_meta"])
        assert surplus in (0, table, buffers if has_buffers else 0), row["name"]


def test_work_and_cache_of_published_models(cases: Path | None) -> None:
    if cases is None:
        check_work(describe_config("own", _OWN_CONFIG), {k: str(v) for k, v in _OWN_WORK.items()})
        return
    table = rows(cases, "flops_ref.tsv")
    assert len(table) >= 17
    for description, row in table:
        check_work(description, row)


def check_work(description: Description, row: dict[str, str]) -> None:
    graph, name = description.graph, description.label
    step = count_pass(graph, PassShape.decode(1), lambda weight: 2 * weight.elements, 2)
    read = step.by_role[Role.READ].flop
    matmul = step.flop - read
    assert matmul == int(column(row, "weight_FLOP")) == 2 * int(column(row, "matmul_params")), name
    vectors = sum(w.elements for w in graph.weights.values() if len(w.shape) == 1)
    assert vectors == int(column(row, "norm_bias")), name
    lookups = sum(weight.elements for weight in graph.embedding_only)
    assert lookups == int(column(row, "lookup")), name
    # The table's figures are those of the full layers; its note adds the sliding ones. Where all
    # layers slide, it takes them all.
    full = [state for state in graph.states if state.window is None] or list(graph.states)
    kept = sum(state.elements_per_token for state in full)
    assert kept == int(column(row, "KV_elements")) == int(column(row, "KV_bytes")) // 2, name
    share = len(full) / len(graph.states)
    attention = int(column(row, "attention_FLOP"))
    assert read * share == attention, name
    assert matmul // attention == int(column(row, "crossover")), name
    if total := re.match(r"\d+", column(row, "torch") or ""):
        assert step.flop == int(total[0]), name
    if sliding := re.match(
        r"\d+ sliding layers .* add (\d+) FLOP and (\d+) KV", row.get("note", "")
    ):
        assert read - attention == int(sliding[1]), name
        assert kv_bytes_per_token(graph, 1) - kept == int(sliding[2]), name


@pytest.mark.parametrize("visible", [1, 400, 512, 513, 4_000])
def test_a_window_bounds_what_is_read_and_kept(visible: int) -> None:
    raw: dict[str, object] = {"model_type": "gemma3_text", "sliding_window": 512}
    graph = describe_config("gemma", raw).graph
    work = count_pass(graph, PassShape.decode(visible), lambda weight: 2 * weight.elements, 2)
    sliding = sum(state.window is not None for state in graph.states) // 2
    assert sliding == 22
    seen = 22 * min(visible, 512) + 4 * visible
    assert work.by_role[Role.READ].flop == 4 * 8 * 256 * seen
    row = 2 * 4 * 256 * 2  # a key and a value of 4 heads of 256 elements of 2 bytes
    total = sum(part.cache_read for part in work.by_role.values())
    assert total == row * seen
