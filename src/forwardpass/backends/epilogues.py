"""What is done to the sums of a product before they are stored, decided for a whole graph.

A product takes up one thing: the activation, gate, residual or soft cap that is alone in reading
it. The node taken up needs no step of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from forwardpass.backends.slots import VIEWS, View, row_width
from forwardpass.backends.steps import Rows, Sums
from forwardpass.graph.graph import Graph, Node, Value

LINEAR = frozenset({"linear", "linear_bias"})
ACTS = frozenset({"relu", "gelu", "gelu_erf"})
GATES: Mapping[str, str] = {"silu_multiply": "silu", "gelu_multiply": "gelu"}


@dataclass(frozen=True)
class Product:
    """A product as a segment will have it; `nodes` are its own, first, and what it takes up."""

    nodes: tuple[int, ...]
    sums: Sums
    out: Value

    @property
    def plain(self) -> bool:
        """Whether nothing is taken up yet."""
        sums = self.sums
        return sums.gate == sums.act == "none" and sums.residual is None and not sums.cap

    def taking(self, reader: int, out: Value, sums: Sums) -> Product:
        """The product that also does the work of the node `reader`."""
        return Product((*self.nodes, reader), sums, out)


@dataclass
class Epilogues:
    """The products of a graph by the number of their first node.

    `takes_blocks` tells whether a weight's table multiplies blocks of integers, `kernels` are the
    ops that may be taken up.
    """

    graph: Graph
    views: Mapping[Value, View]
    takes_blocks: Callable[[str], bool]
    kernels: Collection[str]
    products: dict[int, Product] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = self.graph.nodes
        self.maker = {node.output: number for number, node in enumerate(nodes)}
        self._readers: dict[Value, set[int]] = {}
        for number, node in enumerate(nodes):
            if node.op.name not in VIEWS:
                for value in node.inputs:
                    self._readers.setdefault(self.views[value].value, set()).add(number)
        self._readers.setdefault(self.views[self.graph.logits].value, set()).add(len(nodes))
        for number, node in enumerate(nodes):
            if node.op.name in LINEAR:
                self.products[number] = self._bare(number, node)
        for take in (self._gate, self._act, self._cap, self._residual):
            for number, node in enumerate(nodes):
                if node.op.name in self.kernels:
                    take(number, node)

    def readers(self, value: Value) -> set[int]:
        """The nodes that read a value or a view of it; one beyond the last where it is kept."""
        return self._readers.get(value, set())

    def _bare(self, number: int, node: Node) -> Product:
        rows = [Rows(weight.name, 0, weight.shape[0]) for weight in node.weights]
        bias = rows[1] if len(rows) > 1 else None
        return Product((number,), Sums(rows[0], bias=bias), node.output)

    def _alone(self, value: Value, reader: int) -> int | None:
        """The plain product behind a whole value that the reader alone reads, by its number."""
        seen = self.views[value]
        made = self.maker.get(seen.value)
        if made is None or seen.column or row_width(seen.value) != row_width(value):
            return None
        product = self.products.get(made)
        if product is None or not product.plain or self.readers(seen.value) != {reader}:
            return None
        return made

    def _take(self, made: int, reader: int, sums: Sums) -> None:
        """The product now makes what the node `reader` makes of it."""
        output = self.graph.nodes[reader].output
        self.products[made] = self.products[made].taking(reader, output, sums)

    def _act(self, number: int, node: Node) -> None:
        if node.op.name not in ACTS:
            return
        made = self._alone(node.inputs[0], number)
        if made is not None:
            self._take(made, number, replace(self.products[made].sums, act=node.op.name))

    def _cap(self, number: int, node: Node) -> None:
        if node.op.name != "softcap":
            return
        made, cap = self._alone(node.inputs[0], number), node.attributes["cap"]
        assert isinstance(cap, int | float)
        if made is not None:
            self._take(made, number, replace(self.products[made].sums, cap=float(cap)))

    def _residual(self, number: int, node: Node) -> None:
        """The later product takes up the sum; the other operand is made before it."""
        if node.op.name != "add":
            return
        pairs = [
            (value, other) for value, other in zip(node.inputs, node.inputs[::-1], strict=True)
        ]
        found = [(self._alone(value, number), self.views[other]) for value, other in pairs]
        ready = [
            (made, other)
            for made, other in found
            if made is not None and self.maker.get(other.value, -1) < made
        ]
        if ready:
            made, other = max(ready, key=lambda pair: pair[0])
            self._take(made, number, replace(self.products[made].sums, residual=other))

    def _gate(self, number: int, node: Node) -> None:
        if node.op.name not in GATES:
            return
        gate, up = (self._alone(value, number) for value in node.inputs)
        if gate is None or up is None:
            self._gate_of_one_table(number, node)
            return
        first, second = self.products[gate], self.products[up]
        same_input = self._input(gate) == self._input(up)
        same_size = row_width(first.out) == row_width(second.out)
        mine, theirs = first.sums, second.sums
        same_kind = self.takes_blocks(mine.table.weight) == self.takes_blocks(theirs.table.weight)
        same_kind = same_kind and (mine.bias is None) == (theirs.bias is None)
        if gate == up or not (same_input and same_size and same_kind):
            return
        sums = replace(mine, up=theirs.table, up_bias=theirs.bias, gate=GATES[node.op.name])
        del self.products[gate], self.products[up]
        first_number, other = sorted((gate, up))
        self.products[first_number] = Product((first_number, other, number), sums, node.output)

    def _gate_of_one_table(self, number: int, node: Node) -> None:
        """Gate and up are the halves of one product: its table's rows are taken apart."""
        gate, up = (self.views[value] for value in node.inputs)
        made = self.maker.get(gate.value)
        product = None if made is None else self.products.get(made)
        width = row_width(node.output)
        if (
            made is None
            or product is None
            or not product.plain
            or up.value != gate.value
            or self.readers(gate.value) != {number}
            or sorted((gate.column, up.column)) != [0, width]
            or row_width(gate.value) != 2 * width
        ):
            return

        def half(rows: Rows | None, view: View) -> Rows | None:
            return rows and Rows(rows.weight, view.column, view.column + width)

        whole = product.sums
        table = half(whole.table, gate)
        assert table is not None
        sums = replace(
            whole,
            table=table,
            up=half(whole.table, up),
            bias=half(whole.bias, gate),
            up_bias=half(whole.bias, up),
            gate=GATES[node.op.name],
        )
        self.products[made] = product.taking(number, node.output, sums)

    def _input(self, number: int) -> View:
        return self.views[self.graph.nodes[number].inputs[0]]
