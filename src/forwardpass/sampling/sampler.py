"""`Sampler`: the settings of one request, made ready to take a token from row after row."""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.sampling.adjusting import History
from forwardpass.sampling.chain import choose
from forwardpass.sampling.outcome import KEPT, Outcome
from forwardpass.sampling.settings import SamplingSettings
from forwardpass.sampling.stages import IdSequence, Mask, Scores


@dataclass(frozen=True)
class Sampler:
    """Takes tokens under one request's settings.

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
        history = History(prompt, output, self.breakers)
        chosen = choose(
            scores,
            self.settings,
            history=history,
            choice=self.choice,
            position=position,
            mask=mask,
        )
        return chosen.outcome((*self.wanted, *also), self.kept)
