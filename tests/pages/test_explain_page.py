"""The page of `explain` says what its trace says, token by token, and stands alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import forwardpass as fp
from forwardpass.cli.explain_pass import look_inside, pass_dict
from forwardpass.model import Model
from forwardpass.pages.explain_page import explain_page
from forwardpass.pages.page import STYLE
from forwardpass.trace.form import as_dict
from pages.explained import (
    Page,
    check_figures,
    heights,
    is_line,
    packed,
    rulers,
    unpacked,
)
from pages.test_pages import luminance
from tiny_model import random_folder

HOSTILE = "</td><script>alert(1)</script>\"'&\x1b[31m\u202e\ud800"
PROMPT = "Salt in ünder the 12 soups.\n\nToday"
EVERYTHING = {
    "temperature": 1.7,
    "top_k": 60,
    "top_p": 0.98,
    "min_p": 0.001,
    "typical_p": 0.99,
    "top_n_sigma": 5.0,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "logit_bias": {65: 1.5},
}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.0, "seed": 4},
    "few kept": {"temperature": 1.0, "top_k": 5, "seed": 4},
    "every stage": {**EVERYTHING, "seed": 1},
    "llama.cpp": {**EVERYTHING, "sampler": "llama.cpp", "seed": 2},
    "all scores": {"temperature": 1.3, "keep_scores": 416, "seed": 3},
    "few scores": {"temperature": 1.3, "keep_scores": 2, "seed": 3},
    "asked for": {"temperature": 0.8, "top_k": 4, "logprob_ids": [65, 7, 300], "seed": 5},
    "taken": {"temperature": 0.8, "top_k": 4, "take": {0: 65, 2: 300}, "seed": 6},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with fp.load(random_folder(tmp_path_factory.mktemp("tiny"))) as loaded:
        yield loaded


def trace_of(model: Model, *, tokens: int = 12, **options: Any) -> Any:
    """A trace as JSON gives it back."""
    answer = model.generate(PROMPT, max_tokens=tokens, **options)
    return json.loads(json.dumps(as_dict(answer.trace())))


def look_of(model: Model) -> Any:
    look = look_inside(model, model.prepare(PROMPT).ids)
    return json.loads(json.dumps(pass_dict(model, look)))


@pytest.mark.parametrize("way", WAYS)
def test_every_figure_is_the_traces_and_there_is_no_other(model: Model, way: str) -> None:
    trace = trace_of(model, **WAYS[way])
    page = Page.of(explain_page(trace))
    check_figures(page, trace)
    assert len(page.figures) > 30 * len(trace["steps"])


@pytest.mark.parametrize("way", ["drawn", "all scores", "few scores"])
def test_what_a_table_leaves_out_of_the_kept_scores_and_of_the_others_is_told(
    model: Model, way: str
) -> None:
    trace = trace_of(model, **WAYS[way])
    page = Page.of(explain_page(trace))
    shown = {figure.pointer for figure in page.figures}
    for i, step in enumerate(trace["steps"]):
        kept, count = f"/steps/{i}/best/ids", len(step["best"]["ids"])
        assert ((kept, f"{count:,}") in page.counts) == (way != "few scores")
        assert (f"/steps/{i}/best/rest" in shown) == (step["best"]["rest"] > 0)


def test_a_trace_with_packed_scores_has_the_page_of_one_with_lists(model: Model) -> None:
    trace = packed(trace_of(model, **WAYS["all scores"]))
    assert "ids" not in trace["steps"][0]["best"]
    check_figures(page := Page.of(explain_page(trace)), unpacked(trace))
    assert explain_page(unpacked(trace)) == explain_page(trace)
    assert any(figure.rule == "softmax" for figure in page.figures)


def test_a_pass_from_inside_stands_on_the_page_too(model: Model) -> None:
    trace, look = trace_of(model), look_of(model)
    page = Page.of(explain_page(trace, look))
    check_figures(page, {**trace, "pass": look})
    shown = {figure.pointer for figure in page.figures}
    for i in range(len(look["attention"]["weights"])):
        assert f"/pass/attention/weights/{i}" in shown
    assert "/pass/attention/sum" in shown
    for i, layer in enumerate(look["layers"]):
        for key in ("before", "attention", "mlp", "after", "attention_cosine", "rank"):
            assert f"/pass/layers/{i}/{key}" in shown
        for j in range(len(layer["lens"])):
            assert f"/pass/layers/{i}/lens/{j}/probability" in shown


@pytest.mark.parametrize("far", [1.0, 1e6])
def test_the_norms_are_drawn_to_scale(model: Model, far: float) -> None:
    look = look_of(model)
    look["layers"][-1]["after"] *= far
    values = {"pass": look}
    marks = heights(Page.of(explain_page(trace_of(model), look)))
    assert len(marks) == 3 * len(look["layers"])
    points = []
    for source, height in marks:
        _, _, _, layer, key = source.split("/")
        norm = values["pass"]["layers"][int(layer)][key]
        points.append((math.log10(norm) if far > 1 else norm, height))
    assert is_line(points)


def test_a_zero_among_the_norms_and_one_layer_can_be_drawn(model: Model) -> None:
    look = look_of(model)
    look["layers"] = look["layers"][:1]
    look["layers"][0] |= {"attention": 0.0, "attention_cosine": None}
    page = Page.of(explain_page(trace_of(model), look))
    check_figures(page, {**trace_of(model), "pass": look})
    assert len(heights(page)) == 3


def test_the_greatest_weights_of_a_long_prompt_are_shown_and_the_sink(model: Model) -> None:
    look = look_of(model)
    count = 1_000
    weights = [(i * 7919 % count + 1) / (2 * count * count) for i in range(count)]
    look["tokens"] = [look["tokens"][i % 5] for i in range(count)]
    look["attention"] |= {"weights": weights, "sink": 0.25, "sum": sum(weights) + 0.25}
    page = Page.of(explain_page(trace := trace_of(model), look))
    check_figures(page, {**trace, "pass": look})
    shown = [f.value for f in page.figures if f.pointer.startswith("/pass/attention/weights/")]
    assert sorted(shown, reverse=True) == sorted(weights, reverse=True)[: len(shown)]
    assert 100 < len(shown) < count
    assert "/pass/attention/sink" in {figure.pointer for figure in page.figures}


def test_every_token_has_its_link_and_its_section(model: Model) -> None:
    trace = trace_of(model, tokens=60, temperature=1.0, seed=1)
    page = Page.of(explain_page(trace))
    wanted = [f"token-{i}" for i in range(len(trace["steps"]))]
    assert [name for name in page.ids() if re.fullmatch(r"token-\d+", name)] == wanted
    links = [str(a["href"]) for a in page.named("a")]
    for name in wanted:
        assert links.count(f"#{name}") >= 2  # its tile, and the section before or after it
    assert {link.removeprefix("#") for link in links} <= set(page.ids())
    for i in range(len(trace["steps"])):
        stages = trace["steps"][i]["stages"]
        shown = {f.pointer for f in page.figures if f.pointer.startswith(f"/steps/{i}/")}
        for j, stage in enumerate(stages):
            assert (f"/steps/{i}/stages/{j}/survivors" in shown) >= stage["acts"], stage


@pytest.mark.parametrize("way", ["every stage", "taken", "asked for"])
def test_each_distribution_stands_below_its_own_name(model: Model, way: str) -> None:
    """The model's own beside the one after the stages, of the token that the row names."""
    trace = trace_of(model, **WAYS[way])
    tables = re.findall(r"<caption>Both distributions.*?</table>", explain_page(trace), re.DOTALL)
    for step, table in zip(trace["steps"], tables, strict=True):
        best = dict(zip(step["best"]["ids"], step["best"]["scores"], strict=True))
        after = {ranked["id"]: ranked["logprob"] for ranked in step["after"]}
        own = {each["id"]: each["logprob"] for each in step["wanted"]} | {
            step["id"]: step["logprob"]
        }
        sampled = {each["id"]: each["sampled_logprob"] for each in step["wanted"]}
        sampled |= {step["id"]: step["sampled_logprob"]} | after
        rows = [Page.of(row).figures for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]
        rows = [row for row in rows if row]
        assert len(rows) >= 4 + len(step["wanted"])
        for token, *figures in rows:
            number = int(token.pointer.split("/")[2])
            for figure in figures:
                kind = figure.pointer.split("/")[-1]
                wanted = {"sampled_logprob": sampled, "logprob": own}.get(kind, best)
                wanted = after if "/after/" in figure.pointer else wanted
                assert figure.value == wanted[number], figure
        heads = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", table)
        assert heads == ["token", "score", "the model’s own p", "p after the stages"]
        for row in re.findall(r"<tr><th scope=\"row\".*?</tr>", table, re.DOTALL):
            _, own_cell, after_cell = row.split("<td")[1:]
            assert not re.search(r"after|sampled|left out", own_cell)
            assert re.search(r"/after/|sampled_logprob|left out|–", after_cell)


def test_the_ruler_shares_out_what_was_drawn_from(model: Model) -> None:
    trace = trace_of(model, temperature=0.7, top_k=30, seed=2)
    parts = list(rulers(Page.of(explain_page(trace))))
    for i, step in enumerate(trace["steps"]):
        mine = [part for part in parts if part[0].startswith(f"/steps/{i}/")]
        (interval,) = (part[1:] for part in mine if part[0].endswith("/interval"))
        assert interval == pytest.approx(step["interval"], abs=2e-5)
        (needle,) = (part[1:] for part in mine if part[0].endswith("/random"))
        assert needle == pytest.approx([step["random"]] * 2, abs=1e-5)
        at = 0.0
        for source, start, end in mine:
            if source.endswith("/logprob"):
                width = math.exp(step["after"][int(source.split("/")[4])]["logprob"])
                assert (start, end) == pytest.approx((at, at + width), abs=2e-5)
                at += width
        if step["rank"] <= len(step["after"]) and interval[1] - interval[0] > 0.01:
            starts = [part[1] for part in mine if part[0].endswith("/logprob")]
            assert any(abs(start - interval[0]) < 2e-5 for start in starts)


def test_a_greedy_answer_has_no_ruler_and_says_so(model: Model) -> None:
    page = explain_page(trace_of(model))
    assert 'class="ruler"' not in page
    assert "the best score" in page


def test_a_token_that_was_taken_says_what_the_stages_gave(model: Model) -> None:
    trace = trace_of(model, **WAYS["taken"])
    page = Page.of(explain_page(trace))
    assert [step["taken"] for step in trace["steps"]][:3] == [True, False, True]
    tiles = [str(a.get("class")) for a in page.named("a") if str(a.get("class")).startswith("p")]
    assert [tile.endswith(" taken") for tile in tiles] == [s["taken"] for s in trace["steps"]]
    assert "taken as asked; the stages gave" in page.loose


def test_bytes_of_a_part_of_a_character_are_shown(model: Model) -> None:
    trace = trace_of(model, tokens=3)
    for step, part in zip(trace["steps"], ([0xE2, 0x82], [0xAC], [0x41]), strict=True):
        step["id"] = step["drawn"] = 1_000_000 + part[0]
        text = bytes(part).decode("utf-8", "replace")
        trace["tokens"][str(step["id"])] = {"text": text, "bytes": part}
    page = Page.of(explain_page(trace))
    check_figures(page, trace)
    assert [f.text for f in page.figures if f.rule == "hex"] == ["e2 82", "ac"]


@pytest.mark.parametrize(
    "text", [HOSTILE, "", " ", "\n", "  x ", "\u0301", "\u200f\u2067", "<b>", "&lt;", "\ufffd", "1"]
)
def test_no_token_is_more_than_text(model: Model, text: str) -> None:
    trace = trace_of(model, **WAYS["few kept"])
    look = look_of(model)
    plain = Page.of(explain_page(trace, look))
    for note in trace["tokens"].values():
        note["text"] = text
    for token in [*look["tokens"]]:
        token["text"] = text
    for layer in look["layers"]:
        for guess in layer["lens"]:
            guess["token"] = text
    trace["model"] |= {"label": text, "architecture": text, "backend": text}
    for step in trace["steps"]:
        step["text"] = text
    made = explain_page(trace, look, f"forwardpass explain {text}")
    page = Page.of(made)
    check_figures(page, {**trace, "pass": look})
    ours = {name for name, _ in plain.starts}
    assert {name for name, _ in page.starts} <= ours
    assert all(char == "\n" or char.isprintable() for char in made)
    made.encode("utf-8")


def test_an_id_that_the_trace_does_not_explain_is_shown_as_such(model: Model) -> None:
    trace = trace_of(model, temperature=1.0, seed=3)
    trace["tokens"] = {}
    page = Page.of(explain_page(trace))
    check_figures(page, trace)
    assert any(figure.text.startswith("[token ") for figure in page.figures)


def test_an_answer_of_no_token_and_one_that_was_stopped_have_a_page(model: Model) -> None:
    trace = trace_of(model)
    trace |= {"finish_reason": None}
    check_figures(Page.of(explain_page(trace)), trace)
    trace |= {"steps": [], "text": ""}
    page = Page.of(explain_page(trace))
    check_figures(page, trace)
    assert {str(a["href"]).removeprefix("#") for a in page.named("a")} <= set(page.ids())


def test_a_long_prompt_is_shown_in_part(model: Model) -> None:
    trace = trace_of(model)
    ids = trace["prompt"]["ids"]
    trace["prompt"]["ids"] = (ids * (5_000 // len(ids) + 1))[:5_000]
    page = Page.of(explain_page(trace))
    check_figures(page, trace)
    assert ("/prompt/ids", "5,000") in page.counts
    assert "… tokens left out here …" in page.loose
    assert len(explain_page(trace)) < len(explain_page(trace_of(model))) + 100_000


def test_the_page_grows_by_a_bounded_part_with_each_token(model: Model) -> None:
    """Whatever the scores, all near each other as here included, and however many were kept."""
    options: dict[str, Any] = {"temperature": 1.5, "keep_scores": 416, "seed": 1}
    sizes = [len(explain_page(trace_of(model, tokens=n, **options))) for n in (20, 60)]
    assert (sizes[1] - sizes[0]) / 40 < 24_000


@pytest.fixture
def whole(model: Model) -> str:
    return explain_page(trace_of(model, **WAYS["asked for"]), look_of(model))


def test_the_page_stands_alone(whole: str) -> None:
    assert whole.startswith('<!doctype html>\n<html lang="en">')
    assert not re.search(r"url\(|@import|https?:|//", whole, re.IGNORECASE)
    page = Page.of(whole)
    names = {name for name, _ in page.starts}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "use"}
    for name, attributes in page.starts:
        assert not {"src", "action", "style", "xlink:href"} & set(attributes), name
        assert not any(key.startswith("on") for key in attributes)
        if "href" in attributes:
            assert name == "a"
            assert str(attributes["href"]).startswith("#")
    policy = [m["content"] for m in page.named("meta") if "http-equiv" in m]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_the_page_can_be_used_by_keyboard_and_heard(whole: str) -> None:
    page = Page.of(whole)
    assert len(page.ids()) == len(set(page.ids()))
    levels = [int(name[1]) for name, _ in page.starts if re.fullmatch(r"h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    for name, attributes in page.starts:
        # nothing that takes the focus but by its own nature, or a region that scrolls
        if "tabindex" in attributes:
            assert attributes["tabindex"] == "0"
            assert attributes["role"] == "region"
            assert attributes["aria-label"]
        if name == "th":
            assert attributes["scope"]
        if name == "svg" and attributes.get("class") in ("meter", "ruler", "norms", "mark"):
            hidden = attributes.get("aria-hidden") == "true"
            assert hidden != bool(attributes.get("aria-label"))
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in page.ids()
    names = [name for name, _ in page.starts]
    assert names.count("table") == names.count("caption") > 12
    assert names.count("details") == names.count("summary")


def test_what_a_colour_says_is_said_without_it_too(model: Model) -> None:
    """A tile's colour is of the model's own probability; so is its bar, and the text heard."""
    trace = trace_of(model, temperature=2.0, seed=1, tokens=30)
    page = Page.of(explain_page(trace))
    tiles = [str(a["class"]) for a in page.named("a") if str(a.get("class")).startswith("p")]
    heard = [figure for figure in page.figures if figure.kind == "heard"]
    bounds = (0.9, 0.5, 0.1, 0.01)
    for tile, figure, step in zip(tiles, heard, trace["steps"], strict=True):
        own = math.exp(step["logprob"])
        assert tile == f"p{sum(own < bound for bound in bounds)}"
        assert figure.bar is not None
    assert len(set(tiles)) > 1


def test_text_stands_out_from_every_ground_in_light_dark_and_on_paper() -> None:
    styles = [STYLE, STYLE.with_name("explain.css")]
    both = [re.findall(r":root \{(.*?)\}", file.read_text("utf-8"), re.DOTALL) for file in styles]
    assert [len(blocks) for blocks in both] == [3, 3]
    own = [set(re.findall(r"--(\w+):", block)) for block in both[1]]
    assert own[0] == own[1] == own[2]
    for blocks in zip(*both, strict=True):
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", "".join(blocks)))
        for ground in ("ground", "panel", *own[0]):
            inks = [("text", 4.5), ("quiet", 4.5)] if ground != "came" else [("text", 4.5)]
            inks += [("first", 4.5)] if ground in ("ground", "panel", "came") else []
            for ink, least in inks:
                pair = sorted((luminance(colours[ink]), luminance(colours[ground])), reverse=True)
                assert (pair[0] + 0.05) / (pair[1] + 0.05) >= least, (ink, ground)


def test_the_style_uses_no_colour_that_is_not_named_and_moves_only_where_that_is_liked() -> None:
    style = STYLE.with_name("explain.css").read_text("utf-8")
    named = set(re.findall(r"--(\w+):", style + STYLE.read_text("utf-8")))
    assert set(re.findall(r"var\(--(\w+)\)", style)) <= named
    outside = re.sub(r":root \{.*?\}", "", style, flags=re.DOTALL)
    assert "#" not in re.sub(r"#(tokens|pass)\b", "", outside)
    calm, _, moving = style.partition("@media (prefers-reduced-motion: no-preference)")
    assert "scroll-behavior" in moving
    assert not re.search(r"scroll-behavior|animation|transition", calm)
    assert ":focus-visible" in style
