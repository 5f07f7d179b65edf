"""Parameters and work of published configs, against outside figures for the families built here."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path

import pytest

from forwardpass.describe import Description, describe_config
from forwardpass.errors import ConfigError
from forwardpass.graph.graph import Role
from forwardpass.work.count import count_pass, kv_bytes_per_token
from forwardpass.work.passes import PassShape
from forwardpass.work.summary import count_model

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
    "torch": "2471624704 (diff 0)",
}


def rows(cases: Path, file: str) -> list[tuple[Description, dict[str, str]]]:
    """The rows of a table whose config is counted, described."""
    found = []
    with (cases / file).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            try:
                found.append((described(cases, row["name"]), row))
            except ConfigError:
                assert row["name"] in REFUSED
    return found


@cache
def described(cases: Path, name: str) -> Description:
    raw = json.loads((cases / "configs" / f"{name}.json").read_text("utf-8"))
    return describe_config(name, raw)


def listed(file: str) -> dict[str, str]:
    """The lines of a list beside this file: a name, and what follows it."""
    lines = (Path(__file__).parent / file).read_text("utf-8").splitlines()
    return dict(line.partition("  ")[::2] for line in lines if line and line[0] != "#")


# Published totals of more than these configs tell: test_latent.py has the scales of F8 tables,
# oracles/test_counts_other.py the tower of Llama 4.
TOLD_ELSEWHERE = ("DeepSeek-V3.2", "Llama-4-Scout-17B-16E-Instruct")
# The total of Qwen3.5-27B's files, where the table has none.
QWEN_3_5_27B = 27_781_427_952
# What was reached: a config that is counted for the first time has to be added, and none may go.
EXACT, REFUSED = listed("counted_exactly.txt"), listed("counted_never.txt")


def test_every_published_config_is_counted_exactly_or_refused(cases: Path | None) -> None:
    assert not EXACT.keys() & REFUSED.keys()
    if cases is None:
        return
    names = {path.stem for path in (cases / "configs").glob("*.json")}
    assert names == EXACT.keys() | REFUSED.keys()
    for name, why in REFUSED.items():
        with pytest.raises(ConfigError, match=re.escape(why)):
            described(cases, name)
    truth = {}
    with (cases / "counts.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            truth[row["name"]] = column(row, "params_unique_meta")
    for name, variant in EXACT.items():
        parameters = count_model(described(cases, name)).parameters
        figure = getattr(parameters, variant.strip() or "unique")
        assert str(figure) == truth[name], name


def column(row: dict[str, str], start: str) -> str:
    return next(value for key, value in row.items() if key.startswith(start))


def test_unique_parameters_equal_those_of_published_models(cases: Path | None) -> None:
    if cases is None:
        found = describe_config("own", _OWN_CONFIG)
        assert found.unique_parameters == _OWN_COUNTS["parameters"]
        return
    table = rows(cases, "counts.tsv")
    assert len(table) >= 62
    for description, row in table:
        active = column(row, "active_params")
        if active and not EXACT[row["name"]].strip():
            assert count_model(description).parameters.active == int(active), row["name"]
        published, surplus = row["published_exact"], row["published_minus_meta"]
        if published and surplus:
            expected = int(column(row, "params_unique_meta"))
            assert int(published) - int(surplus) == expected


def test_what_published_files_store_beyond_has_a_reason(
    cases: Path | None,
) -> None:
    if cases is None:
        return
    for description, row in rows(cases, "counts.tsv"):
        if not row["published_minus_meta"]:
            continue
        config, parameters = description.config, count_model(description).parameters
        table = description.graph.weights[description.family.embedding].elements
        buffers = config.num_hidden_layers * config.max_position_embeddings**2  # masks
        if config.model_type == "gpt_neox":
            # … and the angles of the quarter of a head that turns
            buffers += config.num_hidden_layers * config.head_dim // 4 // 2
        has_buffers = config.model_type in ("gpt2", "gpt_neox")
        surplus = int(row["published_minus_meta"])
        variants = (
            parameters.with_buffers,
            parameters.with_prediction_layers,
            parameters.with_towers,
        )
        more = [number - description.unique_parameters for number in variants if number]
        known = {0, table, buffers if has_buffers else 0, *more, sum(more)}
        assert surplus in known or row["name"] in TOLD_ELSEWHERE, row["name"]


def test_a_total_of_tower_and_prediction_layer_comes_out(cases: Path | None) -> None:
    if cases is None:
        return
    found = count_model(described(cases, "Qwen3.5-27B")).parameters
    assert found.unique is not None
    assert found.with_towers is not None
    assert found.with_prediction_layers is not None
    assert found.with_towers + found.with_prediction_layers - found.unique == QWEN_3_5_27B


def test_work_and_cache_of_published_models(cases: Path | None) -> None:
    if cases is None:
        check_work(describe_config("own", _OWN_CONFIG), {k: str(v) for k, v in _OWN_WORK.items()})
        return
    table = rows(cases, "flops_ref.tsv")
    assert len(table) == 48
    for description, row in table:
        check_work(description, row)


def check_work(description: Description, row: dict[str, str]) -> None:
    graph, name = description.graph, description.label
    step = count_pass(graph, PassShape.decode(1), lambda weight: 2 * weight.elements, 2)
    read = step.by_role[Role.READ].flop
    matmul = step.flop - read - step.by_role[Role.MIXER_SCAN].flop
    assert matmul == int(column(row, "weight_FLOP")) == 2 * int(column(row, "matmul_params")), name
    lookups = sum(weight.elements for weight in graph.embedding_only)
    assert lookups == int(column(row, "lookup")), name
    tables = {
        node.weights[0].name: node.weights[0].elements
        for node in graph.nodes
        if "linear" in node.op.name or "conv" in node.op.name
    }
    rest = sum(weight.elements for weight in graph.parameters) - sum(tables.values()) - lookups
    assert rest == int(column(row, "norm_bias")), name
    # The table's figures are those of the full layers; its note adds the sliding ones. Where all
    # layers slide, it takes them all.
    growing = [state for state in graph.states if state.elements_per_token]
    full = [state for state in growing if state.window is None] or growing
    kept = sum(state.elements_per_token for state in full)
    assert kept == int(column(row, "KV_elements")) == int(column(row, "KV_bytes")) // 2, name
    share = len(full) / len(growing)
    attention = int(column(row, "attention_FLOP"))
    assert read * share == attention, name
    assert matmul // attention == int(column(row, "crossover")), name
    if total := re.match(r"(\d+) \(diff 0\)", column(row, "torch") or ""):
        assert step.flop == int(total[1]), name
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
