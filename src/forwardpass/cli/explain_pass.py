"""One pass from inside, as `explain --pass` shows it: norms, attention, the logit lens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from forwardpass.cli.account import engine_lines, plural
from forwardpass.cli.console import columns, data, note, patience, visible
from forwardpass.computing import NATIVE, REFERENCE, Computing
from forwardpass.errors import RequestError
from forwardpass.units import exact

if TYPE_CHECKING:
    from forwardpass.backends.reference import Reference
    from forwardpass.cli.answering import EngineOptions
    from forwardpass.inspecting.looking import Added, Look
    from forwardpass.model import Model
    from forwardpass.sampling.outcome import Ranked

SHOWN, MOST = 24, 20  # tokens whose weights are all shown; of more, how many of the heaviest
_BAR = 30  # cells of a weight of 1
_TOKEN = 14  # the most characters of a token in a table


def on_reference(engine: EngineOptions) -> EngineOptions:
    """The options with the reference backend, which alone shows what is inside a pass.

    Raises RequestError where the native one was asked for.
    """
    if engine.backend == NATIVE:
        raise RequestError(
            "--backend native: it keeps nothing from inside a pass",
            advice="--pass runs on the reference backend; leave --backend out",
        )
    return replace(engine, backend=REFERENCE)


def look_inside(
    model: Model,
    ids: Sequence[int],
    *,
    layer: int | None = None,
    head: int = 0,
    position: int | None = None,
) -> Look:
    """One pass over the prompt `ids`, looked at from inside.

    `layer` and `head`: whose attention (the last layer's unless given). `position`: the place in
    the prompt of the token that is looked at (the last unless given). The weights of a model that
    runs natively are decoded once more, to float32.

    Raises RequestError for a layer, head or position that there is not, ContextError for a prompt
    that does not fit, WeightsError where memory does not hold the weights in float32, GraphError
    where the architecture has no running vector to follow.
    """
    from forwardpass.inspecting.looking import look

    model.runner.check_prompt(ids)
    backend = _reference(model)
    with patience("reading the prompt"):
        return look(backend, ids, layer=layer, head=head, position=position)


def _reference(model: Model) -> Reference:
    """The reference backend with the model's weights."""
    from forwardpass.backends.reference import Reference

    if isinstance(model.runner.backend, Reference):
        return model.runner.backend
    found = Computing(REFERENCE).backend_for(model.description, model.description.label)[0]
    assert isinstance(found, Reference)
    return found


def show_pass(model: Model, look: Look) -> None:
    """Prints one pass: layer by layer, then the attention of one head."""
    prompt, attention = plural(len(look.tokens), "prompt token"), look.attention
    here = f'token {look.position} "{_shown(model, look.tokens[look.position])}"'
    best = f'"{_shown(model, look.best.id)}", p {look.best.probability:.3f}'
    data(f"{model.description.label} · {prompt}, one pass on the reference backend, float32")
    data(f"at {here}; best next token: {best}; rank: its place in each lens")
    data()
    for line in columns(list(_layer_rows(model, look)), ">" * 7 + "<>>"):
        data(line)
    if look.normed:
        data("norms stand on the running vector itself: before + attention + MLP is not after")
    data()
    data(f"attention of layer {attention.layer}, head {attention.head}, from {here}")
    for line in columns(list(_weight_rows(model, look)), "><><"):
        data(line)
    for line in engine_lines(model):
        note(line)


def pass_dict(model: Model, look: Look) -> dict[str, object]:
    """The keys of `explain --pass --json`; docs/pass.md says what they are."""
    attention = look.attention
    return {
        "model": model.description.label,
        "position": look.position,
        "tokens": [{"id": token, "text": model.token_text(token)} for token in look.tokens],
        "best": _guess(model, look.best),
        "adds_up": not look.normed,
        "layers": [
            {
                "layer": number,
                "before": layer.before,
                "attention": layer.attention.norm,
                "attention_cosine": layer.attention.cosine,
                "mlp": layer.mlp.norm,
                "mlp_cosine": layer.mlp.cosine,
                "after": layer.after,
                "lens": [_guess(model, ranked) for ranked in layer.lens],
                "rank": layer.rank,
            }
            for number, layer in enumerate(look.layers)
        ],
        "attention": {
            "layer": attention.layer,
            "head": attention.head,
            "weights": attention.weights.tolist(),
            "sink": attention.sink,
            "sum": attention.sum,
        },
    }


def _layer_rows(model: Model, look: Look) -> Iterator[Sequence[str]]:
    """The table of the layers: norms and cosines, then the lens."""
    yield "layer", "before", "+ attention", "cos", "+ MLP", "cos", "after", "lens", "p", "rank"
    for number, layer in enumerate(look.layers):
        first = layer.lens[0]
        yield (
            str(number),
            f"{layer.before:,.1f}",
            *_added(layer.attention),
            *_added(layer.mlp),
            f"{layer.after:,.1f}",
            _shown(model, first.id),
            f"{first.probability:.3f}",
            exact(layer.rank),
        )


def _added(added: Added) -> tuple[str, str]:
    return f"{added.norm:,.1f}", "-" if added.cosine is None else f"{added.cosine:+.2f}"


def _weight_rows(model: Model, look: Look) -> Iterator[Sequence[str]]:
    """The table of the weights: place, token, weight, bar."""
    attention = look.attention
    weights = attention.weights[: look.position + 1].tolist()
    places = list(range(len(weights)))
    if len(places) > SHOWN:
        places = sorted(places, key=lambda place: -weights[place])[:MOST]
    for place in places:
        yield str(place), _shown(model, look.tokens[place]), *_bar(weights[place])
    if others := len(weights) - len(places):
        rest = math.fsum(weights) - math.fsum(weights[place] for place in places)
        yield "", f"the other {exact(others)}", *_bar(rest)
    if attention.sink is not None:
        yield "", "sink, no token", *_bar(attention.sink)
    yield "", "sum", f"{attention.sum:.3f}", ""


def _bar(weight: float) -> tuple[str, str]:
    return f"{weight:.3f}", "█" * round(_BAR * weight)


def _guess(model: Model, ranked: Ranked) -> dict[str, object]:
    token = model.token_text(ranked.id)
    return {"id": ranked.id, "token": token, "probability": ranked.probability}


def _shown(model: Model, token: int) -> str:
    return visible(model.token_text(token), _TOKEN)
