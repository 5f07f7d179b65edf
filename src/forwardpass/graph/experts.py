"""Mixtures of experts, as families write them: a router, its choice, and the experts' tables.

The experts' tables are one weight each with a row for every expert, x o i, whatever files do.
"""

from __future__ import annotations

from dataclasses import dataclass

from forwardpass.errors import GraphError
from forwardpass.graph.builder import GraphBuilder
from forwardpass.graph.graph import Role, Value


@dataclass(frozen=True)
class Routing:
    """How `chosen` of `experts` are found for a token, and what their results weigh.

    `scoring`: what a router's number becomes: "softmax" over all, "sigmoid", or "none". `normal`:
    "sum" divides the chosen scores by their sum, "softmax" takes their softmax, "none" leaves them;
    `factor` multiplies them then. `bias` names a constant vector that is added for the choice
    alone. Of `groups` of experts the best `kept` take part; a group is as good as its best expert,
    or as its `group_best` best together.
    """

    experts: int
    chosen: int
    scoring: str = "softmax"
    normal: str = "none"
    factor: float = 1.0
    bias: str | None = None
    groups: int = 1
    kept: int = 1
    group_best: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.chosen <= self.experts:
            raise GraphError(f"{self.chosen} of {self.experts} experts cannot be chosen")
        if self.experts % self.groups or not 1 <= self.kept <= self.groups:
            raise GraphError(
                f"{self.experts} experts cannot be in {self.groups} groups of which {self.kept} "
                "are kept"
            )
        if self.chosen > self.experts // self.groups * self.kept:
            raise GraphError(f"{self.kept} groups have fewer than {self.chosen} experts")


def route(g: GraphBuilder, scores: Value, routing: Routing) -> tuple[Value, Value]:
    """From a router's numbers, n x: the chosen experts' ids and weights, n k each."""
    if routing.scoring != "none":
        scores = g.apply("expert_scores", [scores], scoring=routing.scoring)
    steered = [] if routing.bias is None else [g.weight(routing.bias, routing.experts)]
    chosen = g.apply(
        "route_biased" if steered else "route",
        [scores],
        steered,
        given={"k": routing.chosen},
        k=routing.chosen,
        groups=routing.groups,
        kept=routing.kept,
        group_best=routing.group_best,
    )
    weights = g.apply(
        "expert_weights", [scores, chosen], normal=routing.normal, factor=routing.factor
    )
    return chosen, weights


def router(g: GraphBuilder, x: Value, name: str, routing: Routing, bias: bool = False) -> Value:
    """A router's number for each expert, n x: a projection, role mlp.router."""
    return g.linear(x, name, routing.experts, Role.MLP_ROUTER, bias)


def expert_linear(
    g: GraphBuilder,
    x: Value,
    chosen: Value,
    name: str,
    outputs: int,
    routing: Routing,
    role: Role,
    bias: bool = False,
) -> Value:
    """x (n k i) times the chosen experts' tables `name.weight` (x o i), n k o."""
    inputs = x.shape[-1]
    if not isinstance(inputs, int):
        raise GraphError(f"{name}: its input has no fixed width")
    weights = [g.weight(f"{name}.weight", routing.experts, outputs, inputs)]
    if bias:
        weights.append(g.weight(f"{name}.bias", routing.experts, outputs))
    op = "expert_linear_bias" if bias else "expert_linear"
    return g.apply(op, [x, chosen], weights, role=role)


def to_experts(g: GraphBuilder, x: Value, chosen: Value) -> Value:
    """Each row of x once for each of its experts, n k d."""
    return g.apply("to_experts", [x, chosen])


def combine(g: GraphBuilder, rows: Value, weights: Value) -> Value:
    """The experts' rows (n k d) times their weights (n k), added up, n d."""
    return g.apply("combine", [rows, weights])


def swiglu_experts(
    g: GraphBuilder,
    x: Value,
    scores: Value,
    name: str,
    width: int,
    routing: Routing,
    tables: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Value:
    """What the chosen experts, each a SwiGLU of `width` below `name`, add up to, n d.

    `scores`: the router's numbers, n x. `tables`: what gate, up and down are called.
    """
    gate_name, up_name, down_name = (f"{name}.{table}" for table in tables)
    hidden = g.config.hidden_size
    chosen, weights = route(g, scores, routing)
    y = to_experts(g, x, chosen)
    gate = expert_linear(g, y, chosen, gate_name, width, routing, Role.MLP_UP)
    up = expert_linear(g, y, chosen, up_name, width, routing, Role.MLP_UP)
    y = g.silu_multiply(gate, up)
    rows = expert_linear(g, y, chosen, down_name, hidden, routing, Role.MLP_DOWN)
    return combine(g, rows, weights)


def swiglu(g: GraphBuilder, x: Value, name: str, width: int) -> Value:
    """A dense SwiGLU of `width` below `name`, n d: shared experts, and layers without others."""
    gate = g.linear(x, f"{name}.gate_proj", width, Role.MLP_UP)
    up = g.linear(x, f"{name}.up_proj", width, Role.MLP_UP)
    y = g.silu_multiply(gate, up)
    return g.linear(y, f"{name}.down_proj", g.config.hidden_size, Role.MLP_DOWN)
