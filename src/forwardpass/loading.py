"""`load`: from what a user calls a model to one that is ready to answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forwardpass import hub
from forwardpass.computing import Computing
from forwardpass.describe import Description, read_json_object
from forwardpass.errors import ConfigError, RequestError, TokenizerError
from forwardpass.hub.paths import reference_text
from forwardpass.opening import Opened, open_model, weights_missing

# NumPy must not be loaded before `set_threads`, so what computes is imported where it is used; what
# reads text too, which takes a while that the packing of tables can use.
if TYPE_CHECKING:
    from forwardpass.backends.backend import Backend
    from forwardpass.model import Model
    from forwardpass.text.chat import Chat
    from forwardpass.text.tokenizer import Tokenizer

GENERATION_CONFIG = "generation_config.json"
FilePath = str | os.PathLike[str]
Packing = Callable[[int, int], None]


def load(
    reference: FilePath,
    *,
    backend: str | None = None,
    threads: int | None = None,
    context: int | None = None,
    kv_type: str | None = None,
    template: FilePath | None = None,
    pre: str | None = None,
    accept_unknown: Sequence[str] = (),
    progress: hub.Progress | None = None,
) -> Model:
    """The model of that path, alias or hub id, fetched where it is not here, its weights loaded.

    `backend`: `native` or `reference` (native where it is here and computes the model unless
    given). `threads`: what passes run on (all cores unless given). `context`: the most tokens of
    prompt and answer (the model's own unless given). `kv_type`: type of the KV cache, `f16`,
    `bf16` or `f32` (f16 unless given; the reference's is always f32). `template`: a file with a
    chat template in the model's place. `pre`: the name of the rule by which a GGUF vocabulary cuts
    text, in the place of the file's. `accept_unknown`: config keys to load without. The
    environment names catalogue and cache (`FORWARDPASS_CATALOGUE`, `FORWARDPASS_HOME`).

    Raises RequestError for what was asked wrongly, and the other errors of `forwardpass.errors`
    for files that cannot be fetched, read or honored.
    """
    computing = Computing(backend, threads, kv_type)
    opened = open_to_run(reference, computing, accept_unknown=accept_unknown, progress=progress)
    return ready(opened, computing, context=context, template=template, pre=pre)


def open_to_run(
    reference: FilePath,
    computing: Computing,
    *,
    accept_unknown: Sequence[str] = (),
    progress: hub.Progress | None = None,
) -> Opened:
    """The first half of `load`: the model's files, fetched where they are not here."""
    computing.check()
    settings = hub.settings(os.environ)
    return open_model(
        reference_text(reference), settings, accept_unknown=accept_unknown, progress=progress
    )


def ready(
    opened: Opened,
    computing: Computing,
    *,
    context: int | None = None,
    template: FilePath | None = None,
    pre: str | None = None,
    packing: Packing | None = None,
) -> Model:
    """The second half of `load`: tokenizer, template, and weights in the backend's form.

    `packing` is called with the bytes of tables that the native backend has packed, and of all.
    The model owns the files from now on; on an error they are closed.
    """
    try:
        return _ready(opened, computing, context, template, pre, packing)
    except BaseException:
        opened.close()
        raise


def load_text(
    reference: FilePath,
    *,
    template: FilePath | None = None,
    pre: str | None = None,
    accept_unknown: Sequence[str] = (),
    progress: hub.Progress | None = None,
) -> tuple[Tokenizer, Chat | None]:
    """The tokenizer and the chat template of a model; its weights are not read."""
    settings = hub.settings(os.environ)
    with open_model(
        reference_text(reference), settings, accept_unknown=accept_unknown, progress=progress
    ) as opened:
        return _text(opened, _generation_config(opened), template, pre)


def _ready(
    opened: Opened,
    computing: Computing,
    context: int | None,
    template: FilePath | None,
    pre: str | None,
    packing: Packing | None,
) -> Model:
    description = opened.description
    if description is None or description.weights is None:
        raise _not_to_be_run(opened)
    tokens = description.config.context
    if context is not None:
        from forwardpass.options import whole_number

        tokens = whole_number("context", context, tokens)
    defaults = _generation_config(opened)
    finish: list[Callable[[Backend, tuple[str, ...]], Model]] = []

    def read_text() -> None:
        from forwardpass.engine.runner import Runner
        from forwardpass.model import Model

        tokenizer, chat = _text(opened, defaults, template, pre)
        _check_vocabulary(opened.label, tokenizer, description)
        finish.append(
            lambda backend, notes: Model(
                description, tokenizer, chat, Runner(backend, tokens), defaults, notes
            )
        )

    backend, notes = computing.backend_for(
        description,
        opened.label,
        context=None if context is None else tokens,
        packing=packing,
        meanwhile=read_text,
    )
    return finish[0](backend, notes)


def _check_vocabulary(label: str, tokenizer: Tokenizer, description: Description) -> None:
    """Refuses a tokenizer that a text could take beyond the table of the model.

    Control tokens beyond it are no such: Gemma 3's text models bring one, for images.
    """
    rows = description.config.vocab_size
    ids = range(rows, tokenizer.vocab_size)
    beyond = next((i for i in ids if not tokenizer.is_control(i)), None)
    if beyond is not None:
        raise TokenizerError(
            f"{label}: the tokenizer has {tokenizer.vocab_size:,} tokens, the model's table "
            f"{rows:,} rows",
            f"the first token without a row is {beyond:,}, {tokenizer.token_text(beyond)!r:.60}",
        )


def _text(
    opened: Opened,
    defaults: Mapping[str, object] | None,
    template: FilePath | None,
    pre: str | None,
) -> tuple[Tokenizer, Chat | None]:
    from forwardpass.text.chat import Chat
    from forwardpass.text.from_folder import from_folder
    from forwardpass.text.from_gguf import from_gguf
    from forwardpass.text.templates import Templates

    if opened.file is not None and opened.file.format == "gguf":
        metadata = opened.file.metadata
        tokenizer = from_gguf(metadata, name=opened.label, pre=pre)
        templates = Templates.from_gguf(metadata)
    elif opened.description and opened.files is not None and opened.files.kind == "folder":
        if pre is not None:
            raise RequestError(
                f"--pre {pre}: {opened.label} is a folder, whose tokenizer.json says it all"
            )
        folder = opened.files.path
        rows = opened.description.config.vocab_size
        tokenizer = from_folder(folder, eos_ids=_eos_ids(defaults, folder, rows))
        templates = Templates.from_folder(folder)
    else:
        raise _not_to_be_run(opened)
    if template is not None:
        if not isinstance(template, str | os.PathLike):
            raise RequestError(f"template = {template!r:.60}: wanted the path of a file")
        templates = Templates.from_file(Path(template))
    return tokenizer, Chat(tokenizer, templates) if templates else None


def _generation_config(opened: Opened) -> Mapping[str, object] | None:
    """What the model's file says about sampling, and, in folders, about ends."""
    if opened.file is not None and opened.file.format == "gguf":
        return opened.file.metadata
    if opened.files is None or opened.files.kind != "folder":
        return None
    path = opened.files.path / GENERATION_CONFIG
    return read_json_object(path) if path.is_file() else None


def _eos_ids(defaults: Mapping[str, object] | None, folder: Path, rows: int) -> tuple[int, ...]:
    """Ids that end an answer, of generation_config.json and config.json.

    The tokenizer may have fewer tokens: an id of any of the model's `rows` can be drawn.
    """
    found: list[int] = []
    for values, where in (
        (defaults or {}, GENERATION_CONFIG),
        (read_json_object(folder / "config.json"), "config.json"),
    ):
        stated = values.get("eos_token_id")
        for value in stated if isinstance(stated, list) else [stated]:
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ConfigError(f"{where}: eos_token_id = {value!r:.60}: wanted token ids")
            if not 0 <= value < rows:
                raise ConfigError(
                    f"{where}: eos_token_id = {value:,}: the model has ids from 0 to {rows - 1:,}",
                    advice=f"correct it in {folder / where}; an id never drawn ends no answer",
                )
            found.append(value)
    return tuple(dict.fromkeys(found))


def _not_to_be_run(opened: Opened) -> RequestError:
    if (missing := weights_missing(opened)) is not None:
        return missing
    return RequestError(
        f"{opened.label} can be counted and not run: there are no weights with a tokenizer",
        advice="name a .gguf file, a folder with config.json, an alias or a hub id",
    )
