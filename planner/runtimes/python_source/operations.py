"""Operations on values that are known; on others an `Unread` with the expression's line."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from trainplan.planner.runtimes.python_source.modules import Found
from trainplan.planner.runtimes.python_source.values import Made, Unread

LARGEST_NUMBER = 2**63
LONGEST = 10_000
"""Entries of a list and characters of a text that is made."""
Operation = Callable[..., object]
ARITHMETIC: Mapping[type, Operation] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Div: operator.truediv,
        ast.Mod: operator.mod,
    }
)
COMPARISONS: Mapping[type, Operation] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
        ast.In: lambda a, b: operator.contains(b, a),
        ast.NotIn: lambda a, b: not operator.contains(b, a),
    }
)
METHODS: Mapping[type, frozenset[str]] = MappingProxyType(
    {
        str: frozenset({"lower", "upper", "strip", "split", "startswith", "endswith"}),
        dict: frozenset({"get", "items", "keys", "values", "copy", "pop", "update"}),
        list: frozenset({"append", "extend", "copy", "index", "count", "insert"}),
    }
)
"""Methods that are called, on values that are known."""
CHANGES = frozenset({"append", "extend", "insert", "pop", "update"})
KINDS = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
PLAIN: Mapping[str, Callable[..., object]] = MappingProxyType(
    {
        **KINDS,
        "tuple": tuple,
        "set": set,
        "len": len,
        "min": min,
        "max": max,
        "sum": sum,
        "any": any,
        "all": all,
        "abs": abs,
        "divmod": divmod,
        "round": round,
        "sorted": sorted,
        "enumerate": lambda *a: list(enumerate(*a)),
        "zip": lambda *a: list(zip(*a, strict=False)),
        "range": lambda *a: list(range(*a)) if len(range(*a)) <= LONGEST else None,
    }
)


def spoil(owner: object, unread: Unread) -> None:
    """A collection that was changed in a way that only a run would tell."""
    if isinstance(owner, list):
        owner.append(unread)
    elif isinstance(owner, dict):
        owner["?"] = unread


def tried(function: Callable[..., object], first: Sequence[object], node: ast.expr) -> object:
    """The result on values that are known."""
    if any(isinstance(one, Unread) for one in first):
        return unread_at(node)
    try:
        result = function(*first)
    except (TypeError, ValueError, LookupError, ArithmeticError, RecursionError):
        return unread_at(node)
    if type(result).__name__ in ("dict_keys", "dict_values", "dict_items"):
        return list(result)  # type: ignore[call-overload]
    return result


def truth_of(value: object) -> bool | None:
    """Of a condition; null: only a run would tell. What a constructor makes is true."""
    if isinstance(value, Unread) or is_open(value):
        return None
    return True if isinstance(value, Made | Found) else bool(value)


def is_open(value: object) -> bool:
    """Is it the result of a function that is not followed?"""
    if not isinstance(value, Made) or value.kind is not None:
        return False
    return not value.name.rpartition(".")[2][:1].isupper()


def is_key(value: object) -> bool:
    """May it be compared, and be a key? Scalars and tuples of them."""
    parts = value if isinstance(value, tuple) else (value,)
    return all(isinstance(one, str | int | float | None) for one in parts)


def texts_of(value: object) -> dict[str, object]:
    """Entries under texts: keyword arguments."""
    named = value.items() if isinstance(value, dict) else ()
    return {key: one for key, one in named if isinstance(key, str)}


def default(node: ast.expr) -> ast.expr:
    """Of a field of a dataclass: what its `default` or `default_factory` gives."""
    if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] != "field":
        return node
    for one in node.keywords:
        if one.arg == "default":
            return one.value
        if one.arg == "default_factory":
            made = ast.Call(one.value, [], [])
            return (
                one.value.body
                if isinstance(one.value, ast.Lambda)
                else ast.copy_location(made, node)
            )
    return node


def item_of(owner: object, key: object, node: ast.expr) -> object:
    """`owner[key]`."""
    known = isinstance(owner, dict) or (isinstance(owner, list | tuple | str) and type(key) is int)
    if known and is_key(key):
        try:
            return owner[key]  # type: ignore[index]
        except (LookupError, TypeError):
            return unread_at(node)
    return unread_at(node)


def compared(op: ast.cmpop, a: object, b: object, node: ast.expr) -> object:
    """`a op b`, of scalars, or of one in a collection."""
    none = (a is None or b is None) and isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
    if none and not any(isinstance(one, Unread) or is_open(one) for one in (a, b)):
        return COMPARISONS[type(op)](a, b)
    inside = isinstance(op, ast.In | ast.NotIn) and isinstance(b, str | list | tuple | set | dict)
    if not is_key(a) or not (inside or is_key(b)):
        return unread_at(node)
    if inside and any(isinstance(one, Unread) for one in b):  # type: ignore[attr-defined]
        return unread_at(node)
    try:
        return COMPARISONS[type(op)](a, b)
    except TypeError:
        return unread_at(node)


def operated(op: ast.operator, a: object, b: object, node: ast.expr) -> object:
    """`a op b`, within bounds of size."""
    size = sum(len(one) if isinstance(one, list | tuple | str) else 0 for one in (a, b))
    times = max((one for one in (a, b) if isinstance(one, int)), default=1)
    fits = isinstance(a, int | float | list | tuple | str) and not isinstance(op, ast.Mod)
    fits = fits or (isinstance(a, int | float) and isinstance(b, int | float))
    if not fits or not isinstance(b, int | float | list | tuple | str) or size * times > LONGEST:
        return unread_at(node)
    try:
        result = ARITHMETIC[type(op)](a, b)
    except (ArithmeticError, ValueError, TypeError, KeyError):
        return unread_at(node)
    large = isinstance(result, int | float) and abs(result) >= LARGEST_NUMBER
    return unread_at(node) if large else result


def alongside(node: ast.expr) -> object:
    """A file in the folder of the module: `str(Path(__file__).with_name("x"))`."""
    match node:
        case ast.Call(
            func=ast.Attribute(
                value=ast.Call(func=ast.Name(id="Path"), args=[ast.Name(id="__file__")]),
                attr="with_name",
            ),
            args=[ast.Constant(value=str() as name)],
        ):
            return name
    return unread_at(node)


def leaves(body: Sequence[ast.stmt]) -> bool:
    """Does a loop end before its last?"""
    return any(isinstance(node, ast.Break | ast.Continue) for one in body for node in ast.walk(one))


def unread_at(node: ast.expr) -> Unread:
    """An expression that is not read."""
    return Unread(node.lineno, line_of(node))


def dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def line_of(node: ast.AST) -> str:
    """The first line of the text of a node, as Python would print it."""
    try:
        text = ast.unparse(node).split("\n", 1)[0]
    except RecursionError:
        return "an expression"
    return text if len(text) <= 60 else text[:60] + "..."
