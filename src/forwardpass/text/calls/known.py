"""What is known of forms of calls beyond what a template's rendering shows.

`OVERRULING` forms are used whatever the rendering shows: templates write the history of those
models in another way than the models write answers. `STATED` forms are described in the prompt by
templates that leave calls out of the history, or that cannot be learned from. `NAMED` adds what
a rendering cannot show to a form learned from it. `REFUSED` are told by the template's text and
refused by name.

Sources: the templates themselves; for `harmony`, OpenAI's description of the harmony response
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from forwardpass.text.calls.form import CallForm, Thinking
from forwardpass.text.calls.pieces import Arguments, CallId, Literal, Name, Pieces

DEFAULT_ID = "[A-Za-z0-9]{9}"
COUNTED_ID = "[0-9]{1,3}"

_OBJECT = (Literal('{"name": "'), Name(), Literal('", "arguments": '), Arguments(), Literal("}"))


@dataclass(frozen=True, slots=True)
class Known:
    """A form, and the texts that a template with it holds, all of them."""

    needles: tuple[str, ...]
    form: CallForm


@dataclass(frozen=True, slots=True)
class Named:
    """A learned form's name, told by how its calls begin, and what is added to it.

    `id_pattern` is the shape of ids where the form has them; `also` makes other ways of writing
    a call from the learned one.
    """

    name: str
    begins: str
    id_pattern: str | None = None
    also: Callable[[Pieces], tuple[Pieces, ...]] = lambda call: ()
    text: str = ""  # what opens free text


HARMONY = CallForm(
    name="harmony",
    call=(
        Literal("<|channel|>commentary to=functions."),
        Name(),
        Literal(" <|constrain|>json<|message|>"),
        Arguments(),
    ),
    marker=(Literal("<|channel|>commentary to="),),
    end=("<|call|>",),
    text=(Literal("<|channel|>final<|message|>"),),
    dropped=("<|channel|>commentary<|message|>", "<|end|><|start|>assistant", "<|return|>"),
    also=(
        (
            Literal(" to=functions."),
            Name(),
            Literal("<|channel|>commentary json<|message|>"),
            Arguments(),
        ),
        (
            Literal(" to=functions."),
            Name(),
            Literal("<|channel|>commentary <|constrain|>json<|message|>"),
            Arguments(),
        ),
        (
            Literal("<|channel|>commentary to=functions."),
            Name(),
            Literal(" json<|message|>"),
            Arguments(),
        ),
        (
            Literal("<|channel|>commentary to=functions."),
            Name(),
            Literal("<|message|>"),
            Arguments(),
        ),
    ),
    thinking=Thinking("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
)

PLAIN = CallForm(
    name="plain",
    call=_OBJECT,
    marker=(Literal('{"name": "'),),
    also=((Literal("```json\n"), *_OBJECT, Literal("\n```")),),
    prompted=True,
)

OVERRULING = (Known(("<|channel|>commentary ", "<|call|>", '"functions."'), HARMONY),)

STATED = (
    Known(
        ("<|tool_call|> followed by a JSON list",),
        CallForm(
            name="granite",
            before=(Literal("<|tool_call|>["),),
            call=_OBJECT,
            between=(Literal(", "),),
            after=(Literal("]"),),
            marker=(Literal("<|tool_call|>"),),
            parallel=True,
        ),
    ),
    Known(
        ("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"),
        CallForm(
            name="kimi",
            before=(Literal("<|tool_calls_section_begin|>"),),
            call=(
                *(Literal("<|tool_call_begin|>functions."), Name()),
                *(Literal(":"), CallId(COUNTED_ID)),
                *(Literal("<|tool_call_argument_begin|>"), Arguments()),
                Literal("<|tool_call_end|>"),
            ),
            after=(Literal("<|tool_calls_section_end|>"),),
            marker=(Literal("<|tool_calls_section_begin|>"),),
            parallel=True,
            text_before=True,
            end=("<|im_end|>",),
        ),
    ),
    Known(
        ("Action:", "```json", '"tool_name": ', '"parameters": ', "<|END_OF_TURN_TOKEN|>"),
        CallForm(
            name="command-r",
            before=(Literal("Action:\n```json\n[\n"),),
            call=(
                Literal('    {\n        "tool_name": "'),
                Name(),
                Literal('",\n        "parameters": '),
                Arguments(),
                Literal("\n    }"),
            ),
            between=(Literal(",\n"),),
            after=(Literal("\n]```"),),
            marker=(Literal("Action:\n```json"),),
            parallel=True,
            text_before=True,
            end=("<|END_OF_TURN_TOKEN|>",),
        ),
    ),
)

NAMED = (
    Named("hermes", '<tool_call>\n{"name": "'),
    Named(
        "llama",
        '{"name": "',
        also=lambda call: ((Literal("<|python_tag|>"), *call),),
    ),
    Named("mistral", "[TOOL_CALLS] ["),
    Named("mistral", "[TOOL_CALLS]["),
    Named(
        "mistral-args",
        "[TOOL_CALLS]",
        also=lambda call: (
            (
                *(Literal("[TOOL_CALLS]"), Name(), Literal("[CALL_ID]")),
                *(CallId("[A-Za-z0-9]{9}"), Literal("[ARGS]"), Arguments()),
            ),
        ),
    ),
    Named("deepseek", "<｜tool▁calls▁begin｜>"),
    Named("kimi", "<|tool_calls_section_begin|>"),
    Named("apriel", "<tool_calls>["),
    Named("minimax-m1", "<tool_calls>\n{"),
    Named("functionary", "<function="),
    Named("solar", "<|tool_calls|>", id_pattern="[a-z0-9]{10}", text="<|content|>"),
)

# How the calls are written → texts of which one stands in the template.
REFUSED = {
    "in XML, with <function=…> and <parameter=…>": ("<parameter=",),
    "in XML, with <arg_key> and <arg_value>": ("<arg_key>",),
    "in XML, with <invoke …>": ("invoke name=",),
    "in Gemma's own notation, call:name{key:value}": ("<|tool_call>call:", "<|tool_call>"),
    "as Python, name(key=value)": ("<|tool_list_start|>", '"List of tools: ["'),
    "as a turn of their own, after the end of the answer": (
        "'function call'",
        "function call<|role_sep|>",
    ),
}

# What models put around their reasoning: the first pair with its end in the template's text.
THINKING = (
    Thinking("<|think|>", "<|end|><|begin|>assistant"),
    Thinking("<think>", "</think>"),
    Thinking("[THINK]", "[/THINK]"),
    Thinking("<seed:think>", "</seed:think>"),
    Thinking("<mm:think>", "</mm:think>"),
    Thinking("<|channel>thought\n", "<channel|>"),
    Thinking("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
)
