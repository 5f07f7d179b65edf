"""`forwardpass run MODEL PROMPT`: answers once, and accounts for the work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated

import typer

from forwardpass.cli import account
from forwardpass.cli.answering import (
    AnswerOptions,
    EngineOptions,
    PromptOptions,
    TemplateOptions,
    begin,
)
from forwardpass.cli.console import as_json, data, note, patience, say
from forwardpass.cli.explaining import token_ids
from forwardpass.cli.groups import with_groups
from forwardpass.cli.options import Json
from forwardpass.cli.options import Model as Reference
from forwardpass.cli.shapes import ShapeOptions
from forwardpass.errors import RequestError
from forwardpass.sampling.ranges import LARGEST_SEED
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.answer import Answer
    from forwardpass.model import Generation, Model, Prompt
    from forwardpass.options import Options
    from forwardpass.trace.step import Step

MOST_SEEDS = 10_000
MOST_LOGPROBS = 20


@with_groups
def command(
    model: Reference,
    prompt: PromptOptions,
    template: TemplateOptions,
    answer: AnswerOptions,
    shape: ShapeOptions,
    engine: EngineOptions,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="A-B", help="one answer a seed, as 0-9 or 1,4")
    ] = None,
    logprobs: Annotated[
        int | None,
        typer.Option("--logprobs", metavar="N", help="with --json: each token, and the N best"),
    ] = None,
    logprob_id: Annotated[
        list[str] | None,
        typer.Option(
            "--logprob-id",
            metavar="ID",
            help="with --json: what each token's place gave this one, by its id or its exact text; "
            "repeatable",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Answers once: text on standard output, an account of the work on standard error."""
    wanted = None if seeds is None else seed_list(seeds)
    if wanted is not None and answer.seed is not None:
        raise RequestError("--seed and --seeds were both given")
    if logprobs is not None and not (json and 0 <= logprobs <= MOST_LOGPROBS):
        raise RequestError(
            f"--logprobs {logprobs}: wanted 0 to {MOST_LOGPROBS}, together with --json"
        )
    if logprob_id and not json:
        raise RequestError(f"--logprob-id {logprob_id[0]}: wanted together with --json")
    if logprob_id and logprobs is None:
        logprobs = 0
    options: Options = {**template.chosen(), **answer.chosen(), **shape.chosen()}
    text = prompt.text(template)
    with engine.load(model, template.template) as loaded:
        options["logprob_ids"] = token_ids(loaded, logprob_id, "--logprob-id")
        request = prompt.request(loaded, text)
        if wanted is None:
            _once(loaded, request, options, json, logprobs)
        else:
            Seeds(loaded, request, options, wanted).run(json, logprobs)


def seed_list(text: str) -> list[int]:
    """`0-9` and `1,4,7` as seeds, each once."""
    found: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not _is_seed(first) or (dash and not _is_seed(last)):
            raise RequestError(f"--seeds {text}: wanted seeds from 0 to 2⁶³ - 1, as 0-9 or 1,4,7")
        start, stop = int(first), int(last or first)
        if not start <= stop < start + MOST_SEEDS:
            raise RequestError(f"--seeds {text}: {part} are not 1 to {MOST_SEEDS:,} seeds")
        found.update(dict.fromkeys(range(start, stop + 1)))
    return list(found)


def _is_seed(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_SEED))
    return digits and int(text) <= LARGEST_SEED


def _once(model: Model, prompt: Prompt, options: Options, json: bool, logprobs: int | None) -> None:
    going = begin(model, prompt, options)
    stopped = False
    try:
        for step in going:
            if not json:
                say(step.text, end="")
    except KeyboardInterrupt:
        stopped = True
    answer = going.answer()
    if json:
        as_json(json_answer(model, answer, logprobs))
    else:
        if answer.text and not answer.text.endswith("\n"):
            data()
        for line in account.account_lines(going):
            note(line)
    if stopped:
        raise KeyboardInterrupt


@dataclass
class Seeds:
    """One answer a seed, from one reading of the prompt."""

    model: Model
    prompt: Prompt
    options: Options
    seeds: Sequence[int]
    answers: dict[int, Answer] = field(default_factory=dict)
    going: tuple[int, Generation] | None = None

    def run(self, json: bool, logprobs: int | None) -> None:
        """Prints each answer as it is finished; what was done before Ctrl-C counts."""
        stopped = False
        try:
            self._answer(show=not json)
        except KeyboardInterrupt:
            stopped = True
            if self.going is not None:
                seed, going = self.going
                self.answers[seed] = going.answer()
        if json:
            listed = [
                {"seed": seed, **json_answer(self.model, answer, logprobs)}
                for seed, answer in self.answers.items()
            ]
            as_json({"answers": listed})
        elif self.answers:
            self._end()
        if stopped:
            raise KeyboardInterrupt

    def _answer(self, show: bool) -> None:
        each = self.model.each_seed(self.prompt, self.seeds, **self.options)
        for seed in self.seeds:
            with patience("reading the prompt"):
                going: Generation = next(each)
            self.going = seed, going
            for _ in going:
                pass
            self.answers[seed] = going.answer()
            if show:
                self._show(seed, self.answers[seed])

    def _show(self, seed: int, answer: Answer) -> None:
        width = max(len(str(each)) for each in self.seeds)
        head = f"seed {seed:>{width}}  "
        lines = answer.text.splitlines() or [""]
        for before, line in zip(chain([head], repeat(" " * len(head))), lines, strict=False):
            say(f"{before}{line}".rstrip())

    def _end(self) -> None:
        from forwardpass.sampling.settings import Setting

        answers = list(self.answers.values())
        whole = [answer for answer in answers if answer.finish_reason is not None]
        if whole:
            different = len({answer.text for answer in whole})
            count = account.plural(len(whole), "answer")
            if len(whole) > 1:
                count += f", {exact(different)} different"
            tokens = account.plural(whole[0].usage.prompt_tokens, "token")
            data()
            data(f"{count} · one prefill of {tokens}, shared · the same seed gives the same answer")
        work = answers[0].work
        for answer in answers[1:]:
            work += answer.work
        note(f"{account.work_words(work)} in {work.seconds:.2f} s")
        for seed, answer in self.answers.items():
            if answer.finish_reason is None:
                came = account.plural(answer.usage.completion_tokens, "token")
                note(f"seed {seed} was stopped after {came}, whose passes are among these")
        # Every seed stands before its answer already.
        settings = replace(answers[0].sampling, seed=Setting(None, "request"))
        for line in account.run_lines(self.model, settings):
            note(line)


def json_answer(model: Model, answer: Answer, logprobs: int | None) -> dict[str, object]:
    """The keys of `run --json`."""
    found: dict[str, object] = {"text": answer.text, "finish_reason": answer.finish_reason}
    if logprobs is not None:
        found["tokens"] = [_token(model, step, logprobs) for step in answer.steps]
    found["usage"] = {
        "prompt_tokens": answer.usage.prompt_tokens,
        "completion_tokens": answer.usage.completion_tokens,
    }
    found["work"] = answer.work.as_dict()
    found["sampling"] = answer.sampling.as_dict()
    if answer.held is not None and answer.held.tools:
        found["content"] = answer.content
        found["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments}
            for call in answer.tool_calls
        ]
    if answer.shape is not None:
        found["shape"] = answer.shape.as_dict()
    accepted = dict(model.description.config.accepted_unknown)
    if accepted:
        found["accepted_unknown"] = accepted
    return found


def _token(model: Model, step: Step, logprobs: int) -> dict[str, object]:
    """One token, the best in its place by both distributions, and the tokens asked for."""
    found: dict[str, object] = {
        **_written(model, step.id),
        "logprob": step.logprob,
        "sampled_logprob": step.sampled_logprob,
        "top": [
            {**_written(model, best.id), "logprob": best.logprob} for best in step.top(logprobs)
        ],
        "sampled_top": [
            {**_written(model, best.id), "sampled_logprob": best.logprob}
            for best in step.after_stages(logprobs)
        ],
    }
    if step.wanted:
        found["wanted"] = [
            {
                **_written(model, asked.id),
                "logprob": _finite(asked.logprob),
                "sampled_logprob": _finite(asked.sampled_logprob),
            }
            for asked in step.wanted
        ]
    return found


def _written(model: Model, token: int) -> dict[str, object]:
    """A token, its text as shown, and its bytes: none of a control token."""
    own = token < model.tokenizer.vocab_size and not model.tokenizer.is_control(token)
    held = model.tokenizer.token_bytes(token) if own else b""
    return {"id": token, "token": model.token_text(token), "bytes": list(held)}


def _finite(logprob: float) -> float | None:
    """A log probability; -inf, which JSON has no word for, is null."""
    return logprob if math.isfinite(logprob) else None
