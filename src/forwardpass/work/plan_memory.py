"""How much memory a pass needs beside weights and cache: the values that are alive at once.

An assumption, as an engine is free to do otherwise: prompts go through in chunks of CHUNK tokens,
values take 2 bytes each and logits 4, a value's room is free once nothing reads it any more, ops
without a table write over an input that ends with them, and the scores of attention are never
stored (arXiv:2205.14135).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

from forwardpass.graph.graph import Graph, Node, Role

CHUNK = 8_192  # tokens of a prompt that go through the layers at once
_WIDTH, _LOGIT_WIDTH = 2, 4  # bytes
_VIEWS = ("heads", "flat")


@dataclass(frozen=True)
class Step:
    """A node that makes a value: its room is `bytes` for each of its tokens or logit rows.

    `ending`: values that nothing reads after it; `over`: whether it may write over one of them.
    """

    output: int
    bytes: int
    tokens: int  # how often n stands in the shape, and r
    rows: int
    ending: tuple[int, ...]
    over: bool


def steps(graph: Graph) -> tuple[Step, ...]:
    """What each node of a graph needs and frees."""
    owner: dict[int, int] = {}  # a view's value -> the value whose room it shares
    for node in graph.nodes:
        if node.op.name in _VIEWS:
            owner[node.output.index] = owner.get(node.inputs[0].index, node.inputs[0].index)
    last: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.inputs:
            last[owner.get(value.index, value.index)] = i
    made: set[int] = set()
    found = []
    for i, node in enumerate(graph.nodes):
        if node.op.name in _VIEWS:
            continue
        inputs = {owner.get(value.index, value.index) for value in node.inputs}
        ending = tuple(index for index in inputs if last[index] == i and index in made)
        found.append(_step(node, ending))
        made.add(node.output.index)
    return tuple(found)


def work_bytes(steps: tuple[Step, ...], tokens: int, rows: int) -> int:
    """The most bytes of values alive at once in a pass of `tokens` tokens and `rows` logit rows."""
    alive: dict[int, int] = {}
    together = peak = 0
    for step in steps:
        needed = step.bytes * tokens**step.tokens * rows**step.rows
        ending = [alive.pop(index) for index in step.ending]
        over = step.over and needed in ending
        peak = max(peak, together + (0 if over else needed))
        together += needed - sum(ending)
        alive[step.output] = needed
    return peak


def chunk(tokens: int) -> int:
    """Tokens of the largest pass over `tokens` tokens of prompts."""
    return min(tokens, CHUNK)


def _step(node: Node, ending: tuple[int, ...]) -> Step:
    """The step of a node; what the cache holds counts as cache."""
    shape = node.output.shape
    names = Counter(dim for dim in shape if isinstance(dim, str))
    cached = node.state is not None or not names.keys() <= {"n", "r"}
    width = _LOGIT_WIDTH if node.role is Role.HEAD else _WIDTH
    room = 0 if cached else width * prod(dim for dim in shape if isinstance(dim, int))
    over = not any(len(weight.shape) > 1 for weight in node.weights)
    return Step(node.output.index, room, names["n"], names["r"], ending, over)
