"""How much memory a pass needs beside weights and cache: the values that are alive at once.

An assumption, as an engine is free to do otherwise: prompts go through in chunks of CHUNK tokens,
values take 2 bytes each and logits 4, a value's room is free once nothing reads it any more, ops
without a table write over an input that ends with them, and the scores of attention are never
stored (arXiv:2205.14135).
"""

from __future__ import annotations

from math import prod

from forwardpass.graph.graph import Graph, Node, Role, Value

CHUNK = 8_192  # tokens of a prompt that go through the layers at once
_WIDTH, _LOGIT_WIDTH = 2, 4  # bytes
_VIEWS = ("heads", "flat")


def work_bytes(graph: Graph, tokens: int, rows: int) -> int:
    """The most bytes of values alive at once in a pass of `tokens` tokens and `rows` logit rows."""
    sizes = {"n": tokens, "r": rows}
    owner: dict[int, int] = {}  # a view's value -> the value whose room it shares
    for node in graph.nodes:
        if node.op.name in _VIEWS:
            owner[node.output.index] = owner.get(node.inputs[0].index, node.inputs[0].index)
    last: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.inputs:
            last[owner.get(value.index, value.index)] = i
    alive: dict[int, int] = {}
    together = peak = 0
    for i, node in enumerate(graph.nodes):
        if node.op.name in _VIEWS:
            continue
        needed = _bytes(node.output, node, sizes)
        inputs = {owner.get(value.index, value.index) for value in node.inputs}
        ending = [index for index in inputs if last[index] == i and index in alive]
        over = not _has_table(node) and any(alive[index] == needed for index in ending)
        peak = max(peak, together + (0 if over else needed))
        together += needed - sum(alive.pop(index) for index in ending)
        alive[node.output.index] = needed
    return peak


def chunk(tokens: int) -> int:
    """Tokens of the largest pass over `tokens` tokens of prompts."""
    return min(tokens, CHUNK)


def _bytes(value: Value, node: Node, sizes: dict[str, int]) -> int:
    """What a node's output takes; what the cache holds counts as cache."""
    if node.state is not None or any(isinstance(d, str) and d not in sizes for d in value.shape):
        return 0
    elements = prod(sizes[d] if isinstance(d, str) else d for d in value.shape)
    return elements * (_LOGIT_WIDTH if node.role is Role.HEAD else _WIDTH)


def _has_table(node: Node) -> bool:
    return any(len(weight.shape) > 1 for weight in node.weights)
