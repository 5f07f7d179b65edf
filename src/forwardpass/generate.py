"""The one place where the parts meet: prefill → decode → sample → stop, one `Step` a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from forwardpass.engine.runner import Runner, Sequence
from forwardpass.errors import ComputeError, RequestError
from forwardpass.sampling.chain import History, choose
from forwardpass.sampling.choice import Choice
from forwardpass.sampling.ranges import whole
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.text.stream import TextStream
from forwardpass.text.tokenizer import Tokenizer

FinishReason = Literal["stop", "length"]
KEPT = 256  # best tokens that a step remembers


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could have come: its score, and the model's own log probability of it."""

    id: int
    score: float
    logprob: float


@dataclass(frozen=True, slots=True)
class Step:
    """One generated token.

    `text` is what it completes (a character that needs more tokens comes with the last of them);
    `bytes` are the token's own, empty for a control token. `logprob` is the model's own,
    `sampled_logprob` the one after the stages; `random` is the number drawn, None where the choice
    was greedy. `finish_reason` is set on the last step: `stop` where the token ends the answer,
    `length` at a limit.
    """

    index: int
    id: int
    text: str
    bytes: bytes
    logprob: float
    sampled_logprob: float
    random: float | None
    finish_reason: FinishReason | None
    _best: tuple[Candidate, ...] = field(repr=False)

    def top(self, count: int = 6) -> tuple[Candidate, ...]:
        """The `count` best tokens by the model's own scores, best first; at most 256 are kept.

        Raises RequestError for a count that is no whole number from 0 up.
        """
        number = whole(count)
        if number is None or number < 0:
            raise RequestError(f"top({count!r:.60}): wanted a whole number from 0 up")
        return self._best[:number]


def generate(
    runner: Runner,
    tokenizer: Tokenizer,
    sequence: Sequence,
    settings: SamplingSettings,
    *,
    max_tokens: int,
    ends: frozenset[int],
    choice: int = 0,
) -> Iterator[Step]:
    """Steps of an answer behind a prefilled prompt, until a token of `ends` or a limit is met.

    The sequence is continued in place. At most `max_tokens` tokens come, and none beyond the
    runner's context. `choice` numbers the answers to one prompt: each has draws of its own.

    Raises ComputeError, naming the place in the answer, where a pass allows no token.
    """
    stream = tokenizer.stream()
    prompt = tuple(sequence.tokens)
    limit = min(max_tokens, runner.context - len(prompt) + 1)
    output: list[int] = []
    for index in range(limit):
        try:
            chosen = choose(
                sequence.scores,
                settings,
                history=History(prompt, output),
                choice=choice,
                position=index,
            )
        except ComputeError as error:
            raise ComputeError(f"token {index} of the answer: {error.fact}") from error
        reason: FinishReason | None = "length" if index + 1 == limit else None
        if chosen.token in ends:
            reason = "stop"
        yield _step(index, chosen, tokenizer, stream, reason)
        if reason is not None:
            return
        output.append(chosen.token)
        runner.decode(sequence, chosen.token)


def _step(
    index: int,
    chosen: Choice,
    tokenizer: Tokenizer,
    stream: TextStream,
    reason: FinishReason | None,
) -> Step:
    token = chosen.token
    # Tables may have more rows than the tokenizer has tokens; such an id stands for no text.
    known = token < tokenizer.vocab_size
    # The token that ends an answer is drawn and counted, and is no part of its text.
    text = stream.push(token) if known and reason != "stop" else ""
    if reason is not None:
        text += stream.finish()
    best = tuple(
        Candidate(found.id, float(chosen.model.scores[found.id]), found.logprob)
        for found in chosen.model.top(KEPT)
    )
    return Step(
        index,
        token,
        text,
        tokenizer.token_bytes(token) if known and not tokenizer.is_control(token) else b"",
        chosen.logprob,
        chosen.sampled_logprob,
        chosen.random,
        reason,
        best,
    )
