"""From what a user calls a model to one that is ready to answer, or a reason why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import forwardpass as fp
from forwardpass.backends.levels import missing_reason
from forwardpass.backends.threads import VARIABLES
from forwardpass.computing import Computing
from forwardpass.errors import RequestError, TokenizerError
from forwardpass.formats import TensorFile
from forwardpass.loading import load_text, open_to_run, ready
from tiny_model import CONFIG, ROWS, TOKENS, random_folder, random_gguf

needs_native = pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_folder(tmp_path_factory.mktemp("models") / "tiny")


def test_leaving_a_model_closes_its_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[TensorFile] = []
    monkeypatch.setattr(TensorFile, "close", lambda file: closed.append(file))
    with fp.load(folder) as model:
        assert closed == []
    assert closed == [model.description.file]
    with pytest.raises(fp.RequestError, match=r"none\.jinja: No such file"):
        fp.load(folder, template=tmp_path / "none.jinja")
    assert len(closed) == 2


def test_the_reference_sets_its_number_of_threads_before_numpy_is_loaded(folder: Path) -> None:
    program = (
        "import sys, forwardpass as fp\n"
        "from forwardpass.backends.threads import threads_in_force\n"
        "fp.load(sys.argv[1], backend='reference', threads=1)\n"
        "print(threads_in_force())"
    )
    command = [sys.executable, "-c", program, str(folder)]
    given = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=given)
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backend": "torch"}, r"no backend 'torch'\n  this version has native, reference"),
        ({"kv_type": "f64"}, r"kv_type = 'f64': wanted f16, bf16, f32"),
        ({"backend": "reference", "kv_type": "f16"}, "reference backend keeps its cache in f32"),
        ({"backend": "refrence"}, r"did you mean reference\?"),
        ({"context": 513}, "context = 513: wanted a whole number from 1 to 512"),
        ({"context": 0}, "context = 0"),
        ({"threads": 0}, "threads = 0"),
        ({"threads": "2"}, "threads = '2': this process may use"),
        ({"threads": True}, "threads = True: this process may use"),
        ({"template": 5}, "template = 5: wanted the path"),
        ({"accept_unknown": "key"}, "accept_unknown = 'key': wanted a list"),
        ({"accept_unknown": 5}, "accept_unknown = 5: wanted a list"),
        ({"accept_unknown": ["attn_temperature"]}, "attn_temperature"),
    ],
)
def test_a_model_is_not_loaded_otherwise_than_asked(
    folder: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(fp.RequestError, match=says):
        fp.load(folder, **options)


CACHED = 2 * 2 * 2 * 16  # elements a token: keys and values of two layers, two heads of 16


@pytest.mark.parametrize(
    ("backend", "context", "what", "cached"),
    [
        pytest.param(
            "native", None, "its weights and the cache of 64 tokens", 64 * 2, marks=needs_native
        ),
        pytest.param(
            "native",
            65,
            "its weights and the cache of 65 tokens (--context)",
            2 * 64 * 2,
            marks=needs_native,
        ),
        ("reference", None, "weights in float32", 0),
        ("reference", 65, "weights in float32 and the cache of 65 tokens (--context)", 65 * 4),
    ],
)
def test_memory_has_to_hold_the_weights_and_the_cache_that_was_asked_for(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    context: int | None,
    what: str,
    cached: int,
) -> None:
    """The native cache grows by 64 tokens at a time, of 2 bytes an element."""
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(
        "forwardpass.computing.require_memory", lambda *wanted: asked.append(wanted)
    )
    with fp.load(folder, backend=backend, context=context) as model:
        parameters = model.description.graph.parameters
    tables = [weight.elements for weight in parameters if len(weight.shape) == 2]
    kept = tables if backend == "native" else [weight.elements for weight in parameters]
    ((wanted, words),) = asked
    assert wanted == 4 * sum(kept) + cached * CACHED
    assert words.endswith(what)


@needs_native
def test_whoever_loads_is_told_how_far_the_packing_is(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    computing = Computing("native")
    opened = open_to_run(folder, computing)
    with ready(opened, computing, packing=lambda done, total: told.append((done, total))):
        # How often depends on how fast other threads pack: tests of `PackedWeights.add` know.
        totals = {total for _, total in told}
        assert totals == {told[-1][0]}
        assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_a_shape_without_weights_is_not_run() -> None:
    with pytest.raises(fp.RequestError, match="gpt2 can be counted and not run"):
        fp.load("gpt2")


def test_a_tokenizer_with_more_texts_than_the_table_has_rows_is_refused(tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", vocab_size=399)
    with pytest.raises(fp.TokenizerError, match="the first token without a row is 399"):
        fp.load(path)


def test_a_control_token_beyond_the_table_is_refused_only_where_it_is_used(tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", vocab_size=TOKENS - 1)
    with fp.load(path) as model:
        model.generate("hello", max_tokens=1)
        with pytest.raises(fp.ContextError, match=f"token {TOKENS - 1} is not among"):
            model.generate(fp.raw("<|endoftext|>"), control_tokens=True)


def test_an_answer_may_end_with_an_id_that_has_a_row_and_no_token(tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", eos_token_id=[ROWS - 1])
    with fp.load(path) as model:
        assert ROWS - 1 in model.tokenizer.eos_ids
        assert model.tokenizer.vocab_size <= ROWS - 1
        made = model.generate(fp.raw("a"), logit_bias={ROWS - 1: 100.0})
        assert (made.finish_reason, made.text) == ("stop", "")


@pytest.mark.parametrize("value", [ROWS, -1, [2, 10**9]])
@pytest.mark.parametrize("where", ["config.json", "generation_config.json"])
def test_an_id_that_is_never_drawn_ends_no_answer_and_its_file_is_named(
    tmp_path: Path, where: str, value: object
) -> None:
    stated = {"eos_token_id": value}
    path = (
        random_folder(tmp_path / "m", eos_token_id=value)
        if where == "config.json"
        else random_folder(tmp_path / "m", generation_config=stated)
    )
    says = rf"^{where}: eos_token_id = .*: the model has ids from 0 to {ROWS - 1}\n  correct it in"
    for load in (fp.load, load_text):
        with pytest.raises(fp.ConfigError, match=says):
            load(path)


def test_a_template_that_writes_half_a_surrogate_pair_is_named(tmp_path: Path) -> None:
    source = "{{ '\\ud800<|im_end|>' }}x{{ messages[0].content }}<|im_end|>"
    path = random_folder(tmp_path / "m", template=source)
    with fp.load(path) as model:
        for control in (False, True):
            with pytest.raises(fp.TemplateError, match=r"template.*: half a surrogate pair"):
                model.generate("hello", control_tokens=control)


def test_an_unknown_setting_is_refused_and_can_be_accepted(tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", attn_temperature_tuning=4)
    with pytest.raises(fp.ConfigError, match="attn_temperature_tuning = 4"):
        fp.load(path)
    with fp.load(path, accept_unknown=["attn_temperature_tuning"]) as model:
        assert dict(model.description.config.accepted_unknown) == {"attn_temperature_tuning": 4}


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(folder: Path) -> None:
    with fp.load(folder, context=10) as model:
        ids = model.prepare(fp.raw("a" * 40)).ids
        says = f"a prompt of {len(ids)} tokens, the context holds 10\n  .*--context to 512"
        with pytest.raises(fp.ContextError, match=says):
            model.generate(fp.raw("a" * 40))
        full = model.generate(fp.raw("the quick"), max_tokens=100)
        assert full.finish_reason == "length"
        assert sum((full.usage.prompt_tokens, full.usage.completion_tokens)) == 11
    assert CONFIG["max_position_embeddings"] == 512


def test_a_folder_without_weights_says_which_files_were_looked_for(tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m")
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    with pytest.raises(fp.RequestError) as caught:
        fp.load(path)
    assert str(caught.value).splitlines()[1:] == [
        "  looked for model.safetensors and model.safetensors.index.json",
        "  pytorch_model.bin is not read from a folder",
    ]
    (path / "m-q8.gguf").touch()
    with pytest.raises(fp.RequestError, match=rf"name the file: {path}/m-q8\.gguf"):
        fp.load(path)


def test_templates_without_a_default_are_named_with_the_way_out(tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", template=None)
    tools = path / "additional_chat_templates" / "tool_use.jinja"
    tools.parent.mkdir()
    tools.write_text("{{ tools }}{{ messages[0].content }}", "utf-8")
    with fp.load(path) as model, pytest.raises(fp.RequestError) as caught:
        model.generate("hi")
    assert str(caught.value).splitlines() == [
        "m: chat template: none is called default, so none can be chosen; there is only tool_use",
        "  tool_use is taken where there are tools",
        "  --template FILE brings one in their place",
    ]
    tools.with_name("rag.jinja").write_text("x", "utf-8")
    with fp.load(path) as model, pytest.raises(fp.RequestError, match="there are: rag, tool_use"):
        model.generate("hi")


def test_a_rule_for_cutting_text_can_be_named_in_the_place_of_the_files(tmp_path: Path) -> None:
    path = random_gguf(tmp_path / "m.gguf", **{"tokenizer.ggml.pre": "none-such"})
    with pytest.raises(TokenizerError, match="--pre NAME"):
        fp.load(path)
    with fp.load(path, pre="gpt-2") as model, fp.load(random_gguf(tmp_path / "n.gguf")) as plain:
        assert model.prepare("the dog").ids == plain.prepare("the dog").ids
    with pytest.raises(RequestError, match="--pre 'gpt2' is not a rule"):
        fp.load(path, pre="gpt2")
