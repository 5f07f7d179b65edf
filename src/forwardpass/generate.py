"""The one place where the parts meet: prefill → decode → mask → sample → stop, a `Step` a token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from forwardpass.constraint.forced import forced_run
from forwardpass.constraint.guide import Allowed, Guide
from forwardpass.constraint.outside import OutsideGuide
from forwardpass.constraint.tokens import is_set
from forwardpass.engine.runner import Runner, Sequence
from forwardpass.engine.turns import Turns
from forwardpass.errors import ComputeError, RequestError
from forwardpass.graph.references import F32
from forwardpass.sampling.outcome import Outcome
from forwardpass.sampling.sampler import Sampler
from forwardpass.text.tokenizer import Tokenizer
from forwardpass.trace.step import FinishReason, Step, StepMask

NOTHING_TAKEN: Mapping[int, int] = MappingProxyType({})
_MASK = 1  # its place among what the stages left


def generate(
    runner: Runner,
    tokenizer: Tokenizer,
    sequence: Sequence,
    sampler: Sampler,
    *,
    max_tokens: int,
    ends: frozenset[int],
    take: Mapping[int, int] = NOTHING_TAKEN,
    guide: Guide | OutsideGuide | None = None,
    turns: Turns | None = None,
) -> Iterator[Step]:
    """Steps of an answer behind a prefilled prompt, until a token of `ends` or a limit is met.

    The sequence is continued in place. At most `max_tokens` tokens come, and none beyond the
    runner's context. `take` names, by the place in the answer, tokens to go on with whatever the
    stages would have drawn there; a step is `taken` where that was another token. `guide` keeps
    the answer in a shape; text that it forces is read in one pass. `turns` is the lock of those
    whose guides share a grammar.

    Raises ComputeError, naming the place in the answer, where a pass allows no token;
    RequestError for a token to take that the guide refuses and, behind the last step, for a place
    to take at that the answer never reached.
    """
    going = _Answer(runner, tokenizer, sequence, sampler, ends, guide, turns or Turns())
    limit = answer_limit(runner, sequence.tokens, max_tokens)
    for index in range(limit):
        step = going.step(index, limit - index, take.get(index))
        yield step
        if step.finish_reason is not None:
            if (beyond := max(take, default=0)) > index:
                raise RequestError(
                    f"take: the answer ended after {index + 1} tokens and has no place {beyond}"
                )
            return
        going.go_on(step.id, limit - index - 1, runs=not take)


def answer_limit(runner: Runner, prompt: list[int] | tuple[int, ...], max_tokens: int) -> int:
    """How many tokens an answer may have: what the request allows, within the context."""
    return min(max_tokens, runner.context - len(prompt) + 1)


class _Answer:
    """An answer under way."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        sequence: Sequence,
        sampler: Sampler,
        ends: frozenset[int],
        guide: Guide | OutsideGuide | None,
        turns: Turns,
    ) -> None:
        self.runner, self.tokenizer, self.sequence = runner, tokenizer, sequence
        self.sampler, self.ends, self.guide = sampler, ends, guide
        self.turns = turns
        self.stream = tokenizer.stream()
        self.prompt = tuple(sequence.tokens)
        self.output: list[int] = []
        # Tokens that were read ahead as the shape forces them, with the scores before each.
        self.ahead: deque[tuple[int, F32]] = deque()
        self.was_ahead = False  # whether the token at hand is one of these
        self.scores: F32 = sequence.scores
        self.steered = False

    def step(self, index: int, left: int, asked: int | None) -> Step:
        """The step at a place of the answer, `left` tokens at most with this one."""
        forced = self.was_ahead = bool(self.ahead)
        if forced:
            asked, self.scores = self.ahead.popleft()
        allowed = None if self.guide is None else self._allowed(index, left, asked)
        try:
            outcome = self.sampler.pick(
                self.scores,
                prompt=self.prompt,
                output=self.output,
                position=index,
                mask=None if allowed is None else allowed.words,
                also=() if asked is None else (asked,),
            )
        except ComputeError as error:
            raise ComputeError(f"token {index} of the answer: {error.fact}") from error
        token = outcome.token if asked is None else asked
        mask = None if allowed is None else self._mask(allowed, outcome)
        reason: FinishReason | None = "length" if left == 1 else None
        if token in self.ends:
            reason = "length" if self.steered else "stop"
        step = self._step(index, token, outcome, reason, asked is not None)
        return replace(step, mask=mask, forced=forced, taken=step.taken and not forced)

    def go_on(self, token: int, left: int, *, runs: bool) -> None:
        """What the next step needs: a pass over the token, and over text that is forced now."""
        self.output.append(token)
        run = [] if self.guide is None else self._guided(self.guide, token, left, runs)
        if self.was_ahead:  # the pass that read it ahead has been through it
            self.scores = self.sequence.scores
            return
        if run:
            rows = self.runner.extend(self.sequence, [token, *run])
            self.ahead.extend(zip(run, rows[:-1], strict=True))
        else:
            self.runner.decode(self.sequence, token)
        self.scores = self.sequence.scores

    def _guided(self, guide: Guide | OutsideGuide, token: int, left: int, runs: bool) -> list[int]:
        """Moves the guide on by a token; the tokens that it forces after that, if they are new."""
        with self.turns:
            guide.advance(token)
            if not runs or self.was_ahead or not isinstance(guide, Guide):
                return []
            return forced_run(guide.masker, guide.state, self.tokenizer.encode_inside, left)

    def _allowed(self, index: int, left: int, asked: int | None) -> Allowed:
        assert self.guide is not None
        try:
            with self.turns:
                allowed = self.guide.allowed(left)
        except RequestError as error:
            raise ComputeError(f"token {index} of the answer: {error.fact}") from error
        if asked is not None and not is_set(allowed.words, asked):
            raise RequestError(
                f"take: token {asked} at place {index} is not in the shape that was asked for"
            )
        return allowed

    def _mask(self, allowed: Allowed, outcome: Outcome) -> StepMask:
        """What the mask did, and whether it was the limit of tokens that chose."""
        removed = max(0.0, 1 - outcome.left[_MASK].mass)
        steered = allowed.freely is not None and self._steers(allowed)
        self.steered |= steered
        return StepMask(allowed.count, removed, steered)

    def _steers(self, allowed: Allowed) -> bool:
        """Whether the best token that the shape allows is none that the limit allows."""
        assert allowed.freely is not None
        bits = np.unpackbits(allowed.freely.view(np.uint8), bitorder="little")[: self.scores.size]
        free = np.flatnonzero(bits)
        return not is_set(allowed.words, int(free[np.argmax(self.scores[free])]))

    def _step(
        self,
        index: int,
        token: int,
        outcome: Outcome,
        reason: FinishReason | None,
        asked: bool,
    ) -> Step:
        tokenizer = self.tokenizer
        # Tables may have more rows than the tokenizer has tokens; such an id stands for no text.
        known = token < tokenizer.vocab_size
        # The token that ends an answer is drawn and counted, and is no part of its text.
        text = self.stream.push(token) if known and token not in self.ends else ""
        if reason is not None:
            text += self.stream.finish()
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
