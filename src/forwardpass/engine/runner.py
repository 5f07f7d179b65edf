"""`Runner`: executes passes of one model and keeps an account of each.

It decides nothing: which tokens go through a pass, and when, is the caller's choice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence as Tokens
from dataclasses import dataclass, field

from forwardpass.backends.backend import Backend, Cache
from forwardpass.backends.recorder import Recorder
from forwardpass.engine.turns import Turns
from forwardpass.errors import ContextError
from forwardpass.graph.references import F32
from forwardpass.work.passes import SequenceShape


@dataclass(frozen=True)
class Pass:
    """One pass as it ran: its shape, its seconds, and whether it read a prompt.

    `experts`: how many different ones a layer read, on average; None where there are none.
    """

    shape: SequenceShape
    seconds: float
    prompt: bool
    experts: float | None = None


@dataclass
class Sequence:
    """Tokens that have been through the model, their cache, and the scores after the last, v."""

    tokens: list[int]
    cache: Cache
    scores: F32
    passes: list[Pass] = field(default_factory=list)

    def fork(self) -> Sequence:
        """The same sequence, to be continued on its own; the passes so far stay with this one."""
        return Sequence(list(self.tokens), self.cache.fork(), self.scores)


@dataclass(frozen=True)
class Runner:
    """Runs passes on a backend; no sequence grows beyond `context` tokens.

    Several threads may ask for passes: these run one after another.
    """

    backend: Backend
    context: int
    _turns: Turns = field(default_factory=Turns, init=False, repr=False, compare=False)

    def prefill(self, tokens: Tokens[int]) -> Sequence:
        """A new sequence, its prompt read in one pass.

        Raises ContextError, with both numbers, for a prompt that is empty or too long.
        """
        self.check_prompt(tokens)
        cache = self.backend.new_cache()
        scores, done = self._pass(cache, tokens, prompt=True)
        return Sequence(list(tokens), cache, scores[-1], [done])

    def check_prompt(self, tokens: Tokens[int]) -> None:
        """Raises ContextError, with both numbers, for a prompt that is empty or too long."""
        if not tokens:
            raise ContextError("the prompt has no tokens")
        if len(tokens) > self.context:
            most = self.backend.graph.config.context
            more = f", or set --context to {most:,} at most" if self.context < most else ""
            raise ContextError(
                f"a prompt of {len(tokens):,} tokens, the context holds {self.context:,}",
                advice=f"shorten the prompt{more}",
            )

    def read(self, cache: Cache, tokens: Tokens[int], wanted: Tokens[int]) -> tuple[F32, Pass]:
        """One pass over more prompt tokens behind a cache: the logits of its wanted rows, r v."""
        if cache.length + len(tokens) > self.context:
            raise ContextError(f"{cache.length + len(tokens):,} tokens, the context holds less")
        return self._pass(cache, tokens, prompt=True, wanted=wanted)

    def decode(self, sequence: Sequence, token: int) -> None:
        """One pass over one generated token, behind the sequence."""
        if len(sequence.tokens) >= self.context:
            raise ContextError(f"the context holds {self.context:,} tokens, and all are used")
        scores, done = self._pass(sequence.cache, [token], prompt=False)
        sequence.tokens.append(token)
        sequence.scores = scores[-1]
        sequence.passes.append(done)

    def extend(self, sequence: Sequence, tokens: Tokens[int]) -> F32:
        """One pass over several generated tokens, behind the sequence; the scores after each, r v.

        Each row has the bits that it would have in a pass of its own.
        """
        if len(sequence.tokens) + len(tokens) > self.context:
            raise ContextError(
                f"{len(sequence.tokens) + len(tokens):,} tokens, the context holds {self.context:,}"
            )
        rows = range(len(tokens))
        scores, done = self._pass(sequence.cache, tokens, prompt=False, wanted=rows)
        sequence.tokens.extend(tokens)
        sequence.scores = scores[-1]
        sequence.passes.append(done)
        return scores

    def _pass(
        self,
        cache: Cache,
        tokens: Tokens[int],
        *,
        prompt: bool,
        wanted: Tokens[int] | None = None,
    ) -> tuple[F32, Pass]:
        rows = 1 if wanted is None else len(wanted)
        shape = SequenceShape(len(tokens), cache.length, rows)
        recorder = Recorder() if self.backend.graph.experts else None
        with self._turns:
            start = time.perf_counter()
            scores = self.backend.run(
                cache, tokens, wanted=wanted, generated=not prompt, recorder=recorder
            )
            seconds = time.perf_counter() - start
        experts = None if recorder is None else recorder.experts()
        return scores, Pass(shape, seconds, prompt, experts)
