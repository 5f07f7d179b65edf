"""`Sampler`: the settings of one request, made ready to take a token from row after row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.native_sampler import NativeSampler, native_sampler
from forwardpass.sampling.outcome import KEPT, Outcome
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import IdSequence, Mask, Scores


@dataclass(frozen=True)
class Sampler:
    """Takes tokens under one request's settings, for one thread at a time: by the C++ part where
    that is built and can tell, else by the plain chain, with the same outcome.

    `choice` numbers the answers to one prompt. `breakers` are the tokens at which a repeat ends.
    `wanted` are ids whose log probabilities every outcome gives; `kept` is how many best scores.
    """

    settings: SamplingSettings
    choice: int = 0
    breakers: frozenset[int] = frozenset()
    wanted: tuple[int, ...] = ()
    kept: int = KEPT

    def pick(
        self,
        scores: Scores,
        *,
        prompt: IdSequence,
        output: IdSequence,
        position: int,
        mask: Mask | None = None,
        also: tuple[int, ...] = (),
    ) -> Outcome:
        """The token that comes at `position` behind `prompt` and `output`, from a row of scores.

        `also`: more ids whose log probabilities are wanted, behind the sampler's own. Errors: as
        `chain.choose`.
        """
        asked = (*self.wanted, *also)
        if self.native is not None:
            outcome = self.native.pick(scores, prompt, output, position, mask, asked)
            if outcome is not None:
                return outcome
        history = History(prompt, output, self.breakers)
        chosen = choose(
            scores,
            self.settings,
            history=history,
            choice=self.choice,
            position=position,
            mask=mask,
        )
        return chosen.outcome(asked, self.kept)

    @cached_property
    def native(self) -> NativeSampler | None:
        """The C++ part's; None where it is not built or has not what the settings need."""
        return native_sampler(self.settings, self.choice, self.breakers, self.kept)
