"""A configuration in Python as keys: its imports and what its module assigns. Nothing is run."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

DEEPEST = 30
"""Calls inside one another."""
OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def python_keys(text: str) -> dict[str, Any]:
    """Names with their values, as far as literals and calls by keyword say them; `import`.

    Raises:
        ValueError: It is no Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None
    keys: dict[str, Any] = {}
    imported: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            _add(imported, *(one.name for one in node.names))
        elif isinstance(node, ast.ImportFrom) and not node.level:
            _add(imported, *(f"{node.module}.{one.name}" for one in node.names))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            keys[node.targets[0].id] = _value(node.value, keys, 0)
    return keys | ({"import": imported} if imported else {})


def _add(imported: dict[str, Any], *names: str) -> None:
    for name in names:
        at = imported
        for part in name.split("."):
            at = at.setdefault(part, {})


def _value(node: ast.expr, keys: Mapping[str, Any], depth: int) -> object:
    """Null: only a run would tell."""

    def inner(one: ast.expr) -> object:
        return _value(one, keys, depth + 1) if depth < DEEPEST else None

    found: object = None
    match node:
        case ast.Constant(value=str() | int() | float() | bool() as value):
            found = value
        case ast.Name(id=name):
            found = keys.get(name)
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            found = [inner(one) for one in elts]
        case ast.Dict(keys=names, values=values):
            pairs = zip(names, values, strict=True)
            found = {str(n.value): inner(v) for n, v in pairs if isinstance(n, ast.Constant)}
        case ast.Call(keywords=keywords):
            found = {one.arg: inner(one.value) for one in keywords if one.arg}
        case ast.BinOp(left=left, op=op, right=right):
            found = _operated(op, inner(left), inner(right))
    return found


def _operated(op: ast.operator, left: object, right: object) -> object:
    """Of numbers of a configuration alone."""
    numbers = (left, right)
    if not all(isinstance(one, int | float) and abs(one) < 2**40 for one in numbers):
        return None
    try:
        return OPERATIONS[type(op)](left, right)
    except (KeyError, ArithmeticError):
        return None
