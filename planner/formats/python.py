"""A configuration in Python as keys: its imports and what its module assigns. Nothing is run."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

DEEPEST = 30
"""Calls inside one another."""
MOST_NODES = 100_000
"""Of a syntax tree that are looked at."""
MOST_FUNCTIONS = 300
OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def python_keys(text: str) -> dict[str, Any]:
    """What a module says, as far as literals and calls by keyword do.

    Names that it assigns; `import`; and of all its functions, each the first that is said: `call`
    (arguments by keyword), `argument` (defaults), `set` (attributes); and the `functions` called.

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
    inside = _inside(list(islice(ast.walk(tree), MOST_NODES)), keys)
    return keys | ({"import": imported} if imported else {}) | inside


def _inside(nodes: Sequence[ast.AST], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Of all functions of a module."""
    arguments: dict[str, Any] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
            ends = zip(reversed(names), reversed(node.args.defaults), strict=False)
            only = zip(
                (one.arg for one in node.args.kwonlyargs), node.args.kw_defaults, strict=True
            )
            pairs = [*ends, *((name, one) for name, one in only if one is not None)]
            _first(arguments, {name: _value(one, keys, 0) for name, one in pairs})
    known = {**arguments, **keys}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if known.get(name) is None:
                known[name] = _value(node.value, known, 0)
    calls: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    functions: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Call):
            functions.append(_dotted(node.func))
            pairs = [(one.arg, one.value) for one in node.keywords if one.arg]
            _first(calls, {name: _value(one, known, 0) for name, one in pairs})
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            name = _dotted(node.targets[0]).partition(".")[2]
            _first(attributes, {name: _value(node.value, known, 0)})
    found = {"call": calls, "argument": arguments, "set": attributes}
    named = list(dict.fromkeys(one for one in functions if one))[:MOST_FUNCTIONS]
    return {name: one for name, one in found.items() if one} | (
        {"functions": named} if named else {}
    )


def _first(found: dict[str, Any], values: Mapping[str, object]) -> None:
    """Plain values that are not there yet."""
    for name, value in values.items():
        if isinstance(value, str | int | float) and name:
            found.setdefault(name, value)


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else ""


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
        case ast.Attribute():
            found = _dotted(node) or None
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
