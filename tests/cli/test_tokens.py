from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import forwardpass as fp
from cli.running import Run
from cli.test_run import COUNT, closed
from text.vocabularies import small
from tiny_model import END, random_folder, random_gguf

TEXT = {"type": "string"}
SCHEMA = closed(
    total=COUNT,
    sections={"type": "array", "items": closed(name=TEXT, tokens=COUNT)},
    tokens={"type": "array", "items": closed(id=COUNT, text=TEXT, control={"type": "boolean"})},
)
TEMPLATES = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "GLM-4.6",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
)
OWN_TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}"""

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add_to_list", "arguments": {"item": "basil", "amount": 2}},
}
REQUEST: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You keep a shopping list."},
        {"role": "user", "content": "Put two pots of basil on my list, s'il vous plaît."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": '{"items": 1}'},
        {"role": "assistant", "content": "Basil is on the list."},
        {"role": "user", "content": "And what is there now?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "add_to_list",
                "description": "Adds an item to the shopping list.",
                "parameters": {
                    "type": "object",
                    "properties": {"item": {"type": "string"}, "amount": {"type": "integer"}},
                    "required": ["item"],
                },
            },
        }
    ],
}


def report(run: Run, *arguments: object) -> dict[str, Any]:
    done = run.ok("tokens", *arguments, "--json")
    found: dict[str, Any] = json.loads(done.out)
    jsonschema.validate(found, SCHEMA)
    assert found["total"] == len(found["tokens"])
    assert found["total"] == sum(section["tokens"] for section in found["sections"])
    return found


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    path.write_text(json.dumps(REQUEST), "utf-8")
    return path


def templates(cases: Path | None) -> dict[str, str]:
    """Five real templates, or one of our own."""
    if cases is None:
        return {"own": OWN_TEMPLATE}
    return {
        name: (cases / "templates" / f"{name}.jinja").read_text("utf-8") for name in TEMPLATES
    }  # fmt: skip


def test_the_sections_of_a_request_add_up_to_the_prompt_that_run_would_use(
    run: Run, tmp_path: Path, request_file: Path, cases: Path | None
) -> None:
    for name, template in templates(cases).items():
        folder = random_folder(
            tmp_path / name, template=template, max_position_embeddings=8_192
        )  # fmt: skip
        found = report(run, folder, "--messages", request_file)
        with fp.load(folder) as model:
            prompt = model.prepare(REQUEST["messages"], tools=REQUEST["tools"])
            if "<arg_key>" in template:
                with pytest.raises(fp.RequestError, match="calls of tools in XML"):
                    model.stream(REQUEST["messages"], tools=REQUEST["tools"])
            else:
                going = model.stream(REQUEST["messages"], tools=REQUEST["tools"])
                assert going.prompt.ids == prompt.ids
        assert tuple(token["id"] for token in found["tokens"]) == prompt.ids, name
        sections = {section["name"]: section["tokens"] for section in found["sections"]}
        assert list(sections) == [
            "tools",
            "system",
            "message 2 (user)",
            "message 3 (assistant)",
            "message 4 (tool)",
            "message 5 (assistant)",
            "message 6 (user)",
            "template",
        ], name
        assert min(sections.values()) > 0, (name, sections)
        for place in (2, 5, 6):
            message = REQUEST["messages"][place - 1]
            own = len(small().encode(message["content"]))
            counted = sections[f"message {place} ({message['role']})"]
            # The token at an edge belongs to the text that its first character came from.
            assert abs(counted - own) <= 1, (name, place)


def test_a_text_is_counted_and_shown_token_by_token(run: Run, tiny: Path) -> None:
    text = "the quick\n🎉"
    ids = small().encode(text)
    found = report(run, tiny, text)
    assert [token["id"] for token in found["tokens"]] == ids
    assert found["sections"] == [{"name": "text", "tokens": len(ids)}]
    assert not any(token["control"] for token in found["tokens"])
    lines = run.ok("tokens", tiny, text).out.splitlines()
    assert lines[:2] == [f"{len(ids)} tokens", ""]
    assert len(lines) == len(ids) + 2
    assert lines[2].split() == [str(ids[0]), small().token_text(ids[0])]
    assert [line.split()[0] for line in lines[2:]] == [str(token) for token in ids]
    assert any(line.endswith("  \\n") for line in lines)
    assert run.ok("tokens", tiny, "the").out.splitlines()[0] in ("1 token", "2 tokens")


def test_texts_come_from_files_and_standard_input_too(run: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("the dog", "utf-8")
    found = report(run, tiny, "the dog")
    assert report(run, tiny, "--file", tmp_path / "text") == found
    assert json.loads(run.ok("tokens", tiny, "--json", typed="the dog").out) == found
    assert report(run, tiny, "")["total"] == 0


def test_the_token_that_begins_every_text_is_a_section_of_its_own(run: Run, tmp_path: Path) -> None:
    adds: dict[str, Any] = {"tokenizer.ggml.add_bos_token": True}
    path = random_gguf(tmp_path / "m.gguf", **adds)
    found = report(run, path, "the")
    assert found["sections"][1] == {"name": "begin", "tokens": 1}
    assert found["tokens"][0] == {
        "id": small().find("<|begin|>"),
        "text": "<|begin|>",
        "control": True,
    }


def test_a_request_is_shown_by_section_before_its_tokens(
    run: Run, tiny: Path, tmp_path: Path
) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text('[{"role": "user", "content": "hello"}]', "utf-8")
    lines = run.ok("tokens", tiny, "--messages", messages).out.splitlines()
    first, second, together = (line.rsplit(maxsplit=1) for line in lines[:3])
    assert [first[0], second[0], together[0]] == ["message 1 (user)", "template", "together"]
    assert int(first[1]) + int(second[1]) == int(together[1])
    assert lines[3] == ""
    assert len(lines) == 4 + int(together[1])
    assert lines[4].split() == [str(small().find("<|im_start|>")), "<|im_start|>", "control"]


def test_control_tokens_in_a_text_are_found_only_where_asked(run: Run, tiny: Path) -> None:
    assert report(run, tiny, END)["total"] == len(small().encode(END)) > 1
    found = report(run, tiny, END, "--control-tokens")
    assert found["tokens"] == [{"id": small().find(END), "text": END, "control": True}]


def test_template_options_act_on_a_request(
    run: Run, tiny: Path, bare: Path, tmp_path: Path
) -> None:
    messages = tmp_path / "messages.json"
    messages.write_text('[{"role": "user", "content": "hello"}]', "utf-8")
    plain = report(run, tiny, "--messages", messages)
    off = report(run, tiny, "--messages", messages, "--thinking", "off")
    argument = ("--template-arg", "enable_thinking=false")
    assert off["total"] > plain["total"]
    assert report(run, tiny, "--messages", messages, *argument) == off
    template = tiny / "chat_template.jinja"
    assert report(run, bare, "--messages", messages, "--template", template) == plain


def test_no_weights_are_needed_to_count_tokens(run: Run, tmp_path: Path) -> None:
    path = random_folder(tmp_path / "m", attn_temperature_tuning=4)
    (path / "model.safetensors").unlink()
    accept = ("--accept-unknown", "attn_temperature_tuning")
    assert report(run, path, "the dog", *accept)["total"] == len(small().encode("the dog"))


def test_a_wrong_request_is_refused_naming_what_is_wrong(
    run: Run, tiny: Path, bare: Path, request_file: Path, tmp_path: Path
) -> None:
    assert "both given" in run.refused("tokens", tiny, "x", "--messages", request_file)
    assert "need --messages" in run.refused("tokens", tiny, "x", "--thinking", "on")
    assert "No such file" in run.refused("tokens", tiny, "--messages", tmp_path / "none.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"mesages": []}', "utf-8")
    assert "(did you mean messages?)" in run.refused("tokens", tiny, "--messages", broken)
    done = run("tokens", bare, "--messages", request_file)
    assert (done.status, done.out) == (1, "")
    assert "has no chat template, so it cannot take messages\n  --template FILE" in done.err
