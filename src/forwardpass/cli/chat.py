"""`forwardpass chat MODEL`: talks in the terminal, streaming."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forwardpass.cli import account
from forwardpass.cli.answering import (
    AnswerOptions,
    EngineOptions,
    System,
    TemplateOptions,
    begin,
    given,
)
from forwardpass.cli.console import data, note, say
from forwardpass.cli.explaining import branch, token_named, why_lines
from forwardpass.cli.groups import with_groups
from forwardpass.cli.options import Model as Reference
from forwardpass.errors import ForwardpassError, RequestError, did_you_mean
from forwardpass.hub.paths import written
from forwardpass.options import limits_of
from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.text.messages import assistant, check_text, load_conversation, system, user

if TYPE_CHECKING:
    from forwardpass.model import Generation, Message, Model
    from forwardpass.options import Options

SETTABLE = (*ENGINE_DEFAULTS, "max_tokens")
PROMPT = "> "
HELP = """\
/system TEXT      sets the system message; without TEXT takes it away
/set NAME VALUE   a sampler setting or max_tokens; without VALUE takes it back;
                  without NAME shows what is in force
/save FILE        writes the conversation as JSON
/load FILE        goes on with one that was saved
/why [N]          shows why the last answer's tokens came; its token N stage by stage
/take N ID        takes another token at place N of the last answer and goes on from there:
                  ID is a token's id or its exact text, in quotes where that has blanks
/undo             takes the last question and its answer back
/help             shows this
/quit             ends, as does Ctrl-D; Ctrl-C stops an answer
//text            sends /text: a message that begins with a slash"""


@with_groups
def command(
    model: Reference,
    template: TemplateOptions,
    answer: AnswerOptions,
    engine: EngineOptions,
    system: System = None,
) -> None:
    """Talks in the terminal; /help lists what can be typed besides messages."""
    options: Options = {**template.chosen(), **answer.chosen()}
    if sys.stdin is None:
        raise RequestError("there is no prompt: standard input is closed")
    with engine.load(model, template.template) as loaded:
        if loaded.chat is None:
            raise RequestError(
                f"{model} has no chat template, so it cannot talk in turns",
                advice="--template FILE brings one; forwardpass run --raw completes a text",
            )
        loaded.settings(**options)  # refuses what is out of range before the first question
        session = Session(loaded, options)
        session.set_system(system or "")
        session.talk()


@dataclass
class Session:
    """A conversation with a model, and what is typed to steer it."""

    model: Model
    options: Options
    messages: list[Message] = field(default_factory=list)
    last: Generation | None = None  # of the answer that stands last in the conversation

    def talk(self) -> None:
        """Reads lines until /quit or the end of input."""
        if sys.stdin.isatty():
            note("/help lists the commands, Ctrl-D ends")
        while (line := read_line()) is not None:
            try:
                if line.startswith("/") and not line.startswith("//"):
                    if not self.obey(line):
                        return
                elif line.strip():
                    self.ask(line.removeprefix("/"))
            except ForwardpassError as error:
                note(f"error: {error}")

    def ask(self, text: str) -> None:
        """Sends a message and streams the answer; both are kept, unless nothing came of it."""
        asked = [*self.messages, user(text)]
        try:
            going = begin(self.model, asked, self.options)
        except KeyboardInterrupt:
            note("\nstopped; the message is not kept")
            return
        if self._answer(going, "the message is not kept"):
            self.messages = [*asked, assistant(going.answer().text)]

    def _answer(self, going: Generation, lost: str) -> bool:
        """Streams an answer and its account; whether there is any. `lost` says what it means
        where there is none."""
        stopped = not self._stream(going)
        answer = going.answer()
        data()
        for line in (*account.work_lines(answer), *account.limit_lines(going, answer)):
            note(line)
        note(account.sampling_words(answer.sampling))  # with the seed that gives it again
        for line in account.switch_lines(answer.sampling):
            note(line)
        if answer.steps:
            self.last = going
        if stopped:
            note(f"stopped; {'/undo takes this turn back' if answer.steps else lost}")
        return bool(answer.steps)

    @staticmethod
    def _stream(going: Generation) -> bool:
        """Shows the answer as it comes; False where Ctrl-C stopped it."""
        try:
            for step in going:
                say(step.text, end="")
        except KeyboardInterrupt:
            return False
        except ForwardpassError:
            data()
            raise
        return True

    def obey(self, line: str) -> bool:
        """Does what a line that begins with a slash says; False where it ends the talk."""
        name, _, rest = line[1:].strip().partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: note(HELP),
            "quit": lambda _: None,
            "system": self.set_system,
            "set": self.set_option,
            "save": self.save,
            "load": self.load,
            "undo": lambda _: self.undo(),
            "why": self.why,
            "take": self.take,
        }
        if name not in commands:
            offered = [f"/{command}" for command in commands]
            raise RequestError(
                f"there is no command /{name}{did_you_mean(f'/{name}', offered)}",
                advice="/help lists them; //text sends a message that begins with a slash",
            )
        if name in ("help", "quit", "undo") and rest.strip():
            raise RequestError(f"/{name} takes nothing behind it, not {rest.strip()!r:.60}")
        commands[name](rest.strip())
        return name != "quit"

    def why(self, text: str) -> None:
        """Shows the last answer token by token, or one of its tokens stage by stage."""
        going = self._explained()
        if text and not _is_place(text):
            raise RequestError(f"/why {text:.60}: wanted the number of a token, from 0 up")
        for line in why_lines(going.trace(), int(text) if text else None):
            data(line)

    def take(self, text: str) -> None:
        """Puts another answer in the place of the last one: the same up to a token, there another,
        and on from that under what is set now."""
        going = self._explained()
        place, _, named = text.partition(" ")
        named = named.strip()
        if len(named) > 1 and named[0] == named[-1] == '"':
            named = named[1:-1]
        if not (_is_place(place) and named):
            raise RequestError(
                f"/take {text:.60}".rstrip() + ": wanted the number of a token, and an id or text"
            )
        token = token_named(self.model, named, f"/take {place}")
        settings = self.model.settings(**self.options)
        limits = limits_of(self.options, self.model.description.config.vocab_size)
        try:
            other = branch(going, int(place), token, settings, limits)
        except KeyboardInterrupt:
            note("\nstopped; the answer stays as it was")
            return
        if self._answer(other, "the answer stays as it was"):
            self.messages = [*self.messages[:-1], assistant(other.answer().text)]

    def _explained(self) -> Generation:
        if self.last is None and any(said["role"] == "assistant" for said in self.messages):
            raise RequestError(
                "the answer above can no longer be explained: its scores are not kept"
            )
        if self.last is None:
            raise RequestError("there is no answer to explain yet", advice="ask something first")
        return self.last

    def set_system(self, text: str) -> None:
        """Sets the system message, or takes it away."""
        self.last = None
        rest = [message for message in self.messages if message["role"] != "system"]
        self.messages = [system(text), *rest] if text else rest

    def set_option(self, text: str) -> None:
        """`NAME VALUE` sets, `NAME` alone takes back; nothing shows what is in force."""
        name, _, value = text.replace("=", " ", 1).partition(" ")
        name, value = name.replace("-", "_"), value.strip()
        if name:
            if name not in SETTABLE:
                raise RequestError(
                    f"there is no setting {name}{did_you_mean(name, SETTABLE)}",
                    advice=f"the settings are {', '.join(SETTABLE)}",
                )
            changed: dict[str, object] = {**self.options}
            changed.pop(name, None)
            if value:
                changed[name] = _json_value(name, value)
            options = given(**changed)
            self.model.settings(**options)  # refuses what is out of range before it is kept
            self.options = options
        settings = self.model.stated_settings(**self.options)
        drawn = not settings.greedy and settings.seed.value is None
        more = ["a fresh seed each answer"] if drawn else []
        if (limit := self.options.get("max_tokens")) is not None:
            more.append(f"max-tokens {limit}")
        note(account.sampling_words(settings, *more))
        for line in account.switch_lines(settings):
            note(line)

    def save(self, text: str) -> None:
        """Writes the conversation as JSON; an existing file is not overwritten."""
        path = _path(text, "save")
        if not self.messages:
            raise RequestError("there is nothing to save yet")
        saved: dict[str, object] = {"messages": self.messages}
        if tools := self.options.get("tools"):
            saved["tools"] = tools
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump(saved, file, ensure_ascii=False, indent=1)
        except FileExistsError:
            raise RequestError(f"{path} exists already", advice="choose another name") from None
        except OSError as error:
            raise RequestError(f"{path}: {error.strerror}") from None
        note(f"{account.plural(len(self.messages), 'message')} in {path}")

    def load(self, text: str) -> None:
        """Replaces the conversation, and the tools on offer, by those that were saved."""
        path = _path(text, "load")
        loaded = load_conversation(path)
        self.messages = list(loaded.messages)
        self.options = {**self.options, "tools": loaded.tools}
        self.last = None
        note(f"{account.plural(len(self.messages), 'message')} from {path}")

    def undo(self) -> None:
        """Takes the last question and its answer back."""
        last = next(
            (i for i in reversed(range(len(self.messages))) if self.messages[i]["role"] == "user"),
            None,
        )
        if last is None:
            raise RequestError("there is no turn to take back")
        note(f"taken back: {self.messages[last]['content']!s:.60}")
        del self.messages[last:]
        self.last = None


def read_line() -> str | None:
    """The next line that was typed or piped, None at its end.

    Ctrl-C on a terminal gives the line up and begins another. Raises RequestError where the input
    is not UTF-8.
    """
    terminal = sys.stdin.isatty()
    if terminal and sys.stdout.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (gives input() a history and keys that move)
    while True:
        try:
            if terminal and not sys.stdout.isatty():
                with contextlib.suppress(OSError):  # nobody reads it
                    sys.stderr.write(PROMPT)  # the answers go elsewhere, and the prompt is none
                    sys.stderr.flush()
            line = input(PROMPT if terminal and sys.stdout.isatty() else "")
            check_text(line, "standard input")
            return line
        except UnicodeDecodeError as error:
            raise RequestError(f"standard input is not UTF-8 text: {error}") from None
        except OSError as error:
            raise RequestError(f"standard input cannot be read: {error}") from None
        except EOFError:
            if terminal:
                note("")
            return None
        except KeyboardInterrupt:
            if not terminal:
                raise
            note("\nCtrl-D or /quit ends")


def _is_place(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _json_value(name: str, text: str) -> object:
    """What was typed as a setting's value: JSON, but that names may go without quotes."""
    if name in ("sampler", "stages") and not text.startswith(('"', "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RequestError(f"/set {name}: {text} is no JSON value") from None


def _path(text: str, name: str) -> Path:
    if not text:
        raise RequestError(f"/{name} needs the name of a file")
    return written(text, f"/{name} ")
