"""`forwardpass`: finds the command, runs it, and turns failures into one clear message.

Only the module of the command that was asked for is imported, so `--help`, `--version` and
`count` of a bundled shape load neither NumPy nor the tokenizer, template and native libraries.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from forwardpass.cli.console import ReaderGoneError, columns, data, note, silence
from forwardpass.errors import ForwardpassError, RequestError, did_you_mean

EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
SHELLS = ("bash", "zsh", "fish")
OPTIONS = ["--help", "--version", "--debug", "--show-completion"]


@dataclass(frozen=True)
class Command:
    """A command's name, its line in the help, and the module that holds it."""

    name: str
    about: str

    @property
    def module(self) -> str:
        return f"forwardpass.cli.{self.name}"


SECTIONS: dict[str, tuple[Command, ...]] = {
    "Use a model": (
        Command("run", "answer a prompt once"),
        Command("chat", "talk in the terminal"),
    ),
    "Look inside": (
        Command("next", "the next-token table"),
        Command("explain", "every token's scores, stages, draw"),
        Command("tokens", "a text or request, by section"),
        Command("count", "parameters, bytes, FLOP, KV cache"),
        Command("score", "how likely a text is, token by token"),
    ),
    "Time": (
        Command("profile", "work and time by role"),
        Command("bench", "speeds beside their bounds"),
        Command("plan", "memory, speed, cost elsewhere"),
        Command("machine", "this machine: level, memory, rates"),
    ),
    "Files": (
        Command("pull", "download, verified"),
        Command("models", "what is here"),
        Command("rm", "remove what was downloaded"),
    ),
}
COMMANDS = {command.name: command for section in SECTIONS.values() for command in section}


def help_text() -> str:
    """The first page: every command with its line, two examples."""
    lines = [
        "Usage: forwardpass COMMAND [OPTIONS]      runs open language models and shows the work",
        "",
    ]
    pairs = [pair for commands in SECTIONS.values() for pair in _pairs(commands)]
    rows = iter(columns(pairs, "<<<<"))
    for title, commands in SECTIONS.items():
        lines.append(title)
        lines += [f"  {next(rows)}" for _ in _pairs(commands)]
    lines += [
        "",
        '  forwardpass run smollm2-135m "Name one herb"        forwardpass count llama-3.1-8b',
        "  forwardpass COMMAND --help                          docs: docs/index.md",
        f"--version   --debug   --show-completion {'|'.join(SHELLS)}",
    ]
    return "\n".join(lines)


def _pairs(commands: Sequence[Command]) -> list[list[str]]:
    """Name and line of two commands a row."""
    texts = [text for command in commands for text in (command.name, command.about)]
    return [texts[i : i + 4] for i in range(0, len(texts), 4)]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0 done, 1 the work failed, 2 a wrong request."""
    arguments, debug = _without_debug(sys.argv[1:] if argv is None else argv)
    _fill_streams()
    for stream in (sys.stdout, sys.stderr):
        _write_anything(stream)
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        note("stopped")
        return EXIT_INTERRUPTED
    except ReaderGoneError:
        silence(sys.stdout)
        return EXIT_DONE
    except Exception as error:
        if isinstance(error, OSError):
            _end_output()
        if debug:
            note(traceback.format_exc().rstrip())
        for line in _failure(error):
            note(line)
        return error.exit_status if isinstance(error, ForwardpassError) else EXIT_FAILED


def _fill_streams() -> None:
    """Puts the null device where a standard stream was closed before the program began.

    Otherwise the next file that is opened would take its number, and what some library writes to
    standard error would land in that file. `sys.stdin` stays None: there is nothing to read.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    if sys.__stdout__ is None and not sys.stdout:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.__stderr__ is None and not sys.stderr:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _end_output() -> None:
    """Gives up what standard output still holds where it cannot be written."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        silence(sys.stdout)


def _without_debug(argv: Sequence[str]) -> tuple[list[str], bool]:
    """The arguments without `--debug`, which may stand anywhere before `--`."""
    end = argv.index("--") if "--" in argv else len(argv)
    before = [argument for argument in argv[:end] if argument != "--debug"]
    return [*before, *argv[end:]], len(before) < end


def _write_anything(stream: TextIO) -> None:
    """Lets a stream of a narrow encoding write `\\u2500` where it cannot write the character."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _failure(error: Exception) -> Iterator[str]:
    """What is said about an error: our own say it all, others may be faults of ours."""
    if isinstance(error, ForwardpassError):
        from forwardpass.cli.options import as_typed

        yield f"error: {as_typed(str(error))}"
        return
    if isinstance(error, OSError):
        yield f"error: {error}"
    elif isinstance(error, MemoryError):
        yield "error: there is not enough memory"
    else:
        yield f"error: a fault of forwardpass: {type(error).__name__}: {error}"
    yield "  --debug shows where it happened"


def _dispatch(arguments: list[str]) -> int:
    if "_FORWARDPASS_COMPLETE" in os.environ:
        return _complete()
    if not arguments:
        return _help([])
    name, rest = arguments[0], arguments[1:]
    if name in ("--help", "-h", "help"):
        return _help(rest)
    if name == "--version":
        if rest:
            raise RequestError(f'--version takes nothing behind it, not "{rest[0]}"')
        from forwardpass.cli.version import version_text

        data(version_text())
        return EXIT_DONE
    if name == "--show-completion":
        return _show_completion(rest)
    return _run(_command(name), rest)


def _help(words: list[str]) -> int:
    """The first page, or that of the one command that is named."""
    if len(words) > 1 or words[:1] == ["--help"]:
        raise RequestError(f'help is about one command, not "{" ".join(words)}"')
    if words:
        return _run(_command(words[0]), ["--help"])
    data(help_text())
    return EXIT_DONE


def _command(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    kind, offered = ("option", OPTIONS) if name.startswith("-") else ("command", [*COMMANDS])
    raise RequestError(
        f'there is no {kind} "{name}"{did_you_mean(name, offered)}',
        advice="forwardpass --help lists the commands",
    )


def _run(command: Command, arguments: list[str]) -> int:
    import typer

    from forwardpass.cli.absent import absent, joined

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(command.name, context_settings={"help_option_names": ["-h", "--help"]})(
        importlib.import_module(command.module).command
    )
    # typer carries its parser inside and names no base of the parser's errors
    wrong_usage: Any = typer.BadParameter.__mro__[1]
    parser: Any = typer.main.get_command(app)
    with_value = {o for p in parser.params if not getattr(p, "is_flag", True) for o in p.opts}
    if (elsewhere := absent(joined(arguments, with_value))) is not None:
        raise elsewhere
    try:
        status = parser.main(
            arguments, prog_name=f"forwardpass {command.name}", standalone_mode=False
        )
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:  # typer's form of a pipe that broke
        broken = ended.__context__
        if not isinstance(broken, BrokenPipeError):
            raise
        if {"-h", "--help"} & set(arguments):  # which typer prints; commands print by `console`
            raise ReaderGoneError from None
        raise broken from None
    except wrong_usage as error:
        unknown = type(error).__name__ == "NoSuchOption"
        if unknown and (elsewhere := absent(arguments)) is not None:
            raise elsewhere from None
        reason: str = error.format_message()
        raise RequestError(
            reason.rstrip("."),
            advice=f"forwardpass {command.name} --help lists its options",
        ) from None
    if status == EXIT_INTERRUPTED:  # typer's form of Ctrl-C
        raise KeyboardInterrupt
    return int(status or EXIT_DONE)


def _complete() -> int:
    import typer

    app = typer.Typer(rich_markup_mode=None)
    for command in COMMANDS.values():
        app.command(command.name)(importlib.import_module(command.module).command)
    typer.main.get_command(app).main(prog_name="forwardpass")
    return EXIT_DONE


def _show_completion(rest: list[str]) -> int:
    if len(rest) != 1 or rest[0] not in SHELLS:
        raise RequestError(f"--show-completion takes one of {', '.join(SHELLS)}")
    from typer._completion_shared import get_completion_script

    script = get_completion_script(
        prog_name="forwardpass", complete_var="_FORWARDPASS_COMPLETE", shell=rest[0]
    )
    data(script)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
