"""Options that mean the same in every command, and how lists of numbers and names are read."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from forwardpass.errors import RequestError
from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.work.summary import MOST_TOKENS

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="a .gguf or .safetensors file, a folder or config.json, an alias, a bundled shape, "
        "or a Hugging Face id org/name[@revision][:file or quantisation]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]
AcceptUnknown = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-unknown",
        metavar="KEY",
        help="load a config with this key, which is not understood, and say so; repeatable",
    ),
]
Pre = Annotated[
    str | None,
    typer.Option("--pre", metavar="NAME", help="how a GGUF file's vocabulary cuts text"),
]
Visible = Annotated[
    str | None,
    typer.Option("--visible", metavar="N,N,…", help="show one token's work at these contexts"),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="native|reference",
        help="what computes the passes: native where it is here, unless given",
    ),
]
Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", help="threads of passes (all cores)")
]
KvTypeOfRun = Annotated[
    str | None,
    typer.Option("--kv-type", metavar="TYPE", help="type of the KV cache: f16, bf16 or f32"),
]
KvType = Annotated[
    str, typer.Option("--kv-type", metavar="TYPE", help="type of the KV cache: bf16, f16 or f32")
]


# What a program names in Python and a person types as an option.
_IN_PYTHON = (
    *ENGINE_DEFAULTS,
    *("max_tokens", "thinking", "template_args", "control_tokens", "ignore_model_defaults"),
    *("schema", "json_object", "regex", "choice", "lark", "tools", "tool_choice"),
    *("parallel_tool_calls", "strict", "key_order", "constraint"),
    *("backend", "threads", "context", "template", "accept_unknown"),
    *("visible", "prompt", "answer", "concurrency", "dtype", "kv_type", "stride"),
    *("layer", "head", "position"),
)
_NAMES = "|".join(_IN_PYTHON)
_NAMED = re.compile(rf"(?:request: )?(?P<name>{_NAMES})(?P<then> = |: | needs | and )")


def as_typed(message: str) -> str:
    """An error's message with the option at its start named as it is typed.

    `max_tokens = 0: wanted …` becomes `--max-tokens 0: wanted …`.
    """
    found = _NAMED.match(message)
    if found is None:
        return message
    name = "template-arg" if found["name"] == "template_args" else found["name"].replace("_", "-")
    then = " " if found["then"] == " = " else found["then"]
    return f"--{name}{then}{message[found.end() :]}"


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The whole numbers in `text`, separated by commas.

    Errors: RequestError naming the option and the part that is none.
    """
    found = []
    for part in text.split(","):
        word = part.strip()
        if not (word.isascii() and word.isdigit() and len(word) <= len(str(MOST_TOKENS))):
            raise RequestError(
                f'{option} {text}: "{word}" is no number of tokens',
                advice=f"for example {option} 128,8192",
            )
        found.append(int(word))
    return tuple(found)
