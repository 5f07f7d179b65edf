"""The pages of `count` and `plan` say what their JSON says, and need nothing beside themselves."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.tiny import CONFIGS
from cli.counting import TINY, TINY_TENSORS, leave_alone
from cli.running import Run
from formats.safetensors_writer import TensorData, write_safetensors
from forwardpass._version import __version__
from forwardpass.describe import describe_config
from forwardpass.pages.count_page import TABLES, table_values
from forwardpass.pages.figures import Figures
from forwardpass.pages.labels import label, unit
from forwardpass.pages.page import STYLE, Html, element, escaped
from forwardpass.pages.parts import rest
from forwardpass.shapes import SHAPES
from forwardpass.work.parameters import parameter_table
from pages.reading import Read, leaves, resolve, says

HOSTILE = "</td><script>alert(1)</script>\"'&\x1b[31m\u202e\ud800"
GEMMA = {**TINY, "model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window": 16}
GEMMA |= {"num_key_value_heads": 1, "head_dim": 4}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    leave_alone(monkeypatch, tmp_path / "home")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(capsys, monkeypatch)


def config(folder: Path, raw: dict[str, object], name: str = "config.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(raw), "utf-8")
    return folder / name


def page_and_json(run: Run, tmp_path: Path, *arguments: object) -> tuple[Read, Any, str]:
    path = tmp_path / "page.html"
    done = run.ok(*arguments, "--json", "--html", path)
    page = path.read_text("utf-8")
    return Read.of(page), json.loads(done.out), page


def check(read: Read, values: dict[str, Any], beside: tuple[str, ...]) -> None:
    """All of the JSON is on the page, and every figure of the page is in the JSON."""
    found = read.figures()
    wanted = leaves(values)
    shown: set[str] = set()
    for pointer, value, text in found:
        if not any(f"/{name}/" in f"{pointer}/" for name in beside):
            assert resolve(values, pointer) == value, pointer
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert says(text, value), (pointer, value, text)
        shown.add(pointer)
    missing = [leaf for leaf in wanted if leaf not in shown]
    covered = tuple(f"{pointer}/" for pointer in shown)
    assert [leaf for leaf in missing if not leaf.startswith(covered)] == []
    assert not any(re.search(r"\d", text) for text in read.loose), read.loose


def check_shares(read: Read, values: dict[str, Any]) -> int:
    shares = [pair for pair in read.shares() if f"/{TABLES}/" not in pair[0]]
    for part, whole, text in shares:
        exact = 100 * resolve(values, part) / resolve(values, whole)
        assert abs(float(text.removesuffix(" %")) - exact) <= 0.05 + 1e-9
    return len(shares)


@pytest.mark.parametrize("name", sorted({**SHAPES, **CONFIGS}))
def test_the_page_of_a_count_has_all_of_the_json_and_no_other_figure(
    run: Run, tmp_path: Path, name: str
) -> None:
    model = config(tmp_path / "model", {**SHAPES, **CONFIGS}[name])
    options = ("--visible", "8,16,32,64", "--prompt", 12, "--answer", 5)
    read, values, _ = page_and_json(run, tmp_path, "count", model, *options)
    check(read, values, (TABLES,))
    assert check_shares(read, values) > 4 * 6


def test_windows_and_a_file_of_tensors_alone_are_on_the_page_too(run: Run, tmp_path: Path) -> None:
    read, values, _ = page_and_json(run, tmp_path, "count", config(tmp_path / "m", GEMMA))
    assert values["windows"]
    check(read, values, (TABLES,))
    data = {name: TensorData("BF16", shape, None) for name, shape in TINY_TENSORS.items()}
    file = write_safetensors(tmp_path / "tensors.safetensors", data)
    read, values, _ = page_and_json(run, tmp_path, "count", file)
    assert values["flop_per_token"] is None
    check(read, values, (TABLES,))


def test_a_value_that_no_section_knows_is_shown_at_the_end() -> None:
    values = {"known": 1, "new": {"bytes": 2_000_000, "deep": [{"seconds": 0.25}, {"x": []}]}}
    figures = Figures(values)
    assert figures.figure(("known",)) == '<data value="1" data-path="/known">1</data>'
    (page,) = rest(figures, ())
    read = Read.of(page)
    check(read, {key: value for key, value in values.items() if key != "known"}, ())
    assert "2.00 MB" in page
    assert "0.25 s" in page
    assert list(figures.left()) == []
    assert list(rest(figures, ())) == []


@pytest.mark.parametrize(
    "path",
    [("kv_bytes_per_token",), ("latent", "per_visible_token_absorbed"), ("at", 0, "visible")],
)
def test_every_number_has_the_unit_of_its_key(path: tuple[str | int, ...]) -> None:
    assert unit(path) == {"kv": "B", "latent": "FLOP", "at": "tokens"}[str(path[0]).split("_")[0]]


def test_keys_of_a_config_are_shown_as_they_are_written_there() -> None:
    path = ("accepted_unknown", "some_cost_bytes")
    assert (label(path), unit(path)) == ("some_cost_bytes", "")
    assert label(("some_new_key",)) == "some new key"


def test_the_parameters_table_by_table_are_those_of_the_graph(run: Run, tmp_path: Path) -> None:
    read, values, _ = page_and_json(run, tmp_path, "count", "llama-3.1-8b")
    table = table_values(parameter_table(describe_config("m", SHAPES["llama-3.1-8b"]).graph))
    figures = {pointer: value for pointer, value, _ in read.figures()}
    for pointer, value in leaves({TABLES: table}).items():
        if "/numbers/" not in pointer:
            assert figures[pointer] == value
    rows = [value for pointer, value in figures.items() if re.search(r"\w/\d+/all$", pointer)]
    layer = figures[f"/{TABLES}/layers/0/all"]
    # the rows of the parts and the layers' own row above them
    assert sum(rows) - layer == values["parameters"]["unique"] == 8_030_261_248
    share = {part: text for part, _, text in read.shares()}
    assert share[f"/{TABLES}/layers/0/mlp/0/all"] == "70.2 %"


def test_two_models_stand_on_one_page(run: Run, tmp_path: Path) -> None:
    read, values, _ = page_and_json(run, tmp_path, "count", "gpt2", "--diff", "qwen3-0.6b")
    check(read, values, (TABLES,))
    assert "gpt2 beside qwen3-0.6b" in read.named("h1")[0].text
    read, values, _ = page_and_json(run, tmp_path, "count", "gpt2", "--diff", "gpt2")
    assert values["differences"] == {}
    check(read, values, (TABLES,))


PLANS = (
    ("--machine", "h100"),
    ("--machine", "2xh100", "--price", "$2.00/h", "--concurrency", 4),
    ("--machine", "8GB,1TB/s"),
    ("--machine", "1TB/s"),
    ("--machine", "80GB", "--dtype", "q4_k_m"),
    ("--machines", "h100,m4-max", "--quantisations", "bf16,q8_0", "--prompt", 12060),
)


@pytest.mark.parametrize("options", PLANS, ids=lambda options: " ".join(map(str, options)))
def test_the_page_of_a_plan_has_all_of_the_json_and_no_other_figure(
    run: Run, tmp_path: Path, options: tuple[object, ...]
) -> None:
    read, values, _ = page_and_json(run, tmp_path, "plan", "llama-3.1-8b", *options)
    check(read, values, ("ways",))
    check_shares(read, values)
    if values.get("fits") is False:
        found = {pointer: value for pointer, value, _ in read.figures()}
        assert found["/ways/devices"] == 3  # 16.3 GB on devices of 8
        assert found["/ways/dtypes/0/dtype"] == "q4_k_m"


def test_a_page_stands_alone(run: Run, tmp_path: Path) -> None:
    for arguments in (("count", "gpt2"), ("plan", "gpt2", "--machine", "h100")):
        read, _, page = page_and_json(run, tmp_path, *arguments)
        assert page.startswith('<!doctype html>\n<html lang="en">')
        assert not re.search(r"url\(|@import|https?:|//", page, re.IGNORECASE)
        names = {element.name for element in read.elements}
        assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        for found in read.elements:
            for name in found.attributes:
                assert name not in ("src", "href", "action", "style"), name
                assert not name.startswith("on")
        metas = [element.attributes for element in read.named("meta")]
        policy = [m["content"] for m in metas if "http-equiv" in m]
        assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
        assert len(read.named("title")) == len(read.named("h1")) == 1


def test_a_page_says_what_made_it_and_how_to_read_it(run: Run, tmp_path: Path) -> None:
    read, _, _ = page_and_json(
        run, tmp_path, "plan", "gpt2", "--machine", "2xh100", "--price", "$2/h", "--prompt", 1024
    )
    made = read.named("code")[0].text
    assert made.startswith("forwardpass plan gpt2 --machine 2xh100 --price '$2/h' --html ")
    assert made.endswith(" --json")
    footer = read.named("footer")[0].text
    assert f"forwardpass {__version__}" in footer
    assert "multiply-add is 2 FLOP" in footer
    assert "GB is 10⁹ bytes" in footer


def test_tables_have_captions_and_headings_and_pictures_have_words(
    run: Run, tmp_path: Path
) -> None:
    read, _, _ = page_and_json(run, tmp_path, "plan", "gpt2", "--machine", "h100")
    assert len(read.named("table")) == len(read.named("caption")) > 3
    assert all(heading.attributes.get("scope") for heading in read.named("th"))
    pictures = read.named("svg")
    assert pictures
    for picture in pictures:
        hidden = picture.attributes.get("aria-hidden") == "true"
        assert hidden != bool(picture.attributes.get("aria-label"))
    label = next(p.attributes["aria-label"] for p in pictures if "aria-label" in p.attributes)
    assert re.fullmatch(r"weights .*, KV cache .*, work .*, of 80.00 GB", str(label))


def test_names_out_of_files_stay_names(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "<b>&amp;"
    model = config(folder, {**TINY, "zz_<i>/~'\"": {"deep": [HOSTILE, 1], "flat": HOSTILE}})
    options = ("--accept-unknown", "zz_<i>/~'\"")
    read, values, page = page_and_json(run, tmp_path, "count", model, *options)
    check(read, values, (TABLES,))
    names = {element.name for element in read.elements}
    assert not names & {"script", "b", "i"}
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert r"\x1b[31m\u202e\ud800" in "".join(e.text for e in read.named("main"))
    assert "zz_<i>/~'\".flat" in [heading.text for heading in read.named("th")]
    assert read.named("h1")[0].text == values["model"]


def test_text_is_escaped_wherever_it_is_put() -> None:
    inside = element("p", HOSTILE, title=HOSTILE)
    read = Read.of(inside)
    assert [e.name for e in read.elements] == ["p"]
    assert read.elements[0].text.startswith("</td><script>alert(1)</script>\"'&\\x1b")
    assert escaped(Html("<b>")) == "<b>"


def luminance(color: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def palettes() -> Iterator[dict[str, str]]:
    style = STYLE.read_text("utf-8")
    for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL):
        yield dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))


def test_text_and_bars_stand_out_from_the_ground_in_light_dark_and_on_paper() -> None:
    found = list(palettes())
    assert len(found) == 3
    for palette in found:
        for ground in ("ground", "panel"):
            for ink, least in (
                *((name, 4.5) for name in ("text", "quiet", "good", "bad")),
                *((name, 3.0) for name in ("first", "second", "third")),
            ):
                light, dark = sorted(map(luminance, (palette[ink], palette[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= least, (ink, ground)
    dark = luminance(found[1]["ground"])
    assert dark < 0.05 < luminance(found[0]["ground"])


def test_the_style_knows_dark_paper_and_narrow_screens() -> None:
    style = STYLE.read_text("utf-8")
    used = set(re.findall(r"var\(--(\w+)\)", style))
    assert all(used == set(palette) for palette in palettes())
    assert "@media (prefers-color-scheme: dark)" in style
    assert "@media print" in style
    assert ".scroll { overflow-x: auto;" in style


def test_the_page_comes_beside_the_normal_output(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    for command in (("count", "gpt2"), ("plan", "gpt2", "--machine", "h100")):
        plain, both = run.ok(*command), run.ok(*command, "--html", path)
        assert both.out == plain.out
        assert both.err == f"page written to {path}\n"
        assert path.read_text("utf-8").endswith("</html>\n")
        assert os.listdir(tmp_path) == ["a.html"]


def test_an_older_page_is_replaced_whole_and_a_link_to_it_stays(run: Run, tmp_path: Path) -> None:
    first, link = tmp_path / "first.html", tmp_path / "link.html"
    run.ok("count", "gpt2", "--html", first)
    link.symlink_to(first)
    run.ok("count", "qwen3-0.6b", "--html", link)
    assert link.is_symlink()
    assert "qwen3-0.6b" in first.read_text("utf-8")
    umask = os.umask(0)
    os.umask(umask)
    run.ok("count", "gpt2", "--html", os.devnull)  # which is no ordinary file
    assert not Path(os.devnull).is_file()
    assert stat.S_IMODE(first.stat().st_mode) == 0o666 & ~umask


def test_a_place_where_no_page_can_go_is_refused_before_anything_is_done(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine", "utf-8")
    for command in (("count", "no-such-model"), ("plan", "no-such-model")):
        assert "this is a folder" in run.refused(*command, "--html", tmp_path)
        gone = tmp_path / "gone" / "a.html"
        assert f"there is no folder {gone.parent}" in run.refused(*command, "--html", gone)
        assert "no page of HTML" in run.refused(*command, "--html", other)
        assert "the name of a file" in run.refused(*command, "--html", "-")
    assert other.read_text("utf-8") == "mine"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written to" in run.refused("count", "gpt2", "--html", tmp_path / "a.html")


def test_a_page_that_cannot_be_written_leaves_the_old_one_and_no_rest(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.html"
    run.ok("count", "gpt2", "--html", path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = run("count", "qwen3-0.6b", "--html", path)
    assert done.status == 1
    assert done.err == f"error: --html {path}: No space left on device\n"
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.html"]
