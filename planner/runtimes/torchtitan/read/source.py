"""What a function of a Python module returns, as far as its text says it. Nothing is executed.

Literals, arithmetic of numbers, names, attributes that are set, calls of constructors and of plain
functions of the same module are followed; all else is an `Unread` with its line.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DEEPEST = 8
"""Calls of functions of the module inside one another."""
LARGEST_TEXT = 1_000_000
"""Characters of a module that is still parsed."""
LARGEST_NUMBER = 2**63
ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.FloorDiv: operator.floordiv,
        ast.Div: operator.truediv,
    }
)


@dataclass(frozen=True, slots=True)
class Unread:
    """A value that only a run would tell."""

    line: int
    text: str


@dataclass(slots=True)
class Made:
    """A call that is not followed: its name, whole, and its arguments; attributes may be set."""

    name: str
    line: int
    named: dict[str, object] = field(default_factory=dict)
    first: tuple[object, ...] = ()
    lines: dict[str, int] = field(default_factory=dict)
    """Where each named argument stands."""

    def put(self, name: str, value: object, line: int) -> None:
        """Set an attribute."""
        self.named[name], self.lines[name] = value, line


@dataclass(frozen=True, slots=True)
class Module:
    """Functions of a module and what its names stand for."""

    functions: Mapping[str, ast.FunctionDef]
    names: Mapping[str, str]
    """Whole names of what is imported."""
    values: Mapping[str, ast.expr]
    """What is assigned outside functions."""


def module_of(text: str) -> Module:
    """The module of a text.

    Raises:
        ValueError: It is no Python, or too long; the message says where.
    """
    if len(text) > LARGEST_TEXT:
        raise ValueError(f"more than {LARGEST_TEXT} characters")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError):
        raise ValueError("expressions inside one another without end") from None
    functions: dict[str, ast.FunctionDef] = {}
    names: dict[str, str] = {}
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= _imported(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
    return Module(functions, names, values)


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    if isinstance(node, ast.Import):
        return {one.asname: one.name for one in node.names if one.asname}
    base = f"{'.' * node.level}{node.module or ''}"
    joint = "" if base.endswith(".") else "."
    return {one.asname or one.name: f"{base}{joint}{one.name}" for one in node.names}


def returned(module: Module, function: str, followed: Callable[[str], object]) -> object:
    """What a function of the module returns; `followed` knows calls of other modules by name.

    `followed` gives null for a call that it does not know, which stays a `Made`.
    """
    try:
        return _Reader(module, followed).call(module.functions[function], {}, 0)
    except RecursionError:
        return Unread(module.functions[function].lineno, "expressions inside one another")


@dataclass(slots=True)
class _Reader:
    module: Module
    followed: Callable[[str], object]

    def call(self, function: ast.FunctionDef, given: Mapping[str, object], depth: int) -> object:
        """Run through the statements of a function, in order."""
        names = dict(given)
        for statement in function.body:
            if isinstance(statement, ast.Return):
                value = statement.value
                return None if value is None else self.value(value, names, depth)
            if _may_return(statement):
                return Unread(statement.lineno, _line(statement))
            self._statement(statement, names, depth)
        return None

    def _statement(self, statement: ast.stmt, names: dict[str, object], depth: int) -> None:
        match statement:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self.value(value, names, depth), names, depth)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self.value(value, names, depth), names, depth)
            case ast.Expr(value=value):
                self.value(value, names, depth)
            case ast.Assert() | ast.Pass() | ast.AnnAssign():
                pass
            case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef():
                pass
            case _:
                self._branch(statement, names, depth)

    def _branch(self, statement: ast.stmt, names: dict[str, object], depth: int) -> None:
        """What a branch or a loop sets is not known, whether it is taken or not."""
        unread = Unread(statement.lineno, _line(statement))
        for node in ast.walk(statement):
            targets: list[ast.expr] = []
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
                targets = [node.target]
            for target in targets:
                self._assign(target, unread, names, depth)

    def _assign(
        self, target: ast.expr, value: object, names: dict[str, object], depth: int
    ) -> None:
        if isinstance(target, ast.Name):
            names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value, names, depth)
            if isinstance(owner, Made):
                owner.put(target.attr, value, target.lineno)
        elif isinstance(target, ast.Tuple):
            for one in target.elts:
                self._assign(one, Unread(target.lineno, _line(target)), names, depth)

    def value(self, node: ast.expr, names: Mapping[str, object], depth: int) -> object:
        """What an expression stands for."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=elts) | ast.Tuple(elts=elts):
                return [self.value(one, names, depth) for one in elts]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _number(operator.sub, 0, self.value(operand, names, depth), node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                a, b = self.value(left, names, depth), self.value(right, names, depth)
                return _number(ARITHMETIC[type(op)], a, b, node)
            case ast.Call():
                return self._called(node, names, depth)
            case _:
                return self._named(node, names, depth)

    def _named(self, node: ast.expr, names: Mapping[str, object], depth: int) -> object:
        if isinstance(node, ast.Name):
            if node.id in names:
                return names[node.id]
            outside = self.module.values.get(node.id)
            if outside is not None and depth < DEEPEST:
                return self.value(outside, {}, depth + 1)
        elif isinstance(node, ast.Attribute):
            owner = self._named(node.value, names, depth)
            if isinstance(owner, Made) and node.attr in owner.named:
                return owner.named[node.attr]
        return Unread(node.lineno, _line(node))

    def _called(self, node: ast.Call, names: Mapping[str, object], depth: int) -> object:
        name = _dotted(node.func)
        if name == "str" and len(node.args) == 1:
            return self._alongside(node.args[0])
        first = tuple(self.value(one, names, depth) for one in node.args)
        named = {k.arg: self.value(k.value, names, depth) for k in node.keywords if k.arg}
        lines = {k.arg: k.value.lineno for k in node.keywords if k.arg}
        own = self.module.functions.get(name)
        if own is not None and name not in KNOWN and depth < DEEPEST:
            order = [one.arg for one in own.args.args]
            given = {**dict(zip(order, first, strict=False)), **named}
            return self.call(own, given, depth + 1)
        head, dot, tail = name.partition(".")
        whole = f"{self.module.names.get(head, head)}{dot}{tail}"
        known = self.followed(whole)
        return Made(whole, node.lineno, named, first, lines) if known is None else known

    def _alongside(self, node: ast.expr) -> object:
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
        return Unread(node.lineno, _line(node))


def _may_return(statement: ast.stmt) -> bool:
    """Does a branch or a loop end the function, if it is taken?"""
    own = isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
    return not own and any(isinstance(node, ast.Return) for node in ast.walk(statement))


KNOWN = ("sized", "without_qk_norm")
"""Functions that our own exporter writes, whose calls say all."""


def _number(op: Callable[[float, float], float], a: object, b: object, node: ast.expr) -> object:
    unread = Unread(node.lineno, _line(node))
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return unread
    try:
        result = op(a, b)
    except (ArithmeticError, ValueError):
        return unread
    return result if abs(result) < LARGEST_NUMBER else unread


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of such an expression; empty for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((node.id, *reversed(parts)))


def _line(node: ast.AST) -> str:
    """The first line of the text of a node, as Python would print it."""
    try:
        text = ast.unparse(node).split("\n", 1)[0]
    except RecursionError:
        return "an expression"
    return text if len(text) <= 60 else text[:60] + "..."
