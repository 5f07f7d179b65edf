"""`Model`: a model that is ready to answer, and the course of one answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from forwardpass.answer import Answer
from forwardpass.describe import Description
from forwardpass.engine.account import Account, account
from forwardpass.engine.runner import Pass, Runner
from forwardpass.engine.runner import Sequence as Prefilled
from forwardpass.errors import RequestError, TemplateError
from forwardpass.generate import answer_limit, generate
from forwardpass.options import Limits, Options, check, limits_of, refuse_template_options
from forwardpass.sampling.random import fresh_seed
from forwardpass.sampling.ranges import ENGINE_DEFAULTS
from forwardpass.sampling.sampler import Sampler
from forwardpass.sampling.settings import SamplingSettings, resolve
from forwardpass.shaping import Shape, Shapes
from forwardpass.text.breakers import breakers
from forwardpass.text.messages import conversation_from, is_list, user
from forwardpass.text.tokenizer import Tokenizer
from forwardpass.trace.step import Step
from forwardpass.trace.tokens import TokenNote, no_token
from forwardpass.trace.trace import ModelNote, Origin, Trace

if TYPE_CHECKING:
    from forwardpass.text.chat import Chat

Message = Mapping[str, object]


@dataclass(frozen=True)
class Raw:
    """A prompt that is completed as it is, without the chat template."""

    text: str


Prompt = str | Raw | Sequence[Message]


def raw(text: str) -> Raw:
    """A prompt that skips the chat template. Raises RequestError for anything but a text."""
    if not isinstance(text, str):
        raise RequestError(f"raw({text!r:.60}): wanted a text, not {type(text).__name__}")
    return Raw(text)


@dataclass(frozen=True)
class Prepared:
    """A prompt as ids, and whether the chat template made it. `ends`: ids that end an answer;
    `shape`: what the answer may be, None where that is any text."""

    ids: tuple[int, ...]
    templated: bool
    ends: frozenset[int]
    shape: Shape | None = field(default=None, compare=False)


@dataclass(eq=False)
class Generation(Iterator[Step]):
    """The course of one answer: an iterator of its steps, and what is known of it so far.

    Each step but the first takes one pass, which is run when the step is asked for.
    """

    model: Model
    prompt: Prepared
    settings: SamplingSettings
    sequence: Prefilled = field(repr=False)
    limits: Limits
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.prompt.shape
        self._coming = generate(
            self.model.runner,
            self.model.tokenizer,
            self.sequence,
            Sampler(
                self.settings,
                breakers=self._breakers,
                wanted=self.limits.wanted,
                kept=self.limits.kept,
            ),
            max_tokens=self.limits.max_tokens,
            ends=self.prompt.ends,
            take=self.limits.take,
            guide=None if shape is None else shape.guide(),
            turns=None if shape is None else shape.turns,
        )

    def __repr__(self) -> str:
        text, count = "".join(step.text for step in self.steps), len(self.steps)
        return f"<Generation {text!r}, {count} token{'' if count == 1 else 's'} so far>"

    @cached_property
    def _breakers(self) -> frozenset[int]:
        if self.settings.dry_multiplier.value == 0:
            return frozenset()
        return breakers(self.model.tokenizer, self.settings.dry_sequence_breakers.value)

    @property
    def max_tokens(self) -> int:
        """The most tokens that the request allows."""
        return self.limits.max_tokens

    def __next__(self) -> Step:
        step = next(self._coming)
        self.steps.append(step)
        return step

    def answer(self) -> Answer:
        """The answer as far as it has come."""
        work = self.model.account(self.sequence.passes)
        steps, shape = tuple(self.steps), self.prompt.shape
        held = None if shape is None else shape.held
        return Answer(self.prompt.ids, steps, self.settings, work, self.origin, held)

    def trace(self) -> Trace:
        """The answer as far as it has come, in a form that can be written down and replayed.

        Where a grammar held it, the trace says what that allowed at each token and why.
        """
        steps, shape = tuple(self.steps), self.prompt.shape
        trace = self.origin.trace(self.prompt.ids, self.settings, steps)
        if shape is None or not steps:
            return trace
        limit = answer_limit(self.model.runner, self.prompt.ids, self.max_tokens)
        return replace(trace, masks=shape.notes(steps, limit, self.model.token_text))

    @cached_property
    def origin(self) -> Origin:
        """What a trace tells of the answer beside its steps."""
        model = self.model
        config = model.description.config
        note = ModelNote(
            model.description.label,
            config.model_type,
            config.vocab_size,
            model.runner.backend.words,
        )
        ends, breakers = self.prompt.ends, self._breakers
        return Origin(note, ends, breakers, self.max_tokens, model.token_note)


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is ready to answer; `forwardpass.load` makes one.

    `chat` is None where the model has no chat template. `sampling_defaults` is what the model's
    file says about sampling, None where it says nothing. `notes`: what is special about how its
    passes are computed, a line each. Closing the model gives its files up; it
    answers nothing from then on.
    """

    description: Description
    tokenizer: Tokenizer
    chat: Chat | None
    runner: Runner
    sampling_defaults: Mapping[str, object] | None = None
    notes: tuple[str, ...] = ()
    closed: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        config = self.description.config
        return (
            f"<Model {self.description.label}: {config.model_type}, "
            f"{config.num_hidden_layers} layers, context {self.runner.context:,}>"
        )

    def generate(self, prompt: Prompt, **options: Unpack[Options]) -> Answer:
        """The answer to a prompt: a text is one user message, `raw(…)` skips the template.

        Raises RequestError for an unknown option, a value out of range or a closed model,
        SchemaError for schemas that cannot be enforced, ContextError for a prompt that does not
        fit.
        """
        going = self.stream(prompt, **options)
        for _ in going:
            pass
        return going.answer()

    def stream(self, prompt: Prompt, **options: Unpack[Options]) -> Generation:
        """The steps of the answer as they come; the prompt is read before the first is asked for.

        Its `answer()` is what `generate` returns, at any time. Errors: as `generate`.
        """
        self._check_open()
        settings = self.settings(**options)
        limits = limits_of(options, self.description.config.vocab_size)
        ready = self._shaped(prompt, options, limits)
        return Generation(self, ready, settings, self.runner.prefill(ready.ids), limits)

    async def agenerate(self, prompt: Prompt, **options: Unpack[Options]) -> Answer:
        """`generate` without blocking the event loop; cancelled, it stops within one step."""
        import asyncio  # a long import, which few need

        going = await asyncio.to_thread(lambda: self.stream(prompt, **options))
        while await asyncio.to_thread(next, going, None) is not None:
            pass
        return going.answer()

    async def astream(self, prompt: Prompt, **options: Unpack[Options]) -> AsyncIterator[Step]:
        """`stream` without blocking the event loop."""
        import asyncio

        going = await asyncio.to_thread(lambda: self.stream(prompt, **options))
        while (step := await asyncio.to_thread(next, going, None)) is not None:
            yield step

    def each_seed(
        self, prompt: Prompt, seeds: Iterable[int], **options: Unpack[Options]
    ) -> Iterator[Generation]:
        """One answer a seed, to one prompt that is read once; each equals the run with its seed.

        The prompt's pass is in the account of the first.
        """
        self._check_open()
        if not _can_be_seeds(seeds):
            raise RequestError(f"seeds = {seeds!r:.60}: wanted whole numbers")
        settings = self.settings(**options)
        limits = limits_of(options, self.description.config.vocab_size)
        ready = self._shaped(prompt, options, limits)
        read = self.runner.prefill(ready.ids)
        for number, seed in enumerate(seeds):
            own = read.fork()
            if number == 0:
                own.passes.extend(read.passes)
            yield Generation(self, ready, settings.with_seed(seed), own, limits)

    def prepare(self, prompt: Prompt, **options: Unpack[Options]) -> Prepared:
        """The ids that a pass would read for this prompt.

        A text for a model without a chat template is completed as it is. Raises TemplateError for
        messages to such a model.
        """
        return self._prepared(prompt, options)[0]

    def _prepared(
        self, prompt: Prompt, options: Options
    ) -> tuple[Prepared, Sequence[Mapping[str, object]], str | None]:
        """A prompt, the tools that it offers, and the text that the template made, if it did."""
        check(options)
        control = options.get("control_tokens") or False
        if isinstance(prompt, str) and self.chat is None:
            prompt = Raw(prompt)
        if isinstance(prompt, Raw):
            refuse_template_options(options)
            ids = self.tokenizer.encode_prompt(prompt.text, control=control)
            if not ids:
                raise RequestError(
                    "the prompt is empty: without a text there is no token to begin with",
                    advice="give it at least one character",
                )
            return Prepared(tuple(ids), False, frozenset(self.tokenizer.eos_ids)), (), None
        if self.chat is None:
            raise TemplateError(
                f"{self.description.label} has no chat template, so it cannot take messages",
                advice="--raw completes a text as it is, --template FILE brings a template",
            )
        if isinstance(prompt, str) and not prompt.strip():
            raise RequestError("the prompt is empty", advice=self._instead_of_nothing(prompt))
        asked = {"messages": _messages(prompt), "tools": list(options.get("tools") or ())}
        conversation = conversation_from(asked)
        made = self.chat.prompt(
            conversation,
            control=control,
            thinking=options.get("thinking"),
            arguments=options.get("template_args") or {},
        )
        ready = Prepared(made.ids, True, frozenset(self.chat.eos_ids))
        return ready, conversation.tools, made.text

    def _shaped(self, prompt: Prompt, options: Options, limits: Limits) -> Prepared:
        """A prompt with the shape that its answer has to have, if one was asked for.

        Refuses a limit or a context in which nothing of that shape can be written.
        """
        ready, tools, text = self._prepared(prompt, options)
        shape = self.shapes.of(options, tools, text)
        if shape is None:
            return ready
        shape.check(limits.max_tokens, self.runner.context - len(ready.ids) + 1)
        return replace(ready, ends=shape.ends, shape=shape)

    @cached_property
    def shapes(self) -> Shapes:
        """The shapes of answers that were asked for, compiled."""
        return Shapes(self.tokenizer, self.chat, self.description.config.vocab_size)

    def settings(self, **options: Unpack[Options]) -> SamplingSettings:
        """Every sampler setting that a request runs with, and its source; a fresh seed if need be.

        The seed that an answer was drawn with is in its own `sampling`.
        """
        settings = self.stated_settings(**options)
        if settings.seed.value is None and not settings.greedy:
            return settings.with_seed(fresh_seed(), "engine default")
        return settings

    def stated_settings(self, **options: Unpack[Options]) -> SamplingSettings:
        """The same with no seed where neither the request nor the model's file states one."""
        check(options)
        asked = {name: value for name, value in options.items() if name in ENGINE_DEFAULTS}
        ignore = options.get("ignore_model_defaults") or False
        return resolve(asked, self.sampling_defaults, ignore)

    def token_text(self, token: int) -> str:
        """One token as shown to people; rows of the table without a token by their number."""
        if token >= self.tokenizer.vocab_size:
            return no_token(token)
        return self.tokenizer.token_text(token)

    def token_note(self, token: int) -> TokenNote:
        """One token as a trace describes it."""
        own = token < self.tokenizer.vocab_size and not self.tokenizer.is_control(token)
        return TokenNote(self.token_text(token), self.tokenizer.token_bytes(token) if own else b"")

    def account(self, passes: Iterable[Pass]) -> Account:
        """What these passes did."""
        weights = self.description.weights
        assert weights is not None  # a model that is ready has them
        width = self.runner.backend.kv_width
        return account(self.description.graph, passes, weights.stored_bytes, width)

    def close(self) -> None:
        """Gives the model's files up, for good."""
        object.__setattr__(self, "closed", True)
        if self.description.file is not None:
            self.description.file.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise RequestError("the model is closed", advice="forwardpass.load opens it again")

    def _instead_of_nothing(self, text: str) -> str:
        """What to do about a blank prompt: raw, it may still be one."""
        if self.tokenizer.encode_prompt(text):
            return "ask something, or have blank text completed as it is: --raw, in Python raw(…)"
        return "ask something"


def _can_be_seeds(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _messages(prompt: object) -> list[object]:
    """A prompt that is not raw, as messages."""
    if isinstance(prompt, str):
        return [user(prompt)]
    if isinstance(prompt, Sequence) and is_list(prompt):
        return list(prompt)
    raise RequestError(
        f"a prompt is a text, raw(…) or a list of messages, not {type(prompt).__name__}"
    )
