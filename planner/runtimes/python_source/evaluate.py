"""What a function of Python modules returns, as far as their text says it. Nothing is executed."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from trainplan.planner.runtimes.python_source.modules import Found, Module, found_in, imported
from trainplan.planner.runtimes.python_source.operations import (
    CHANGES,
    KINDS,
    METHODS,
    PLAIN,
    alongside,
    compared,
    default,
    dotted,
    is_key,
    is_open,
    item_of,
    leaves,
    line_of,
    operated,
    spoil,
    texts_of,
    tried,
    truth_of,
    unread_at,
)
from trainplan.planner.runtimes.python_source.values import Made, Raised, Symbol, Unread

DEEPEST = 40
"""Calls inside one another."""
MOST_STEPS = 200_000
"""Expressions and statements of one reading."""
ATTRIBUTES = ("getattr", "hasattr", "setattr")
CHANGED = "*"
"""Attribute of what a function changed that is not followed."""
KNOWN = ("in_fragments", "sized", "without_qk_norm")
"""Functions that our own exporter writes, whose calls say all."""


class _EndlessError(Exception):
    """A reading without end."""


@dataclass(frozen=True, slots=True)
class _Returned:
    value: object


def returned(
    module: Module,
    function: str,
    followed: Callable[[str], object],
    others: Callable[[str], Module | None] = lambda name: None,
) -> object:
    """What a function of the module returns; `followed` knows calls of other modules by name.

    `followed` gives null for a call that it does not know, which stays a `Made`; `others` gives the
    modules that are followed.
    """
    found = found_in(module, function, others)
    if found is None or not isinstance(found.node, ast.FunctionDef):
        return Unread(0, f"there is no {function}")
    try:
        return _Reader(followed, others).call(found, (), {}, 0)
    except (RecursionError, _EndlessError):
        return Unread(found.node.lineno, "expressions inside one another")


def defaults(made: Made, others: Callable[[str], Module | None]) -> Mapping[str, object]:
    """Attributes that were set, and those that the class of a dataclass gives the others."""
    at = _Frame(_Reader(lambda name: None, others), Module({}, {}, {}), {}, 0)
    names = [
        dotted(one.target)
        for kind in at.lineage(made.kind)
        for one in kind.node.body
        if isinstance(one, ast.AnnAssign) and one.value
    ]
    return {one: at.attribute(made, one, ast.Name(one, lineno=0)) for one in names} | made.named


@dataclass(slots=True)
class _Reader:
    followed: Callable[[str], object]
    others: Callable[[str], Module | None]
    steps: int = 0
    open: Unread | None = None
    """The branch that is read without knowing if it is taken: what it sets is not known."""

    def call(
        self, function: Found, first: Sequence[object], named: Mapping[str, object], depth: int
    ) -> object:
        """Run through the statements of a function, in order."""
        node = function.node
        if depth > DEEPEST or not isinstance(node, ast.FunctionDef):
            return Unread(node.lineno, f"{node.name}(...)")
        at = _Frame(self, function.module, {}, depth)
        order = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
        ends = zip(order[::-1], node.args.defaults[::-1], strict=False)
        only = zip((one.arg for one in node.args.kwonlyargs), node.args.kw_defaults, strict=True)
        at.names |= {one: Unread(node.lineno, one) for one in order}
        at.names |= {one: at.value(default) for one, default in ends}
        at.names |= {one: at.value(default) for one, default in only if default is not None}
        at.names |= {**dict(zip(order, first, strict=False)), **named}
        ended = at.run(node.body)
        return ended.value if ended else None


@dataclass(slots=True)
class _Frame:
    """Names of one call."""

    reader: _Reader
    module: Module
    names: dict[str, object]
    depth: int

    def run(self, body: Sequence[ast.stmt]) -> _Returned | None:
        """The statements, in order, up to what they return."""
        for statement in body:
            ended = self._statement(statement)
            if ended is not None:
                return ended
        return None

    def _step(self, *values: object) -> None:
        """Work is counted: one, and what a value holds."""
        self.reader.steps += 1 + sum(len(v) for v in values if isinstance(v, Sequence | dict | set))
        if self.reader.steps > MOST_STEPS:
            raise _EndlessError

    def _statement(self, statement: ast.stmt) -> _Returned | None:
        self._step()
        return STATEMENTS.get(type(statement), _Frame._branch)(self, statement)

    def _return(self, statement: ast.Return) -> _Returned:
        return _Returned(None if statement.value is None else self.value(statement.value))

    def _set(self, statement: ast.Assign) -> None:
        result = self.value(statement.value)
        for target in statement.targets:
            self._assign(target, result)

    def _annotated(self, statement: ast.AnnAssign) -> None:
        if statement.value is not None:
            self._assign(statement.target, self.value(statement.value))

    def _augmented(self, statement: ast.AugAssign) -> None:
        target, value = statement.target, self.value(statement.value)
        self._assign(target, operated(statement.op, self.value(target), value, target))

    def _alone(self, statement: ast.Expr) -> None:
        result = self.value(statement.value)
        if isinstance(result, Made) and is_open(result):  # called for what it changes
            for one in result.first:
                if isinstance(one, Made):
                    one.put(CHANGED, unread_at(statement.value), statement.lineno)

    def _inside(self, statement: ast.With | ast.Try) -> _Returned | None:
        return self.run(statement.body)

    def _raise(self, statement: ast.Raise) -> _Returned | None:
        if self.reader.open:  # a branch that stops is not one of a run
            return None
        return _Returned(Raised(statement.lineno, line_of(statement)))

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        package = self.module.name.rpartition(".")[0]
        for name, whole in imported(statement, package).items():
            self.names[name] = self._whole(whole, statement)

    def _nothing(self, statement: ast.stmt) -> None:
        """What changes no value."""

    def _if(self, statement: ast.If) -> _Returned | None:
        taken = truth_of(self.value(statement.test))
        if taken is not None:
            return self.run(statement.body if taken else statement.orelse)
        if isinstance(statement.body[-1], ast.Raise):  # one that starts does not come here
            return self.run(statement.orelse)
        return self._branch(statement)

    def _for(self, statement: ast.For) -> _Returned | None:
        over = self.value(statement.iter)
        known = isinstance(over, list | tuple | dict | set)
        if not known or statement.orelse or leaves(statement.body):
            return self._branch(statement)
        for item in list(over):  # type: ignore[call-overload]
            self._assign(statement.target, item)
            ended = self.run(statement.body)
            if ended is not None:
                return ended
        return None

    def _branch(self, statement: ast.stmt) -> _Returned | None:
        """What a branch or a loop sets is not known, whether it is taken or not."""
        outer, unread = self.reader.open, Unread(statement.lineno, line_of(statement))
        self.reader.open = outer or unread
        if isinstance(statement, ast.For):
            self._assign(statement.target, unread)
        parts = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        ended = [self.run(part) for part in parts]
        self.reader.open = outer
        return _Returned(unread) if any(ended) else None

    def _assign(self, target: ast.expr, value: object) -> None:
        value = self.reader.open or value
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Made):
                owner.put(target.attr, value, target.lineno)
        elif isinstance(target, ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            if isinstance(owner, dict) and is_key(key):
                owner[key] = value
        elif isinstance(target, ast.Tuple):
            parts: list[object] = [Unread(target.lineno, line_of(target))] * len(target.elts)
            if isinstance(value, list | tuple) and len(value) == len(parts):
                parts = list(value)
            for one, part in zip(target.elts, parts, strict=True):
                self._assign(one, part)

    def value(self, node: ast.expr) -> object:
        """What an expression stands for."""
        self._step()
        return EXPRESSIONS.get(type(node), _Frame._named)(self, node)

    def _constant(self, node: ast.Constant) -> object:
        return node.value

    def _list(self, node: ast.List) -> object:
        return list(self._listed(node.elts))

    def _tuple(self, node: ast.Tuple) -> object:
        return tuple(self._listed(node.elts))

    def _set_of(self, node: ast.Set) -> object:
        values = list(self._listed(node.elts))
        return set(values) if all(map(is_key, values)) else unread_at(node)

    def _unary(self, node: ast.UnaryOp) -> object:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub):
            return operated(ast.Sub(), 0, value, node)
        truth = truth_of(value) if isinstance(node.op, ast.Not) else None
        return unread_at(node) if truth is None else not truth

    def _binary(self, node: ast.BinOp) -> object:
        return operated(node.op, self.value(node.left), self.value(node.right), node)

    def _compared(self, node: ast.Compare) -> object:
        if len(node.ops) > 1:
            return unread_at(node)
        a, b = self.value(node.left), self.value(node.comparators[0])
        self._step(b)
        return compared(node.ops[0], a, b, node)

    def _chosen(self, node: ast.IfExp) -> object:
        truth = truth_of(self.value(node.test))
        if truth is None:
            return unread_at(node)
        return self.value(node.body if truth else node.orelse)

    def _item(self, node: ast.Subscript) -> object:
        return item_of(self.value(node.value), self.value(node.slice), node)

    def _listed(self, elts: Sequence[ast.expr]) -> Iterator[object]:
        for one in elts:
            value = self.value(one.value if isinstance(one, ast.Starred) else one)
            if isinstance(one, ast.Starred) and isinstance(value, list | tuple):
                self._step(value)
                yield from value
            else:
                yield value

    def _dict(self, node: ast.Dict) -> object:
        made: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            known, said = None if key is None else self.value(key), self.value(value)
            if key is None and isinstance(said, dict):
                self._step(said)
                made |= said
            elif key is not None and is_key(known):
                made[known] = said
            elif not isinstance(said, Unread):
                return unread_at(node)
        return made

    def _either(self, node: ast.BoolOp) -> object:
        """`a or b`, `a and b`: the first that decides, else the last."""
        value: object = None
        for one in node.values:
            value = self.value(one)
            truth = truth_of(value)
            if truth is None:
                return unread_at(node)
            if truth is isinstance(node.op, ast.Or):
                break
        return value

    def _comprehended(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> object:
        loop, *others = node.generators
        over = self.value(loop.iter)
        if others or not isinstance(over, list | tuple | dict | set):
            return unread_at(node)
        kept: list[object] = []
        inner = _Frame(self.reader, self.module, dict(self.names), self.depth)
        for item in over:
            inner._assign(loop.target, item)
            wanted = [truth_of(inner.value(one)) for one in loop.ifs]
            if None in wanted:
                return unread_at(node)
            if all(wanted):
                kept.append(inner.value(node.elt))
        return set(kept) if isinstance(node, ast.SetComp) and all(map(is_key, kept)) else kept

    def _named(self, node: ast.expr) -> object:
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return self.names[node.id]
            return self._global(self.module, node.id, node)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if isinstance(owner, Made):
                return self.attribute(owner, node.attr, node)
            if isinstance(owner, Symbol):
                return Symbol(node.lineno, f"{owner.text}.{node.attr}")
        return unread_at(node)

    def _global(self, module: Module, name: str, node: ast.expr, hops: int = 0) -> object:
        """A name of a module: a function, a value, or what is imported."""
        outside = module.values.get(name)
        if outside is not None and self.depth < DEEPEST:
            return _Frame(self.reader, module, {}, self.depth + 1).value(outside)
        found = found_in(module, name, self.reader.others)
        if found is not None:
            return found
        whole = module.names.get(name)
        if whole is None:
            return Unread(node.lineno, line_of(node))
        return self._whole(whole, node, hops)

    def _whole(self, whole: str, node: ast.AST, hops: int = 0) -> object:
        base, _, last = whole.rpartition(".")
        other = self.reader.others(base) if hops < DEEPEST else None
        line = getattr(node, "lineno", 0)
        if other is None or not isinstance(node, ast.expr | ast.stmt):
            return Symbol(line, whole)
        place = ast.copy_location(ast.Name(last), node)
        return self._global(other, last, place, hops + 1)

    def attribute(self, owner: Made, name: str, node: ast.expr) -> object:
        """What was set, or the default of the class."""
        if name in owner.named:
            return owner.named[name]
        for kind in self.lineage(owner.kind):
            for one in kind.node.body:
                if isinstance(one, ast.AnnAssign) and one.value and dotted(one.target) == name:
                    inner = _Frame(self.reader, kind.module, {}, self.depth + 1)
                    owner.named[name] = inner.value(default(one.value))
                    return owner.named[name]
        return unread_at(node)

    def lineage(self, kind: Found | None, depth: int = 0) -> Iterator[Found]:
        """The class and those it is derived from, as far as they are followed."""
        if kind is None or not isinstance(kind.node, ast.ClassDef) or depth > DEEPEST:
            return
        yield kind
        for base in kind.node.bases:
            yield from self.lineage(
                found_in(kind.module, dotted(base), self.reader.others), depth + 1
            )

    def _called(self, node: ast.Call) -> object:
        first = tuple(self._listed(node.args))
        named: dict[str, object] = {}
        for one in node.keywords:
            value = self.value(one.value)
            named |= {one.arg: value} if one.arg else texts_of(value)
        lines = {one.arg: one.value.lineno for one in node.keywords if one.arg}
        name = dotted(node.func)
        if name == "str" and len(node.args) == 1 and isinstance(first[0], Unread | Made):
            return alongside(node.args[0])
        if isinstance(node.func, ast.Attribute):
            done = self._method(node, node.func, first, named)
            if done is not None:
                return done.value
        target = None if name in KNOWN else self._named(node.func)
        if isinstance(target, Found) and isinstance(target.node, ast.FunctionDef):
            return self.reader.call(target, first, named, self.depth + 1)
        head, dot, tail = name.partition(".")
        whole = target.text if isinstance(target, Symbol) else ""
        whole = whole or f"{self.module.names.get(head, head)}{dot}{tail}"
        plain = self._plain(whole, first, named, node)
        if plain is not None:
            return plain.value
        known = self.reader.followed(whole)
        if known is not None:
            return known
        kind = target if isinstance(target, Found) else None
        if kind is not None:
            whole = f"{kind.module.name}.{kind.node.name}".lstrip(".")
        return Made(whole, node.lineno, named, first, lines, kind)

    def _method(
        self,
        node: ast.Call,
        func: ast.Attribute,
        first: tuple[object, ...],
        named: dict[str, object],
    ) -> _Returned | None:
        owner = self.value(func.value)
        if isinstance(owner, Made) and not isinstance(owner.named.get(func.attr), Found):
            made = Made(f"{owner.name}.{func.attr}", node.lineno, named, (owner, *first))
            return _Returned(made)
        if func.attr in METHODS.get(type(owner), ()) and not named:
            if func.attr in CHANGES and (
                self.reader.open or any(isinstance(one, Unread) for one in first)
            ):
                spoil(owner, self.reader.open or unread_at(node))
                return _Returned(None)
            self._step(owner, *first)
            return _Returned(tried(getattr(owner, func.attr), first, node))
        return None

    def _plain(
        self, name: str, first: tuple[object, ...], named: dict[str, object], node: ast.Call
    ) -> _Returned | None:
        """A function that every Python has."""
        if name in ATTRIBUTES and len(first) > 1:
            return _Returned(self._attributes(name, first, node))
        if name in ("isinstance", "typing.cast") and len(first) == 2:
            return _Returned(first[1] if "cast" in name else _is_instance(first[0], node))
        if name in PLAIN and not named and self.module.functions.get(name) is None:
            self._step(*first)
            return _Returned(tried(PLAIN[name], first, node))
        return None

    def _attributes(self, name: str, first: tuple[object, ...], node: ast.Call) -> object:
        """`getattr`, `hasattr`, `setattr`."""
        owner, attribute = first[:2]
        if not isinstance(owner, Made) or not isinstance(attribute, str):
            return unread_at(node)
        if name == "setattr":
            owner.put(attribute, self.reader.open or first[-1], node.lineno)
            return None
        found = self.attribute(owner, attribute, node)
        there = not isinstance(found, Unread) or isinstance(found, Symbol)
        if name == "hasattr":
            return True if there else found
        absent = owner.kind is not None and len(first) > 2 and not there
        return first[2] if absent else found


def _is_instance(value: object, node: ast.Call) -> object:
    kind = KINDS.get(dotted(node.args[1]))
    unknown = isinstance(value, Unread) or (kind is None and not isinstance(value, str))
    return unread_at(node) if unknown else bool(kind and isinstance(value, kind))


STATEMENTS: Mapping[type, Callable[[_Frame, Any], _Returned | None]] = MappingProxyType(
    {
        ast.Return: _Frame._return,
        ast.Assign: _Frame._set,
        ast.AnnAssign: _Frame._annotated,
        ast.AugAssign: _Frame._augmented,
        ast.Expr: _Frame._alone,
        ast.If: _Frame._if,
        ast.For: _Frame._for,
        ast.With: _Frame._inside,
        ast.Try: _Frame._inside,
        ast.Raise: _Frame._raise,
        ast.Import: _Frame._import,
        ast.ImportFrom: _Frame._import,
        ast.Assert: _Frame._nothing,
        ast.Pass: _Frame._nothing,
        ast.FunctionDef: _Frame._nothing,
        ast.ClassDef: _Frame._nothing,
    }
)
EXPRESSIONS: Mapping[type, Callable[[_Frame, Any], object]] = MappingProxyType(
    {
        ast.Constant: _Frame._constant,
        ast.List: _Frame._list,
        ast.Tuple: _Frame._tuple,
        ast.Set: _Frame._set_of,
        ast.Dict: _Frame._dict,
        ast.UnaryOp: _Frame._unary,
        ast.BinOp: _Frame._binary,
        ast.Compare: _Frame._compared,
        ast.BoolOp: _Frame._either,
        ast.IfExp: _Frame._chosen,
        ast.ListComp: _Frame._comprehended,
        ast.SetComp: _Frame._comprehended,
        ast.GeneratorExp: _Frame._comprehended,
        ast.Subscript: _Frame._item,
        ast.Call: _Frame._called,
    }
)
