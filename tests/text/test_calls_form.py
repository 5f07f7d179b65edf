"""How templates write calls: each is recognised, and what it renders reads back as the calls."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from forwardpass.errors import RequestError
from forwardpass.text.calls.form import CallForm
from forwardpass.text.calls.parse import State, parse_calls
from forwardpass.text.calls.pieces import CallId, Control, Literal, Written, written
from forwardpass.text.calls.probe import QUESTION, Probe, reading_of
from forwardpass.text.calls.recognise import call_form
from forwardpass.text.chat import Chat
from forwardpass.text.from_folder import from_folder
from forwardpass.text.template import ChatTemplate
from forwardpass.text.templates import Templates
from text.call_templates import OWN
from text.vocabularies import folder_with, small, trained_bpe

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# What each template is recognised as, or a word of its refusal. This may only improve.
RECOGNISED = {
    "Apriel-1.6-15b-Thinker-fixed": "apriel",
    "CohereForAI-c4ai-command-r-plus-tool_use": "command-r",
    "HuggingFaceTB-SmolLM3-3B": "plain",
    "Kimi-K2-Thinking": "kimi",
    "MiniMax-M1": "minimax-m1",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "Qwen-QwQ-32B": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": "plain",
    "deepseek-ai-DeepSeek-V3.1": "deepseek",
    "fireworks-ai-llama-3-firefunction-v2": "plain",
    "google-gemma-2-2b-it": "plain",
    "ibm-granite-granite-3.3-2B-Instruct": "granite",
    "ibm-granite-granite-4.1": "hermes",
    "meetkai-functionary-medium-v3.1": "functionary",
    "meta-llama-Llama-3.1-8B-Instruct": "llama",
    "meta-llama-Llama-3.3-70B-Instruct": "llama",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral-args",
    "moonshotai-Kimi-K2": "kimi",
    "openai-gpt-oss-120b": "harmony",
    "unsloth-Apriel-1.5": "apriel",
    "upstage-Solar-Open-100B": "solar",
}
REFUSED = {
    "ByteDance-Seed-OSS": "XML, with <function=",
    "GLM-4.6": "XML, with <arg_key>",
    "GigaChat3-10B-A1.8B": "turn of their own",
    "LFM2-8B-A1B": "as Python",
    "LFM2.5-Instruct": "as Python",
    "MiniMax-M3": "XML, with <invoke",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "XML, with <function=",
    "Qwen3.5-4B": "XML, with <function=",
    "Spark2.5": "XML, with <arg_key>",
    "deepseek-ai-DeepSeek-V4-Flash-0731": "XML, with <invoke",
    "google-gemma-4-31B-it-interleaved": "Gemma's own notation",
    "llama-cpp-deepseek-r1": "cannot be told",
    "poolside-Laguna-S-2.1": "XML, with <arg_key>",
    "poolside-Laguna-XS.2": "XML, with <arg_key>",
}
# Recognised, and showing no calls: in words, or failing where they should stand.
SHOWS_NONE = {"plain", "granite"} | {"Kimi-K2-Thinking"}
PARALLEL = {"llama": False, "plain": False, "harmony": False}


@cache
def templates(cases: Path | None) -> dict[str, ChatTemplate]:
    if cases is None:
        return {name: ChatTemplate(source, name=name) for name, (source, _) in OWN.items()}
    paths = sorted((cases / "templates").glob("*.jinja"))
    return {path.stem: ChatTemplate(path.read_text("utf-8"), name=path.stem) for path in paths}


def own(name: str) -> ChatTemplate:
    return ChatTemplate(OWN[name][0], name=name)


def random_calls(seed: int, count: int, *, ids: int = 9) -> list[Written]:
    """Calls whose names and arguments hold whatever JSON can: quotes, brackets, other scripts."""
    rng = random.Random(seed)
    texts = ['say "hi"', "a\\b\n\tc", "ü 你好 🎉", "}{][", "</tool_call>", "", "it's <b>&amp;", "]"]

    def value(depth: int) -> Any:
        kinds = 7 if depth < 3 else 5
        match rng.randrange(kinds):
            case 0:
                return rng.choice(texts)
            case 1:
                return rng.randrange(-(10**12), 10**12)
            case 2:
                return rng.choice([True, False, None])
            case 3:
                return rng.choice([0.5, -1.25e-7, 3e20])
            case 4:
                return rng.choice(texts) + rng.choice(texts)
            case 5:
                return [value(depth + 1) for _ in range(rng.randrange(3))]
            case _:
                return {rng.choice(texts) + str(i): value(depth + 1) for i in range(2)}

    letters = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_-"
    calls = []
    for place in range(count):
        name = "".join(rng.choices(letters, k=rng.randrange(1, 40))) + f"_x{place}_{seed}"
        values = {f"key{i}": value(0) for i in range(rng.randrange(1, 4))}
        call_id = "".join(rng.choices(letters[:26] + "0123456789", k=ids))
        calls.append(Written(name, json.dumps(values, ensure_ascii=False), call_id))
    return calls


def answer_in(rendered: str, form: CallForm) -> str:
    """The rendering from where its calls begin."""
    after = rendered.rindex(QUESTION) + len(QUESTION)
    starts = [form.marker, *(way[:1] for way in form.also)]
    found = [at for at in (rendered.find(written(start), after) for start in starts) if at >= 0]
    return rendered[min(found) :]


def test_templates_are_recognised_or_refused_by_name(cases: Path | None) -> None:
    found, refused = {}, {}
    for name, template in templates(cases).items():
        try:
            found[name] = call_form(template, SPECIAL).name
        except RequestError as error:
            refused[name] = str(error)
    if cases is None:
        assert found == {name: form for name, (_, form) in OWN.items() if form}
        assert set(refused) == {"xml"}
        return
    assert found == RECOGNISED
    assert set(refused) == set(REFUSED)
    for name, word in REFUSED.items():
        assert word in refused[name]
        assert name in refused[name]


@pytest.mark.parametrize("seed", range(6))
def test_calls_that_a_template_renders_read_back_as_they_were(
    seed: int, cases: Path | None
) -> None:
    read = 0
    for name, template in templates(cases).items():
        try:
            form = call_form(template, SPECIAL)
        except RequestError:
            continue
        if not SHOWS_NONE.isdisjoint((name, form.name)):
            continue
        read += 1
        count = 1 + seed % 3 if form.parallel else 1
        calls = random_calls(seed, count)
        rendered = Probe(template, SPECIAL).calls(calls, reading_of(template))
        assert rendered is not None, name
        answer = parse_calls(form, answer_in(rendered, form), names=[c.name for c in calls])
        assert answer.state is State.COMPLETE, (name, answer)
        assert [c.name for c in answer.calls] == [c.name for c in calls], name
        assert [c.values() for c in answer.calls] == [json.loads(c.arguments) for c in calls]
        assert answer.unknown == ()
        if any(isinstance(p, CallId) and p.pattern != "[0-9]{1,3}" for p in form.call):
            assert [c.id for c in answer.calls] == [c.id for c in calls], name
    assert read == (5 if cases is None else 17)


@pytest.mark.parametrize("seed", range(3))
def test_what_a_form_writes_is_in_what_its_template_renders(seed: int, cases: Path | None) -> None:
    for name, template in templates(cases).items():
        try:
            form = call_form(template, SPECIAL)
        except RequestError:
            continue
        if not SHOWS_NONE.isdisjoint((name, form.name)) or form.name in ("harmony", "command-r"):
            continue  # those two write a history in other words or another layout
        calls = random_calls(seed, 2 if form.parallel else 1)
        rendered = Probe(template, SPECIAL).calls(calls, reading_of(template))
        counted = any(isinstance(p, CallId) and p.pattern == "[0-9]{1,3}" for p in form.call)
        own_words = [
            Written(
                call.name,
                form.arguments_text(json.loads(call.arguments)),
                str(place) if counted else call.id,
            )
            for place, call in enumerate(calls)
        ]
        assert rendered is not None
        assert form.write(own_words) in rendered, name
        assert form.parallel is PARALLEL.get(form.name, True), name


def test_a_form_says_where_each_part_stands() -> None:
    form = call_form(own("hermes"))
    assert form.write([Written("f", "{}")]) == (
        '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    )
    assert written(form.marker) == "<tool_call>"
    assert form.text_before
    assert form.parallel
    assert form.end == ("<|im_end|>",)
    assert form.thinking is None
    ids = call_form(own("with-ids"))
    assert written(ids.before) == "[TOOL_CALLS] ["
    assert written(ids.between) == ", "
    assert written(ids.after) == "]"
    assert CallId("[A-Za-z0-9]{9}") in ids.call
    assert call_form(own("compact")).separators == (",", ":")
    one = call_form(own("one"))
    assert not one.parallel
    assert not one.text_before  # an object alone cannot be told from text further on
    assert written(one.marker) == '{"name": "'
    assert call_form(own("listless")).prompted


def test_marks_become_ids_exactly_where_the_tokenizer_has_one() -> None:
    form = call_form(own("hermes")).bound_to(lambda text: text == "<tool_call>")
    assert form.marker == (Control("<tool_call>"),)
    assert form.call[0] == Control("<tool_call>")
    assert form.call[-1] == Literal("}\n</tool_call>")
    both = call_form(own("hermes")).bound_to(lambda text: True)
    assert both.call[-2:] == (Literal("}\n"), Control("</tool_call>"))


def test_the_ids_are_those_of_the_models_own_tokenizer(tmp_path: Path) -> None:
    templates = Templates({"default": OWN["hermes"][0]})
    assert Chat(small(), templates).call_form() == call_form(own("hermes"))
    # The same vocabulary with <tool_call> as an added token that is no control token.
    file = trained_bpe().replace("<think>", "<tool_call>")
    chat = Chat(from_folder(folder_with(tmp_path, file)), templates)
    assert not chat.tokenizer.is_control(chat.tokenizer.find("<tool_call>") or 0)
    assert chat.call_form().marker == (Control("<tool_call>"),)
    assert chat.call_form().call[-1] == Literal("}\n</tool_call>")


def test_a_prompt_says_whether_its_reasoning_is_open() -> None:
    thinking = call_form(own("hermes-thinking")).thinking
    assert thinking is not None
    assert (thinking.begin, thinking.end) == ("<think>", "</think>")
    assert thinking.opened_by("<|im_start|>assistant\n<think>\n")
    assert not thinking.opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not thinking.opened_by("<|im_start|>user\nwhat is <think>?<|im_end|>\n")


def test_a_template_that_hides_its_calls_is_refused_with_a_way_out() -> None:
    source = "{{ tools }}{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(RequestError, match="how it writes calls of them cannot be told") as caught:
        call_form(ChatTemplate(source))
    assert "--template FILE" in str(caught.value)


@pytest.mark.parametrize(
    "call",
    [
        "{{ '{\"a\":' * 50000 }}{{ c.function.name }}{{ '{\"a\":' * 50000 }}",
        "{{ c.function.name }}{{ c.function.arguments | tojson }}",  # nothing begins a call
        "<c>{{ c.function.arguments | tojson }}{{ c.function.name }}</c>",
        "<c>{{ c.function.name }}{{ c.id }}{{ c.function.arguments | tojson }}</c>",
        "<c>{{ c.function.name }} {{ c.function.name }}{{ c.function.arguments | tojson }}</c>",
        "<c>{{ c.function.name }} {{ c.function.arguments | tojson | length }}</c>",
        "<c>{{ c.function.name }} {{ c.function.arguments | tojson }}{{ c.function.name }}</c>",
        "<c>{{ c.function.name }} {{ c.function.arguments | tojson | upper }}</c>",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
    ],
)
def test_what_is_learned_is_checked_and_all_else_refused(call: str) -> None:
    head = "{{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
    with pytest.raises(RequestError, match="cannot be told"):
        call_form(ChatTemplate(head + call + "{% endfor %}{% endfor %}"))


def test_a_form_that_nobody_named_is_learned() -> None:
    call = "<c>{{ c.function.name }} {{ c.function.arguments | tojson }}#{{ c.id }}</c>"
    head = "{{ tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
    form = call_form(ChatTemplate(head + call + "{% endfor %}{% endfor %}"))
    assert form.name == "learned"
    assert form.write([Written("f", "{}", "i"), Written("g", "{}", "j")]) == (
        "<c>f {}#i</c><c>g {}#j</c>"
    )
