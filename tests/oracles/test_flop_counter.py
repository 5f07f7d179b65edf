"""torch's own counter of FLOP against ours: matrix products, and attention by the full square."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

from forwardpass.describe import Description, describe_config
from forwardpass.graph.graph import Role
from forwardpass.shapes import SHAPES
from forwardpass.work.count import count_pass
from forwardpass.work.passes import PassShape, SequenceShape
from oracles.families import BY_NAME, Judged

Judge = Callable[[str], Judged]
# Where the judge looks at positions to decide, and there are none.
_NOT_WITHOUT_VALUES = ("llama-dynamic",)


def torch_flop(raw: dict[str, object], tokens: int, computed: bool = False) -> int:
    """What torch counts for one eager pass with all rows of logits.

    `computed`: really, as mixtures must be, whose experts get the tokens that choose them.
    """
    config = AutoConfig.for_model(**raw)
    with torch.device("cpu" if computed else "meta"):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32
        )
        ids = torch.zeros(1, tokens, dtype=torch.long)
        # Given, so that none is derived from token values, which do not exist here.
        mask = torch.zeros(1, 1, tokens, tokens)
        if config.model_type in ("bloom", "opt"):  # they count positions along it
            mask = torch.ones(1, tokens, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(ids, attention_mask=mask, use_cache=False)
    return int(counter.get_total_flops())


def our_flop(description: Description, tokens: int) -> int:
    """Ours, with every query multiplied with every key as eager attention does."""
    graph = description.graph
    shape = PassShape((SequenceShape(tokens, 0, tokens),))
    work = count_pass(graph, shape, lambda weight: weight.elements, 1)
    heads = [node.sizes for node in graph.nodes if "scale" in node.attributes]
    square = sum(2 * int(s["h"]) * (int(s["e"]) + int(s["w"])) * tokens**2 for s in heads)
    return work.flop - work.by_role[Role.READ].flop + square


@pytest.mark.parametrize("tokens", [1, 7, 40])
@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in _NOT_WITHOUT_VALUES])
def test_tiny_models_cost_what_torch_counts(judged: Judge, name: str, tokens: int) -> None:
    raw = json.loads((judged(name).folder / "config.json").read_text())
    found = describe_config(name, raw)
    assert our_flop(found, tokens) == torch_flop(raw, tokens, bool(found.graph.experts))


@pytest.mark.parametrize(
    "name", [name for name in SHAPES if not describe_config(name, SHAPES[name]).graph.experts]
)
def test_bundled_shapes_cost_what_torch_counts(name: str) -> None:
    assert our_flop(describe_config(name, SHAPES[name]), 3) == torch_flop(dict(SHAPES[name]), 3)


def test_llama_3_1_8b_s_prompt_of_512_tokens_by_the_full_square() -> None:
    assert torch_flop(dict(SHAPES["llama-3.1-8b"]), 512) == 7_822_209_187_840
