"""The one place where the parts meet: prefill → decode → sample → stop, one `Step` a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from forwardpass.engine.runner import Runner, Sequence
from forwardpass.errors import ComputeError, RequestError
from forwardpass.sampling.outcome import Outcome
from forwardpass.sampling.sampler import Sampler
from forwardpass.text.stream import TextStream
from forwardpass.text.tokenizer import Tokenizer
from forwardpass.trace.step import FinishReason, Step

NOTHING_TAKEN: Mapping[int, int] = MappingProxyType({})


def generate(
    runner: Runner,
    tokenizer: Tokenizer,
    sequence: Sequence,
    sampler: Sampler,
    *,
    max_tokens: int,
    ends: frozenset[int],
    take: Mapping[int, int] = NOTHING_TAKEN,
) -> Iterator[Step]:
    """Steps of an answer behind a prefilled prompt, until a token of `ends` or a limit is met.

    The sequence is continued in place. At most `max_tokens` tokens come, and none beyond the
    runner's context. `take` names, by the place in the answer, tokens to go on with whatever the
    stages would have drawn there; a step is `taken` where that was another token.

    Raises ComputeError, naming the place in the answer, where a pass allows no token;
    RequestError, behind the last step, for a place to take at that the answer never reached.
    """
    stream = tokenizer.stream()
    prompt = tuple(sequence.tokens)
    limit = min(max_tokens, runner.context - len(prompt) + 1)
    output: list[int] = []
    for index in range(limit):
        asked = take.get(index)
        try:
            outcome = sampler.pick(
                sequence.scores,
                prompt=prompt,
                output=output,
                position=index,
                also=() if asked is None else (asked,),
            )
        except ComputeError as error:
            raise ComputeError(f"token {index} of the answer: {error.fact}") from error
        token = outcome.token if asked is None else asked
        reason: FinishReason | None = "length" if index + 1 == limit else None
        if token in ends:
            reason = "stop"
        yield _step(index, token, outcome, tokenizer, stream, reason, asked is not None)
        if reason is not None:
            if (beyond := max(take, default=0)) > index:
                raise RequestError(
                    f"take: the answer ended after {index + 1} tokens and has no place {beyond}"
                )
            return
        output.append(token)
        runner.decode(sequence, token)


def _step(
    index: int,
    token: int,
    outcome: Outcome,
    tokenizer: Tokenizer,
    stream: TextStream,
    reason: FinishReason | None,
    asked: bool,
) -> Step:
    # Tables may have more rows than the tokenizer has tokens; such an id stands for no text.
    known = token < tokenizer.vocab_size
    # The token that ends an answer is drawn and counted, and is no part of its text.
    text = stream.push(token) if known and reason != "stop" else ""
    if reason is not None:
        text += stream.finish()
    logprob, sampled_logprob = outcome.logprob, outcome.sampled_logprob
    taken = token != outcome.token
    if asked:
        *others, (_, own, sampled) = outcome.wanted
        outcome = replace(outcome, wanted=tuple(others))
        if taken:
            logprob, sampled_logprob = own, sampled
    return Step(
        index,
        token,
        text,
        tokenizer.token_bytes(token) if known and not tokenizer.is_control(token) else b"",
        logprob,
        sampled_logprob,
        None if taken else outcome.random,
        reason,
        taken,
        outcome,
    )
