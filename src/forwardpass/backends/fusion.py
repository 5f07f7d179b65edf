"""From a graph to the fused steps of a pass.

Products of one input become one step, whose sums go on to what reads them alone (`epilogues.py`);
what is done to single rows in between becomes one step after another product's; a value that is
multiplied as blocks of integers is turned into them where it is made. Nothing here knows a family:
what fits no rule is an operation on rows, and an op without a kernel is left to its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from forwardpass.backends.epilogues import LINEAR, Epilogues, Product
from forwardpass.backends.slots import VIEWS, Use, View, is_wanted, row_width, views
from forwardpass.backends.steps import (
    AttentionStep,
    HostStep,
    LinearStep,
    Plan,
    RowOp,
    Rows,
    RowStep,
    Segment,
    Step,
    Turning,
)
from forwardpass.errors import GraphError
from forwardpass.graph.graph import Graph, Node, Value
from forwardpass.rope import Rope

KERNELS = frozenset(
    [
        "embed",
        "add_positions",
        "scale",
        "linear",
        "linear_bias",
        "columns",
        "heads",
        "flat",
        "rms_norm",
        "layer_norm",
        "plain_layer_norm",
        "head_layer_norm",
        "rope",
        "rope_factors",
        "cache",
        "attention",
        "gelu",
        "gelu_erf",
        "relu",
        "silu_multiply",
        "gelu_multiply",
        "add",
        "softcap",
        "wanted_rows",
    ]
)
"""Ops that the program computes; any other runs through its reference between two of its parts."""
_NEEDED = LINEAR | VIEWS | {"cache", "attention", "wanted_rows"}
_NORMS = {"rms_norm": "rms_norm", "layer_norm": "layer_norm", "plain_layer_norm": "layer_norm"}
_NUMBERS = {"scale": "factor", "softcap": "cap"}


def fuse(
    graph: Graph, takes_blocks: Callable[[str], bool], kernels: Collection[str] = KERNELS
) -> Plan:
    """The steps of the graph. `takes_blocks`: whether a weight's table multiplies integers.

    Raises GraphError where an op that the program cannot do without is not among `kernels`, or
    wanted rows are followed by all rows.
    """
    missing = sorted({node.op.name for node in graph.nodes} & _NEEDED - set(kernels))
    if missing:
        raise GraphError(f"no kernel for {', '.join(missing)}, and no pass without")
    return _Fuser(graph, takes_blocks, kernels).plan()


def uses(plan: Plan) -> list[Use]:
    """What the steps read and make, in order; a row step's operations one by one."""
    found: list[Use] = []
    for step in plan.steps:
        if isinstance(step, RowStep):
            found += [_use([op.a, op.b], [op.out]) for op in step.ops]
        elif isinstance(step, LinearStep):
            residuals = [segment.sums.residual for segment in step.segments]
            found.append(_use([step.input, *residuals], [s.out for s in step.segments]))
        elif isinstance(step, AttentionStep):
            found.append(_use([step.q], [step.out]))
        else:
            found.append(_use([view for view in step.inputs if _has_slot(view)], [step.out]))
    return found


def _use(reads: list[View | None], makes: list[View | None]) -> Use:
    read, made = ([view.value for view in some if view is not None] for some in (reads, makes))
    return Use(tuple(read), tuple(made))


def _without_unread(steps: Sequence[Step], logits: Value) -> list[Step]:
    """The steps, with it noted where the results of a product are read by products alone."""
    read = {logits}
    for step in steps:
        views: list[View | None] = []
        if isinstance(step, RowStep):
            views += [view for op in step.ops for view in (op.a, op.b)]
        elif isinstance(step, LinearStep):
            views += [segment.sums.residual for segment in step.segments]
        elif isinstance(step, AttentionStep):
            views.append(step.q)
        else:
            views += step.inputs
        read |= {view.value for view in views if view is not None}

    def noted(segment: Segment) -> Segment:
        unread = segment.quantize and segment.out.value not in read
        return replace(segment, floats=False) if unread else segment

    return [
        replace(step, segments=tuple(map(noted, step.segments)))
        if isinstance(step, LinearStep)
        else step
        for step in steps
    ]


def _has_slot(view: View) -> bool:
    return len(view.value.shape) > 1


@dataclass
class _Fuser:
    graph: Graph
    takes_blocks: Callable[[str], bool]
    kernels: Collection[str]
    steps: list[Step] = field(default_factory=list)
    ops: list[RowOp] = field(default_factory=list)  # of the row step that is being made
    nodes: list[int] = field(default_factory=list)  # that the step being made stands for
    made: set[Value] = field(default_factory=set)
    states: list[tuple[int, int]] = field(default_factory=list)
    ropes: dict[Turning, int] = field(default_factory=dict)
    fallbacks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.views = views(self.graph)
        self.epilogues = Epilogues(self.graph, self.views, self.takes_blocks, self.kernels)
        self.products = self.epilogues.products
        self.taken = {n for product in self.products.values() for n in product.nodes}
        self.by_input: dict[View, list[int]] = {}
        for number in sorted(self.products):
            self.by_input.setdefault(self._view(number), []).append(number)
        self.multiplied = {view.value for view in self.by_input if self._as_blocks(view)}
        self.wanted = False
        self.copies = 0

    def plan(self) -> Plan:
        for number, node in enumerate(self.graph.nodes):
            name = node.op.name
            if number in self.products:
                if self.products[number].out not in self.made:
                    self._linear(number)
            elif number in self.taken:
                continue
            elif name in VIEWS or name == "cache":
                self.nodes.append(number)
            elif name == "attention":
                self._attention(number, node)
            elif name in self.kernels:
                self._row(number, node)
            else:
                self._host(number, node)
        self._flush()
        if self.nodes:  # views behind the last step
            raise GraphError("nothing reads the last views of the graph")
        wanted = [step.wanted for step in self.steps]
        if wanted != sorted(wanted):
            raise GraphError("a step of all rows comes behind the wanted rows")
        logits = self.views[self.graph.logits]
        return Plan(
            tuple(_without_unread(self.steps, logits.value)),
            tuple(self.states),
            tuple(self.ropes),
            logits.value,
            tuple(self.fallbacks),
        )

    def _view(self, number: int, place: int = 0) -> View:
        return self.views[self.graph.nodes[number].inputs[place]]

    def _as_blocks(self, view: View) -> bool:
        tables = [self.products[number] for number in self.by_input[view]]
        return any(
            self.takes_blocks(rows.weight)
            for product in tables
            for rows in (product.sums.table, product.sums.up)
            if rows is not None
        )

    def _flush(self) -> None:
        if self.ops:
            self.steps.append(RowStep(tuple(self.ops), self.wanted, tuple(self.nodes)))
            self.ops, self.nodes = [], []

    def _push(self, op: RowOp, wanted: bool, nodes: tuple[int, ...] = ()) -> None:
        if wanted != self.wanted:
            self._flush()
            self.wanted = wanted
        self.ops.append(op)
        self.nodes += nodes
        if op.out is None:
            return
        self.made.add(op.out.value)
        if op.out.value in self.multiplied and not op.out.column:
            self._quantize(op.node, op.out)

    def _quantize(self, node: int, view: View) -> None:
        width = row_width(view.value)
        self._push(RowOp("quantize", node, a=view, width=width), is_wanted(view.value))

    def _emit(self, step: Step, *made: Value) -> None:
        self.steps.append(step)
        self.nodes = []
        self.made.update(made)
        self.wanted = step.wanted

    # Products

    def _linear(self, number: int) -> None:
        """The product of that number and all of the same input that can be had now."""
        view = self._view(number)
        together = [
            other
            for other in self.by_input[view]
            if self.products[other].out not in self.made and self._is_ready(self.products[other])
        ]
        source = self._whole(number, view)
        self._flush()
        products = [self.products[other] for other in together]
        segments = tuple(self._segment(product) for product in products)
        nodes = (*self.nodes, *(n for product in products for n in product.nodes))
        step = LinearStep(source, segments, is_wanted(view.value), nodes)
        self._emit(step, *(product.out for product in products))

    def _is_ready(self, product: Product) -> bool:
        residual = product.sums.residual
        return residual is None or residual.value in self.made

    def _segment(self, product: Product) -> Segment:
        quantize = product.out in self.multiplied
        return Segment(product.nodes[0], product.sums, View(product.out), quantize)

    def _whole(self, number: int, view: View) -> View:
        """The input of a product as a value of its own: blocks begin at the first column."""
        node = self.graph.nodes[number]
        width = row_width(node.inputs[0])
        if not view.column and row_width(view.value) == width:
            return view
        self.copies += 1
        own = View(Value(-self.copies, (view.value.shape[0], width)))
        op = RowOp("copy", number, a=view, out=own, width=width)
        self._push(op, is_wanted(view.value))
        if self._as_blocks(view):
            self._quantize(number, own)
        return own

    # Attention

    def _attention(self, number: int, node: Node) -> None:
        q, keys, values, _ = node.inputs
        written = [self.epilogues.maker[keys], self.epilogues.maker[values]]
        heads, width = (int(size) for size in q.shape[1:])
        groups = int(keys.shape[0])
        state = len(self.states)
        self.states.append((groups, width))
        key, value = (self._view(place) for place in written)
        self._push(
            RowOp(
                "write_cache", written[0], a=key, b=value, width=width, heads=groups, state=state
            ),
            wanted=False,
        )
        self._flush()
        options = node.attributes
        slopes, window = options["slopes"], options["window"]
        assert slopes is None or isinstance(slopes, tuple)
        step = AttentionStep(
            number,
            self.views[q],
            View(node.output),
            state,
            heads,
            groups,
            width,
            scale=_number(options["scale"]),
            softcap=_number(options["softcap"]),
            window=int(_number(window)),
            slopes=slopes or (),
            quantize=node.output in self.multiplied,
            nodes=(*self.nodes, number),
        )
        self._emit(step, node.output)

    # Rows

    def _row(self, number: int, node: Node) -> None:
        name, width = node.op.name, row_width(node.output)
        out, attributes = View(node.output), node.attributes
        inputs = [self.views[value] for value in node.inputs if len(value.shape) > 1]
        a = inputs[0] if inputs else None
        weights = [weight.name for weight in node.weights]
        op = RowOp(name, number, a, inputs[1] if len(inputs) > 1 else None, out, width)
        if name in ("embed", "add_positions"):
            table = Rows(weights[0], 0, node.weights[0].shape[0])
            offset = int(_number(attributes.get("offset")))
            op = RowOp(name, number, a, None, out, width, table=table, offset=offset)
        elif name in ("rope", "rope_factors"):
            op = self._rope(number, node)
        elif name in _NORMS or name == "head_layer_norm":
            part = int(node.output.shape[-1])
            op = RowOp(
                _NORMS.get(name, name),
                number,
                a,
                None,
                out,
                part,
                width // part,
                weight=weights[0],
                bias=weights[1] if len(weights) > 1 else None,
                number=_number(attributes["eps"]),
            )
        elif name in _NUMBERS:
            factor = _number(attributes[_NUMBERS[name]])
            op = RowOp(name, number, a, None, out, width, number=factor)
        elif name == "wanted_rows":
            op = RowOp("gather", number, a, None, out, width)
        self._push(op, is_wanted(node.output), (number,))

    def _rope(self, number: int, node: Node) -> RowOp:
        rope, dims = node.attributes["rope"], int(_number(node.attributes["dims"]))
        assert isinstance(rope, Rope)
        factors = node.weights[0].name if node.weights else None
        turning = Turning(rope, dims, factors)
        heads, width = (int(size) for size in node.output.shape[1:])
        return RowOp(
            "rope",
            number,
            self.views[node.inputs[0]],
            None,
            View(node.output),
            width,
            heads,
            rope=self.ropes.setdefault(turning, len(self.ropes)),
            pairs=dims // 2,
            interleaved=bool(node.attributes["interleaved"]),
        )

    def _host(self, number: int, node: Node) -> None:
        self._flush()
        self.fallbacks.append(number)
        inputs = tuple(self.views[value] for value in node.inputs)
        nodes = (*self.nodes, number)
        wanted = is_wanted(node.output)
        step = HostStep(number, inputs, View(node.output), wanted, nodes)
        self._emit(step, node.output)
        if node.output in self.multiplied:
            self._quantize(number, View(node.output))


def _number(value: object) -> float:
    """An attribute that is a number; 0 where there is none."""
    assert value is None or isinstance(value, int | float)
    return float(value or 0)
