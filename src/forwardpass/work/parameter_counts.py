"""How many parameters a model has, by every convention that totals of it are published in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from forwardpass.describe import Description
from forwardpass.units import exact
from forwardpass.work.layout import Row
from forwardpass.work.parameters import parameter_table
from forwardpass.work.token import active_elements

_FURTHER = ("num_nextn_predict_layers", "mtp_num_hidden_layers")


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters. `unique` counts a tied table once; it is the embedding's.

    The others are None, and not in the JSON, where there is nothing to tell. `with_buffers`: also
    the biases that steer routers, which are no parameters. `with_prediction_layers`: these, and
    the layers that predict further tokens as published files hold them, with tables of embedding
    and head again. `with_towers`: also what a model has besides its text part.
    `active_without_embedding`: of a mixture, what does arithmetic for one token.
    """

    unique: int | None
    stored: int | None
    active: int | None
    embedding: int | None
    layers: int | None
    head: int | None
    by_role: Mapping[str, int] | None
    with_buffers: int | None = None
    with_prediction_layers: int | None = None
    with_towers: int | None = None
    active_without_embedding: int | None = None


VARIANTS = (
    "with_buffers",
    "with_prediction_layers",
    "with_towers",
    "active_without_embedding",
)


def count_parameters(description: Description) -> Parameters:
    """The numbers of a described model."""
    graph = description.graph
    table = parameter_table(graph)
    unique, active = description.unique_parameters, active_elements(graph)
    buffers = sum(weight.elements for weight in graph.weights.values()) - unique
    idle = sum(active[weight.name] for weight in graph.embedding_only)
    layer = description.family.prediction_layer(graph)
    further = _prediction_layers(description)
    tower = description.tower
    return Parameters(
        unique=unique,
        stored=description.stored_parameters,
        active=sum(active.values()),
        embedding=table.in_embedding,
        layers=table.in_layers,
        head=table.in_head,
        by_role={str(role): table.by_role[role] for role in graph.roles},
        with_buffers=unique + buffers if graph.experts and buffers else None,
        with_prediction_layers=unique + buffers + further * layer if layer and further else None,
        with_towers=unique + tower if tower else None,
        active_without_embedding=sum(active.values()) - idle if graph.experts and idle else None,
    )


def _prediction_layers(description: Description) -> int:
    """How many layers predict further tokens, behind those that run."""
    stated = (description.config.own.get(key) for key in _FURTHER)
    return next((number for number in stated if isinstance(number, int)), 0)


def variant_rows(parameters: Parameters, description: Description) -> Iterator[Row]:
    """The other conventions, for a table of parameters with three columns."""
    further = _prediction_layers(description)
    layers = f"{further} prediction layer{'s' * (further != 1)}"
    active = parameters.active if description.graph.experts else None
    steered = any(node.op.name == "route_biased" for node in description.graph.nodes)
    buffers = "biases that steer routers" if steered else "constants of the layers"
    for label, number, note in (
        ("active, for one token", active, ""),
        ("without the embedding", parameters.active_without_embedding, "of the active"),
        ("with buffers", parameters.with_buffers, buffers),
        (f"with {layers}", parameters.with_prediction_layers, "and buffers, as published"),
        ("with towers", parameters.with_towers, "which are not run"),
    ):
        if number is not None:
            yield Row(f"  {label}", ("", "", exact(number)), note)
