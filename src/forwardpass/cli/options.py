"""Options that mean the same in every command, and how lists of numbers are read."""

from __future__ import annotations

from typing import Annotated

import typer

from forwardpass.errors import RequestError
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
KvType = Annotated[
    str, typer.Option("--kv-type", metavar="TYPE", help="type of the KV cache: bf16, f16 or f32")
]


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
