"""An answer that a grammar held, made step by step with the parts that generating is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from forwardpass.constraint.grammar import compile_schema
from forwardpass.constraint.guide import Guide
from forwardpass.constraint.masks import Masker
from forwardpass.constraint.tokens import Tokens
from forwardpass.model import Model
from forwardpass.sampling.sampler import Sampler
from forwardpass.trace.masking import mask_notes
from forwardpass.trace.step import FinishReason, Step
from forwardpass.trace.trace import Trace


def held(model: Model, schema: object, prompt: str, most: int, **options: Any) -> Trace:
    """The trace of an answer of at most `most` tokens, with what the grammar allowed."""
    tokenizer, rows = model.tokenizer, model.description.config.vocab_size
    texts = [
        None if tokenizer.is_control(i) else tokenizer.token_bytes(i)
        for i in range(tokenizer.vocab_size)
    ]
    masker = Masker(compile_schema(schema), Tokens(texts, rows))
    going = model.stream(prompt, max_tokens=most, **options)
    sampler, guide = Sampler(going.settings), Guide(masker, going.prompt.ends)
    guide.check(most)
    steps: list[Step] = []
    while not steps or steps[-1].finish_reason is None:
        index = len(steps)
        mask = np.unpackbits(guide.allowed(most - index).words.view(np.uint8), bitorder="little")[
            :rows
        ].astype(bool)
        outcome = sampler.pick(
            going.sequence.scores,
            prompt=going.prompt.ids,
            output=[step.id for step in steps],
            position=index,
            mask=mask,
        )
        token = outcome.token
        ends = token in going.prompt.ends
        text = masker.tokens.text(token)
        reason: FinishReason | None = "stop" if ends else "length" if index + 1 == most else None
        shown = "" if ends else text.decode("utf-8", "replace")
        chances = (outcome.logprob, outcome.sampled_logprob, outcome.random)
        steps.append(Step(index, token, shown, text, *chances, reason, False, outcome))
        guide.advance(token)
        if reason is None:
            model.runner.decode(going.sequence, token)
    trace = going.origin.trace(going.prompt.ids, going.settings, tuple(steps))
    fresh = Guide(masker, going.prompt.ends)
    return replace(trace, masks=mask_notes(fresh, trace.steps, most, model.token_text))
