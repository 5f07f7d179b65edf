"""A template's syntax tree with the budget in it.

Every loop turn and macro call counts a step; every printed value, joined text, slice, new
container and comparison passes through a counting filter. The names of those filters hold a
character that no template can write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from forwardpass.errors import TemplateError

TICK, PRINT, DATA, CONCAT, BUILD, TOUCH, SLICE = (
    f"@{name}" for name in ("tick", "print", "data", "concat", "build", "touch", "slice")
)
# Tests that look at a value's kind only.
_CHEAP_TESTS = frozenset({
    "defined", "undefined", "none", "boolean", "false", "true", "integer", "float", "number",
    "string", "mapping", "sequence", "iterable", "callable", "odd", "even",
})  # fmt: skip
_FORBIDDEN = (
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.Block,
)


def check_shape(tree: nodes.Template, max_depth: int) -> None:
    """Raises TemplateError where the template loads others or nests too deep."""
    for node, depth in _walk(tree):
        if isinstance(node, _FORBIDDEN):
            kind = type(node).__name__.lower()
            raise TemplateError(f"line {node.lineno}: {kind} is not for chat templates")
        if depth > max_depth:
            raise TemplateError(f"line {node.lineno}: nested deeper than {max_depth}")


def with_budget(tree: nodes.Template) -> nodes.Template:
    """The tree, rewritten in place."""
    _Rewriter().visit(tree)
    return tree


def _walk(tree: nodes.Node) -> Iterator[tuple[nodes.Node, int]]:
    waiting: list[tuple[nodes.Node, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        yield node, depth
        waiting.extend((child, depth + 1) for child in node.iter_child_nodes())


def _filter(value: nodes.Expr, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)


def _tick(line: int) -> nodes.Filter:
    return _filter(nodes.Const(1, lineno=line), TICK)


class _Rewriter(NodeTransformer):
    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        node = self.generic_visit(node)
        rewrite = _REWRITES.get(type(node))
        return node if rewrite is None else rewrite(node)


def _loop(node: nodes.For) -> nodes.Node:
    node.body.insert(0, nodes.ExprStmt(_tick(node.lineno), lineno=node.lineno))
    if node.test is not None:
        node.test = nodes.And(_tick(node.lineno), node.test, lineno=node.lineno)
    return node


def _macro(node: nodes.Macro | nodes.CallBlock) -> nodes.Node:
    node.body.insert(0, nodes.ExprStmt(_tick(node.lineno), lineno=node.lineno))
    return node


def _output(node: nodes.Output) -> nodes.Node:
    data = sum(len(child.data) for child in node.nodes if isinstance(child, nodes.TemplateData))
    node.nodes = [
        child if isinstance(child, nodes.TemplateData) else _filter(child, PRINT)
        for child in node.nodes
    ]
    if data:
        node.nodes.insert(0, _filter(nodes.Const(data, lineno=node.lineno), DATA))
    return node


def _concat(node: nodes.Concat) -> nodes.Node:
    return _filter(nodes.List(node.nodes, lineno=node.lineno), CONCAT)


def _container(node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
    is_target = isinstance(node, nodes.Tuple) and node.ctx != "load"
    return node if is_target or not node.items else _filter(node, BUILD)


def _compare(node: nodes.Compare) -> nodes.Node:
    node.expr = _filter(node.expr, TOUCH)
    return node


def _test(node: nodes.Test) -> nodes.Node:
    if node.name not in _CHEAP_TESTS:
        node.node = _filter(node.node, TOUCH)
    return node


def _slice(node: nodes.Getitem) -> nodes.Node:
    if not isinstance(node.arg, nodes.Slice):
        return node
    none = nodes.Const(None, lineno=node.lineno)
    ends = (node.arg.start, node.arg.stop, node.arg.step)
    return _filter(node.node, SLICE, *(none if end is None else end for end in ends))


_REWRITES: dict[type[nodes.Node], Callable[[Any], nodes.Node]] = {
    nodes.For: _loop,
    nodes.Macro: _macro,
    nodes.CallBlock: _macro,
    nodes.Output: _output,
    nodes.Concat: _concat,
    nodes.List: _container,
    nodes.Tuple: _container,
    nodes.Dict: _container,
    nodes.Compare: _compare,
    nodes.Test: _test,
    nodes.Getitem: _slice,
}
