"""What the commands that run a model share: their options, and what these make of a request.

Nothing here loads NumPy before the number of its threads is known (`EngineOptions.load`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from forwardpass.cli.console import note, patience
from forwardpass.cli.options import AcceptUnknown, Backend, KvTypeOfRun, Pre, Threads
from forwardpass.cli.progress import TerminalProgress, loading
from forwardpass.computing import Computing
from forwardpass.errors import RequestError
from forwardpass.sampling.ranges import ENGINE_DEFAULTS

if TYPE_CHECKING:
    from forwardpass.model import Generation, Model, Prompt
    from forwardpass.options import Options

PromptFile = Annotated[
    Path | None, typer.Option("--file", "-f", metavar="FILE", help="read the prompt from a file")
]
System = Annotated[str | None, typer.Option("--system", metavar="TEXT", help="a system message")]


@dataclass(frozen=True)
class PromptOptions:
    """The prompt of a command."""

    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="the prompt; without it, --file or standard input"),
    ] = None
    file: PromptFile = None
    system: System = None
    raw_text: Annotated[
        bool, typer.Option("--raw", help="complete the text as it is, without the chat template")
    ] = False

    def text(self, template: TemplateOptions) -> str:
        """What the user wrote."""
        if self.raw_text and template.template is not None:
            raise RequestError(
                "--raw and --template were both given", advice="a raw prompt goes in no template"
            )
        return prompt_text(self.prompt, self.file)

    def request(self, model: Model, text: str) -> Prompt:
        """A conversation, or the text as it is where that is asked or there is no template."""
        from forwardpass import raw, system, user

        if self.raw_text or model.chat is None:
            if self.system is not None:
                raise RequestError(
                    "--system needs a chat template, and this text is completed as it is"
                )
            if not self.raw_text:
                label = model.description.label
                note(f"{label} has no chat template: the text is completed as it is")
            return raw(text)
        if self.system is None or not text.strip():  # which the model refuses
            return text
        return [system(self.system), user(text)]


@dataclass(frozen=True)
class TemplateOptions:
    """How a conversation becomes a prompt."""

    thinking: Annotated[
        str | None, typer.Option("--thinking", metavar="on|off", help="the template's thinking")
    ] = None
    template_arg: Annotated[
        list[str] | None,
        typer.Option(
            "--template-arg", metavar="KEY=JSON", help="an argument of the template; repeatable"
        ),
    ] = None
    template: Annotated[
        Path | None,
        typer.Option("--template", metavar="FILE", help="a chat template in the model's place"),
    ] = None
    control_tokens: Annotated[
        bool,
        typer.Option("--control-tokens", help="let names of control tokens in the text be control"),
    ] = False

    def chosen(self) -> Options:
        """What was set of it, as `Model.generate` takes it."""
        if self.thinking not in (None, "on", "off"):
            raise RequestError(f'--thinking {self.thinking}: wanted "on" or "off"')
        return given(
            thinking=None if self.thinking is None else self.thinking == "on",
            template_args=template_arguments(self.template_arg),
            control_tokens=self.control_tokens or None,
        )


@dataclass(frozen=True)
class AnswerOptions:
    """How long an answer may be, and how its tokens are chosen."""

    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="the most tokens of an answer")
    ] = None
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", help="0 is greedy")
    ] = None
    top_k: Annotated[int | None, typer.Option("--top-k", metavar="K", help="0 is off")] = None
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="P", help="1 is off")] = None
    min_p: Annotated[float | None, typer.Option("--min-p", metavar="P", help="0 is off")] = None
    typical_p: Annotated[
        float | None, typer.Option("--typical-p", metavar="P", help="1 is off")
    ] = None
    top_n_sigma: Annotated[
        float | None, typer.Option("--top-n-sigma", metavar="N", help="0 is off")
    ] = None
    xtc_probability: Annotated[
        float | None, typer.Option("--xtc-probability", metavar="P", help="0 is off")
    ] = None
    xtc_threshold: Annotated[
        float | None, typer.Option("--xtc-threshold", metavar="P", help="0.1 unless given")
    ] = None
    repetition_penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", metavar="X", help="1 is off")
    ] = None
    frequency_penalty: Annotated[
        float | None, typer.Option("--frequency-penalty", metavar="X", help="0 is off")
    ] = None
    presence_penalty: Annotated[
        float | None, typer.Option("--presence-penalty", metavar="X", help="0 is off")
    ] = None
    penalty_last_n: Annotated[
        int | None,
        typer.Option("--penalty-last-n", metavar="N", help="tokens they look back, -1 all"),
    ] = None
    dry_multiplier: Annotated[
        float | None, typer.Option("--dry-multiplier", metavar="X", help="0 is off")
    ] = None
    dry_base: Annotated[
        float | None, typer.Option("--dry-base", metavar="X", help="1.75 unless given")
    ] = None
    dry_allowed_length: Annotated[
        int | None, typer.Option("--dry-allowed-length", metavar="N", help="2 unless given")
    ] = None
    dry_penalty_last_n: Annotated[
        int | None,
        typer.Option("--dry-penalty-last-n", metavar="N", help="tokens it looks back, -1 all"),
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None,
        typer.Option(
            "--dry-sequence-breaker", metavar="TEXT", help="ends a repeat for DRY; repeatable"
        ),
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        typer.Option("--logit-bias", metavar="ID=X", help="added to a token's score; repeatable"),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="seed of the draws; a fresh one unless given"),
    ] = None
    sampler: Annotated[
        str | None,
        typer.Option("--sampler", metavar="NAME", help="rules: default, transformers or llama.cpp"),
    ] = None
    stages: Annotated[
        str | None,
        typer.Option("--stages", metavar="NAME,NAME,…", help="the sampler's stages in this order"),
    ] = None
    ignore_model_defaults: Annotated[
        bool, typer.Option("--ignore-model-defaults", help="leave the model's sampling values out")
    ] = False

    def chosen(self) -> Options:
        """What was set of it, as `Model.generate` takes it."""
        settings = {name: getattr(self, name) for name in ENGINE_DEFAULTS}
        return given(
            **{**settings, "logit_bias": biases(self.logit_bias)},
            max_tokens=self.max_tokens,
            ignore_model_defaults=self.ignore_model_defaults or None,
        )


@dataclass(frozen=True)
class EngineOptions:
    """What computes the passes, and how a model is loaded."""

    backend: Backend = None
    threads: Threads = None
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="N", help="the most tokens of prompt and answer"),
    ] = None
    kv_type: KvTypeOfRun = None
    pre: Pre = None
    accept_unknown: AcceptUnknown = None

    def load(self, reference: str, template: Path | None) -> Model:
        """The model, ready to answer."""
        from forwardpass.loading import open_to_run, ready

        computing = Computing(self.backend, self.threads, self.kv_type)
        opened = open_to_run(
            reference,
            computing,
            accept_unknown=self.accept_unknown or (),
            progress=TerminalProgress(),
        )
        with loading(opened.label) as bar:
            return ready(
                opened,
                computing,
                context=self.context,
                template=template,
                pre=self.pre,
                packing=bar.at,
            )


def given(**options: object) -> Options:
    """The options that were set: those that are None are left out."""
    return cast("Options", {name: value for name, value in options.items() if value is not None})


def prompt_text(prompt: str | None, file: Path | None) -> str:
    """The prompt from the argument, a file, or standard input, exactly as it is there."""
    if prompt is not None and file is not None:
        raise RequestError("a prompt and --file were both given")
    if prompt is not None:
        return prompt
    if file is not None:
        try:
            return file.read_bytes().decode("utf-8")
        except OSError as error:
            raise RequestError(f"{file}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise RequestError(f"{file}: cannot be read as UTF-8 text: {error}") from None
    if sys.stdin is None or sys.stdin.isatty():  # None: it was closed
        raise RequestError(
            "there is no prompt", advice="give it as an argument, with --file, or on standard input"
        )
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except OSError as error:
        raise RequestError(f"standard input cannot be read: {error}") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"standard input is not UTF-8 text: {error}") from None


def template_arguments(pairs: Sequence[str] | None) -> Mapping[str, object] | None:
    """`--template-arg KEY=JSON` as a mapping."""
    found: dict[str, object] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise RequestError(f"--template-arg {pair}: wanted KEY=JSON")
        if key in found:
            raise RequestError(f"--template-arg {key} is given twice")
        try:
            found[key] = json.loads(value, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise RequestError(
                f"--template-arg {pair}: {value!r} is not JSON",
                advice='a text needs quotes: KEY="x"',
            ) from None
    return found or None


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def biases(pairs: Sequence[str] | None) -> Mapping[int, float] | None:
    """`--logit-bias ID=X` as a mapping."""
    found: dict[int, float] = {}
    for pair in pairs or ():
        key, _, value = pair.partition("=")
        try:
            token, bias = int(key), float(value)
        except ValueError:
            raise RequestError(f"--logit-bias {pair}: wanted ID=NUMBER") from None
        if token in found:
            raise RequestError(f"--logit-bias {token} is given twice")
        found[token] = bias
    return found or None


def begin(model: Model, prompt: Prompt, options: Options) -> Generation:
    """The answer, its prompt read."""
    with patience("reading the prompt"):
        return model.stream(prompt, **options)
