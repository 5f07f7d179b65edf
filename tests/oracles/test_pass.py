"""A look into a pass against transformers' own: running vectors, updates, attentions, lenses.

The models are those of `families.py`, asked in the same way; what is compared is what their
modules hand on, caught by hooks, and what `output_attentions` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from forwardpass.graph.graph import Node, Value
from forwardpass.graph.references import F32
from forwardpass.inspecting.looking import BEST, attention_weights, look
from forwardpass.inspecting.residual import residual
from oracles.families import BY_NAME, PROMPT, Judged, random_model
from oracles.loading import loaded

Judge = Callable[[str], Judged]
PLACES = (PROMPT - 1, 13)
every_case = pytest.mark.parametrize("name", list(BY_NAME))

# The modules of a layer whose outputs are added, by model_type, and what multiplies them there.
_ADDED: Mapping[str, tuple[str, str]] = {
    "llama": ("self_attn", "mlp"),
    "qwen3": ("self_attn", "mlp"),
    "mistral": ("self_attn", "mlp"),
    "phi3": ("self_attn", "mlp"),
    "cohere": ("self_attn", "mlp"),
    "phi": ("self_attn", "mlp"),
    "stablelm": ("self_attn", "mlp"),
    "granite": ("self_attn", "mlp"),
    "gpt2": ("attn", "mlp"),
    "gptj": ("attn", "mlp"),
    "gpt_neox": ("attention", "mlp"),
    "falcon": ("self_attention", "mlp"),
    "olmo2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "gemma2": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "gemma3_text": ("post_attention_layernorm", "post_feedforward_layernorm"),
    "mixtral": ("self_attn", "mlp"),
    "gpt_oss": ("self_attn", "mlp"),
    "deepseek_v3": ("self_attn", "mlp"),
}


@dataclass(frozen=True)
class Theirs:
    """What transformers has inside one pass, as far as it is compared."""

    before: F32  # layers, n, d
    after: F32
    attentions: list[F32]  # for each layer: heads, queries, keys
    updates: dict[str, list[F32]]  # by the name of the module: for each layer n d


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    (found,) = (
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in ("layers", "h")
    )
    assert len(found) == model.config.num_hidden_layers
    return found


@cache
def theirs_of(name: str, tokens: tuple[int, ...]) -> Theirs:
    case = BY_NAME[name]
    model = random_model(case)
    before: list[F32] = []
    after: list[F32] = []
    added = _ADDED.get(case.model_type, ())
    updates: dict[str, list[F32]] = {part: [] for part in added}
    for layer in layers_of(model):
        layer.register_forward_pre_hook(lambda _, given: before.append(row(given)))
        layer.register_forward_hook(lambda _, __, out: after.append(row(out)))
        for part in added:
            layer.get_submodule(part).register_forward_hook(
                lambda _, __, out, kept=updates[part]: kept.append(row(out))
            )
    with torch.no_grad():
        out = model(input_ids=torch.tensor([tokens]), use_cache=False, output_attentions=True)
    attentions = [each[0].numpy() for each in out.attentions]
    return Theirs(np.stack(before), np.stack(after), attentions, updates)


def row(given: object) -> F32:
    """The vectors of a module's input or output, n d."""
    tensor = given[0] if isinstance(given, tuple) else given
    assert isinstance(tensor, torch.Tensor)
    array: F32 = tensor.detach().reshape(-1, tensor.shape[-1]).numpy().copy()
    return array


def prompt_of(judged: Judged) -> tuple[int, ...]:
    return tuple(judged.tokens[:PROMPT])


@every_case
def test_the_running_vector_is_as_long_as_theirs(judged: Judge, name: str) -> None:
    case = judged(name)
    tokens = prompt_of(case)
    theirs, model = theirs_of(name, tokens), loaded(case.folder)
    for place in PLACES:
        found = look(model, tokens, position=place)
        assert len(found.layers) == len(theirs.before)
        for layer, before, after in zip(found.layers, theirs.before, theirs.after, strict=True):
            assert layer.before == pytest.approx(np.linalg.norm(before[place]), rel=1e-5)
            assert layer.after == pytest.approx(np.linalg.norm(after[place]), rel=1e-5)


@pytest.mark.parametrize("name", [n for n, case in BY_NAME.items() if case.model_type in _ADDED])
def test_the_updates_are_what_their_modules_make(judged: Judge, name: str) -> None:
    case = judged(name)
    tokens = prompt_of(case)
    theirs, model = theirs_of(name, tokens), loaded(case.folder)
    parts = _ADDED[case.case.model_type]
    times = case.case.config.get("residual_multiplier", 1.0)
    assert isinstance(times, float)
    for place in PLACES:
        found = look(model, tokens, position=place)
        for number, layer in enumerate(found.layers):
            for added, part in zip((layer.attention, layer.mlp), parts, strict=True):
                norm = times * np.linalg.norm(theirs.updates[part][number][place])
                assert added.norm == pytest.approx(norm, rel=1e-5)


@every_case
def test_every_head_s_attention_is_theirs(judged: Judge, name: str) -> None:
    case = judged(name)
    tokens = prompt_of(case)
    theirs, model = theirs_of(name, tokens), loaded(case.folder)
    values: dict[Value, F32] = {}

    def watch(node: Node, made: F32) -> None:
        values[node.output] = made

    model.run(model.new_cache(), tokens, watch=watch)
    stream = residual(model.graph)
    for layer, attention in zip(stream.layers, theirs.attentions, strict=True):
        for place in PLACES:
            ours = attention_weights(model, layer.read, values, place)
            np.testing.assert_allclose(ours, attention[:, place, : place + 1], atol=1e-5)
            assert not attention[:, place, place + 1 :].any()
    place, last = PLACES[1], len(stream.layers) - 1
    heads = theirs.attentions[last].shape[0]
    for head in range(heads):
        found = look(model, tokens, head=head, position=place).attention
        expected = theirs.attentions[last][head, place]
        np.testing.assert_allclose(found.weights, expected, atol=1e-5)
        share = float(expected.sum())
        if case.case.model_type == "gpt_oss":
            assert found.sink == pytest.approx(1 - share, abs=1e-5)
        else:
            assert share == pytest.approx(1, abs=1e-5)
            assert found.sink is None


@every_case
def test_the_lens_of_a_layer_is_their_model_without_the_later_layers(
    judged: Judge, name: str
) -> None:
    case = judged(name)
    tokens = prompt_of(case)
    found = look(loaded(case.folder), tokens)
    model = random_model(case.case)
    for count, layer in enumerate(found.layers, 1):
        with cut(model, count), torch.no_grad():
            out = model(input_ids=torch.tensor([tokens]), use_cache=False)
        scores = out.logits[0, -1].double()
        chances = scores.softmax(0).numpy()
        order = (-scores).argsort(stable=True).tolist()
        assert [ranked.id for ranked in layer.lens] == order[:BEST]
        for ranked in layer.lens:
            assert ranked.probability == pytest.approx(chances[ranked.id], rel=1e-3, abs=1e-7)
        assert layer.rank == order.index(found.best.id) + 1


@contextmanager
def cut(model: PreTrainedModel, count: int) -> Iterator[None]:
    """The model with its first layers alone."""
    layers = layers_of(model)
    whole, number = list(layers), model.config.num_hidden_layers
    layers._modules = {str(i): layer for i, layer in enumerate(whole[:count])}
    model.config.num_hidden_layers = count
    yield
    layers._modules = {str(i): layer for i, layer in enumerate(whole)}
    model.config.num_hidden_layers = number
