from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cli.conftest import WITHOUT_NATIVE
from cli.running import Run
from cli.test_run import COUNT, NUMBER, closed
from text.vocabularies import small
from tiny_model import random_gguf

TEXT = "the quick Öl 🎉"
OR_NULL = {"type": ["number", "null"]}
TOKEN = closed(
    id=COUNT, token={"type": "string"}, bytes={"type": "array", "items": COUNT}, logprob=OR_NULL
)
SCHEMA: dict[str, Any] = closed(
    tokens={"type": "array", "items": TOKEN},
    bos={"type": ["integer", "null"]},
    scored=COUNT,
    bytes=COUNT,
    sum=NUMBER,
    perplexity=OR_NULL,
    bits_per_byte=OR_NULL,
    windows=closed(count=COUNT, length=COUNT, stride={"type": ["integer", "null"]}),
    work={"type": "object"},
)
SCHEMA["properties"]["note"] = {"type": "string"}  # where there is something to say


def score(run: Run, *arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.ok("score", *arguments, "--json").out)
    jsonschema.validate(found, SCHEMA)
    known = [row["logprob"] for row in found["tokens"] if row["logprob"] is not None]
    assert found["scored"] == len(known)
    assert found["sum"] == pytest.approx(math.fsum(known))
    return found


def test_json_holds_each_token_and_what_follows_from_them(
    run: Run, tiny: Path, backend: str
) -> None:
    found = score(run, tiny, TEXT, "--backend", backend)
    ids = small().encode(TEXT)
    assert [row["id"] for row in found["tokens"]] == ids
    assert bytes(b for row in found["tokens"] for b in row["bytes"]) == TEXT.encode()
    first = len(found["tokens"][0]["bytes"])
    assert (found["scored"], found["bytes"]) == (len(ids) - 1, len(TEXT.encode()) - first)
    assert found["perplexity"] == pytest.approx(math.exp(-found["sum"] / found["scored"]))
    bits = -found["sum"] / math.log(2) / found["bytes"]
    assert found["bits_per_byte"] == pytest.approx(bits)
    assert found["windows"] == {"count": 1, "length": 512, "stride": None}
    assert found["work"]["passes"] == 1


@pytest.mark.skipif(WITHOUT_NATIVE is not None, reason=str(WITHOUT_NATIVE))
def test_both_backends_score_a_text_alike_and_a_cache_of_two_bytes_shows(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float32 tables and a float32 cache: what is left are the orders of summation.

    Or, where prompts are multiplied in tiles, that those round to 8 bits.
    """
    from forwardpass import _native

    asked = (tiny, TEXT * 3, "--backend")
    reference = score(run, *asked, "reference")
    for level in _native.levels():
        monkeypatch.setenv("FORWARDPASS_ISA", level)
        native = score(run, *asked, "native", "--kv-type", "f32")
        theirs, ours = ([row["logprob"] for row in made["tokens"]] for made in (reference, native))
        assert (theirs[0], ours[0]) == (None, None)
        near = 5e-2 if _native.has_tiles(level) else 1e-4
        assert ours[1:] == pytest.approx(theirs[1:], abs=near)
        rounded = score(run, *asked, "native", "--kv-type", "bf16")
        # tiles hold keys and values in bf16 whatever the cache does
        assert (rounded["sum"] == native["sum"]) == _native.has_tiles(level)
        assert rounded["sum"] == pytest.approx(native["sum"], rel=1e-2)


def test_a_token_that_begins_every_text_stands_in_front_and_is_not_scored(
    run: Run, tmp_path: Path
) -> None:
    adds: dict[str, Any] = {"tokenizer.ggml.add_bos_token": True}
    found = score(run, random_gguf(tmp_path / "m.gguf", **adds), TEXT)
    assert found["bos"] == small().find("<|begin|>")
    assert found["scored"] == len(found["tokens"]) == len(small().encode(TEXT))
    assert found["bytes"] == len(TEXT.encode())
    assert found["windows"]["length"] == 511


def test_a_template_s_own_first_token_is_scored_like_others_where_no_text_begins_with_it(
    run: Run, tmp_path: Path
) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text('[{"role": "user", "content": "hello"}]', "utf-8")
    first = small().find("<|im_start|>")
    names: dict[str, Any] = {
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.bos_token_id": first,
    }
    path = random_gguf(tmp_path / "m.gguf", **names)
    found = score(run, path, "--messages", messages)
    assert found["bos"] is None
    assert (found["tokens"][0]["id"], found["tokens"][0]["logprob"]) == (first, None)
    assert found["scored"] == len(found["tokens"]) - 1
    assert "nothing is before the first" in run.ok("score", path, "--messages", messages).out


def test_texts_come_from_files_and_standard_input_too(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT, "utf-8")
    rows = score(run, tiny, TEXT)["tokens"]
    assert score(run, tiny, "--file", tmp_path / "text")["tokens"] == rows
    assert json.loads(run.ok("score", tiny, "--json", typed=TEXT).out)["tokens"] == rows


def test_a_short_text_is_shown_whole_and_a_long_one_by_its_least_likely_tokens(
    run: Run, tiny: Path
) -> None:
    lines = run.ok("score", tiny, TEXT).out.splitlines()
    rows = score(run, tiny, TEXT)["tokens"]
    assert lines[0].startswith(f"{len(rows)} tokens, {len(rows) - 1} scored (nothing is before")
    assert lines[2].split() == ["place", "logprob", "probability", "token"]
    assert len(lines) == 3 + len(rows) + 2
    assert lines[-1].startswith("log probability -")
    assert " · perplexity " in lines[-1]
    assert lines[-1].endswith(" bits a byte")
    for row, line in zip(rows[1:], lines[4:], strict=False):
        assert line.split()[1] == f"{row['logprob']:.3f}"
    long = run.ok("score", tiny, "the dog and the fox " * 20).out.splitlines()
    assert long[2].endswith("the 24 least likely tokens")
    logprobs = [float(line.split()[1]) for line in long[3:27]]
    assert logprobs == sorted(logprobs)


def test_a_text_beyond_the_context_is_read_in_windows_where_a_stride_is_given(
    run: Run, tiny: Path
) -> None:
    said = run.refused("score", tiny, TEXT * 9, "--context", 16)
    assert "the context holds 16\n  --stride 8 reads it in windows" in said
    done = run.ok("score", tiny, TEXT * 9, "--context", 16, "--stride", 8)
    assert "windows of up to 16 tokens, stride 8: each token\n" in done.out
    assert "is scored after at least 8 others" in done.out
    found = score(run, tiny, TEXT * 9, "--context", 16, "--stride", 8)
    count = math.ceil((len(found["tokens"]) - 16) / 8) + 1
    assert found["windows"] == {"count": count, "length": 16, "stride": 8}
    assert found["scored"] == len(found["tokens"]) - 1
    said = run.refused("score", tiny, TEXT * 9, "--context", 16, "--stride", 16)
    assert said.startswith("--stride 16: wanted 1 to 15")
    said = run.refused("score", tiny, TEXT, "--context", 1)
    assert said.startswith("--context 1: leaves nothing to score")


def test_a_stride_that_does_nothing_is_told(run: Run, tiny: Path) -> None:
    told = "without effect where the text fits into the context: stride"
    assert told in run.ok("score", tiny, TEXT, "--stride", 8).err.splitlines()
    found = score(run, tiny, TEXT, "--stride", 8)
    assert (found["windows"]["stride"], found.pop("note")) == (None, told)
    assert found["tokens"] == score(run, tiny, TEXT)["tokens"]


def test_a_conversation_is_scored_as_the_template_writes_it(
    run: Run, tiny: Path, bare: Path, tmp_path: Path
) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text('[{"role": "user", "content": "hello"}]', "utf-8")
    found = score(run, tiny, "--messages", messages)
    shown = "".join(row["token"] for row in found["tokens"])
    assert shown == "<|im_start|>user\nhello<|im_end|>\n"
    assert found["tokens"][0]["bytes"] == []
    template = ("--template", tiny / "chat_template.jinja")
    assert score(run, bare, "--messages", messages, *template)["tokens"] == found["tokens"]
    done = run("score", bare, "--messages", messages)
    assert (done.status, done.out) == (1, "")
    assert "has no chat template, so it cannot take messages" in done.err


def test_a_wrong_request_is_refused_naming_what_is_wrong(run: Run, tiny: Path) -> None:
    assert "both given" in run.refused("score", tiny, "x", "--messages", "m.json")
    assert "need --messages" in run.refused("score", tiny, "x", "--thinking", "on")
    assert "the text has no tokens" in run.refused("score", tiny, "")
    assert run.refused("score", tiny, "A").startswith("the text is one token, and nothing is")


def test_a_rule_for_cutting_text_can_be_named_for_every_command_that_reads_text(
    run: Run, tmp_path: Path, tiny: Path
) -> None:
    path = random_gguf(tmp_path / "m.gguf", **{"tokenizer.ggml.pre": "qwen99"})
    for command in ("score", "tokens", "next", "run"):
        done = run(command, path, "the dog")
        assert done.status == 1
        assert "tokenizer.ggml.pre = 'qwen99' is not a rule of this version" in done.err
        assert "--pre NAME" in done.err
        more = ("--max-tokens", 1) if command == "run" else ()
        named = run.ok(command, path, "the dog", "--pre", "gpt-2", *more, "--json")
        assert json.loads(named.out)
        assert "--pre 'gpt2' is not a rule" in run.refused(command, path, "x", "--pre", "gpt2")
        said = run.refused(command, tiny, "the dog", "--pre", "gpt-2")
        assert "is a folder, whose tokenizer.json says it all" in said
    assert run.ok("chat", path, "--pre", "gpt-2", typed="/quit\n").out == ""


def test_a_model_without_a_template_chats_with_one_from_a_file(
    run: Run, bare: Path, tiny: Path, tmp_path: Path
) -> None:
    gguf = random_gguf(tmp_path / "m.gguf", template=None)
    template = tiny / "chat_template.jinja"
    for model in (bare, gguf):
        assert "has no chat template" in run("chat", model, typed="hi\n").err
        asked = ("--template", template, "--max-tokens", 3)
        assert run.ok("chat", model, *asked, typed="hi\n/quit\n").out
        assert "completed as it is" not in run.ok("run", model, "hi", *asked).err
        assert run.ok("next", model, "hi", "--template", template).out
