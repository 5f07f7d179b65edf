"""Answers read back: whole, cut, broken, in other spellings; never an exception."""

from __future__ import annotations

import random

import pytest

from forwardpass.text.calls.known import HARMONY, PLAIN
from forwardpass.text.calls.parse import Answer, Call, State, parse_calls
from forwardpass.text.calls.pieces import Written
from forwardpass.text.calls.recognise import call_form
from forwardpass.text.template import ChatTemplate
from text.call_templates import OWN

HERMES = call_form(ChatTemplate(OWN["hermes"][0]))
THINKING = call_form(ChatTemplate(OWN["hermes-thinking"][0]))
IDS = call_form(ChatTemplate(OWN["with-ids"][0]))
ONE = call_form(ChatTemplate(OWN["one"][0]))
FORMS = {"hermes": HERMES, "thinking": THINKING, "ids": IDS, "one": ONE, "harmony": HARMONY}
FORMS["plain"] = PLAIN
ARGUMENTS = '{"a": "x } \\" ] <tool_call>", "b": [1, {"c": null}]}'


def hermes(*names: str, arguments: str = ARGUMENTS) -> str:
    return HERMES.write([Written(name, arguments) for name in names])


def test_text_and_calls_are_told_apart() -> None:
    answer = parse_calls(HERMES, "I look.\n" + hermes("f", "g") + "<|im_end|>")
    assert answer == Answer("I look.", (Call("f", ARGUMENTS), Call("g", ARGUMENTS)))
    assert answer.calls[0].values() == {"a": 'x } " ] <tool_call>', "b": [1, {"c": None}]}


@pytest.mark.parametrize("text", ["", "Just words.\n", ' {"name": 3} ', "a < b, c > d", "[1] ]"])
@pytest.mark.parametrize("name", FORMS)
def test_an_answer_without_calls_is_its_text(name: str, text: str) -> None:
    assert parse_calls(FORMS[name], text) == Answer(text)


def test_an_object_alone_is_a_call_only_at_the_beginning() -> None:
    call = '{"name": "f", "parameters": {}}'
    assert parse_calls(ONE, call).calls == (Call("f", "{}"),)
    assert parse_calls(ONE, "\n" + call + "<|im_end|>").calls == (Call("f", "{}"),)
    assert parse_calls(ONE, "<|python_tag|>" + call).calls == (Call("f", "{}"),)
    assert parse_calls(ONE, "Like so: " + call) == Answer("Like so: " + call)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>',
        '<tool_call>\n\n{ "name" : "f", "arguments" : {"a":1} }\n\n</tool_call>\n',
        'Well:\n<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>',
    ],
)
def test_blanks_may_differ_from_the_form(text: str) -> None:
    answer = parse_calls(HERMES, text)
    assert answer.state is State.COMPLETE
    assert answer.calls == (Call("f", '{"a":1}'),)


def test_ids_are_read_where_the_form_has_them() -> None:
    written = IDS.write([Written("f", "{}", "abc123XYZ"), Written("g", "{}", "abc123XYW")])
    assert parse_calls(IDS, written).calls == (
        Call("f", "{}", "abc123XYZ"),
        Call("g", "{}", "abc123XYW"),
    )


def test_an_answer_cut_anywhere_says_so_and_keeps_what_was_whole() -> None:
    whole = hermes("f", "g")
    first = len(hermes("f"))
    for length in range(len(whole)):
        answer = parse_calls(HERMES, whole[:length])
        if length < len("<tool_call>"):
            assert answer == Answer(whole[:length])
        elif length in (first, first + 1):
            assert answer.state is State.COMPLETE
        elif first < length < first + 1 + len("<tool_call>"):
            assert answer.calls == (Call("f", ARGUMENTS),)  # half a mark is text still
        else:
            assert answer.state is State.INCOMPLETE
            assert answer.rest
            assert len(answer.calls) == (length > first)


@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>\n{"name": "f", "arguments": {a: 1}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": NaN}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": 1]}}\n</tool_call>',
        '<tool_call>\n{"tool": "f"}\n</tool_call>',
        "<tool_call>\nf()\n</tool_call>",
        '<tool_call>\n{"name": "f", "arguments": ' + "9" * 5000 + "}",
        '<tool_call>\n{"name": "f", "arguments": {"a": ' + "9" * 5000 + "}}\n</tool_call>",
        '<tool_call>\n{"name": "' + "f" * 300 + '", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": ' + "[" * 9**5 + "]" * 9**5 + "}}",
    ],
)
def test_a_broken_call_is_handed_back_as_it_stands(call: str) -> None:
    answer = parse_calls(HERMES, hermes("ok") + "\n" + call)
    assert answer.state is State.BROKEN
    assert answer.calls == (Call("ok", ARGUMENTS),)
    assert answer.rest == call


def test_tools_that_were_not_on_offer_are_named_once() -> None:
    answer = parse_calls(HERMES, hermes("f", "g", "g"), names=["f"])
    assert answer.unknown == ("g",)
    assert parse_calls(HERMES, hermes("f", "g")).unknown == ()


def test_reasoning_is_kept_apart_and_a_call_in_it_is_not_one() -> None:
    thought = "maybe " + hermes("f")
    text = f"<think>\n{thought}\n</think>\n\n" + hermes("g")
    expected = Answer("", (Call("g", ARGUMENTS),), thought)
    assert parse_calls(THINKING, text) == expected
    assert parse_calls(THINKING, text.removeprefix("<think>\n"), thinking=True) == expected
    cut = parse_calls(THINKING, "hm", thinking=True)
    assert (cut.content, cut.reasoning, cut.state) == ("", "hm", State.INCOMPLETE)
    assert parse_calls(THINKING, "No thought.") == Answer("No thought.")
    assert parse_calls(THINKING, "<think>a</think>\n\nb\n") == Answer("b\n", (), "a")


@pytest.mark.parametrize(
    "head",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.f json<|message|>",
        "<|channel|>commentary to=functions.f<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
    ],
)
def test_harmony_is_read_in_each_of_its_spellings(head: str) -> None:
    assert parse_calls(HARMONY, head + '{"a": 1}<|call|>') == Answer("", (Call("f", '{"a": 1}'),))
    thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
    answer = parse_calls(HARMONY, thought + head + '{"a": 1}<|call|>')
    assert (answer.reasoning, answer.calls) == ("hm", (Call("f", '{"a": 1}'),))


def test_harmonys_final_text_comes_without_its_marks() -> None:
    text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi."
    assert parse_calls(HARMONY, text) == Answer("Hi.", (), "hm")
    assert parse_calls(HARMONY, text + "<|return|>") == Answer("Hi.", (), "hm")


def test_the_plain_form_may_stand_in_a_fence() -> None:
    call = PLAIN.write([Written("f", '{"a": 1}')])
    for text in (call, f"```json\n{call}\n```", f"\n{call}\n"):
        assert parse_calls(PLAIN, text) == Answer("", (Call("f", '{"a": 1}'),))


@pytest.mark.parametrize("name", FORMS)
def test_no_text_whatever_raises_and_none_is_lost(name: str) -> None:
    form, rng = FORMS[name], random.Random(name)
    whole = form.write([Written("f", ARGUMENTS, "abcdefgh1")])
    for _ in range(300):
        text = list(whole * rng.randrange(1, 3))
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(4)] = rng.choice(['"', "{", "}", "\\", "ü", "", whole[:9]])
        answer = parse_calls(form, "".join(text), thinking=rng.random() < 0.2)
        assert (answer.rest != "") == (
            answer.state is not State.COMPLETE and answer.reasoning is None
        )
        assert all(isinstance(call.values(), dict) for call in answer.calls)


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    # Quadratic reading of any of these would take hours.
    size = 1_000_000
    for text in (
        "<tool_call>" * (size // 10),
        "<" * size,
        " " * size,
        '<tool_call>\n{"name": "f", "arguments": {"a": "' + "\\" * size,
        '<tool_call>\n{"name": "f", "arguments": ' + '{"a":' * (size // 5),
        hermes("f", arguments="{}") * (size // 100),
    ):
        parse_calls(HERMES, text)
