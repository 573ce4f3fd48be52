"""Modules parsed, and where a name of one leads through its imports. Nothing is imported."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

LARGEST_TEXT = 1_000_000
"""Characters of a module that is still parsed."""
FARTHEST = 40
"""Imports of imports."""


@dataclass(frozen=True, slots=True)
class Module:
    """Functions and classes of a module and what its names stand for."""

    functions: Mapping[str, ast.FunctionDef]
    names: Mapping[str, str]
    """Whole names of what is imported; of `*` under the module's own name."""
    values: Mapping[str, ast.expr]
    """What is assigned outside functions."""
    classes: Mapping[str, ast.ClassDef] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A function or a class, and the module that its names are of."""

    module: Module
    node: ast.FunctionDef | ast.ClassDef


@lru_cache(maxsize=256)
def module_of(text: str, name: str = "", *, package: bool = False) -> Module:
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
    classes: dict[str, ast.ClassDef] = {}
    names: dict[str, str] = {}
    values: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= imported(node, name if package or not name else name.rpartition(".")[0])
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            values[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            values[node.target.id] = node.value
    return Module(functions, names, values, classes, name)


def imported(node: ast.Import | ast.ImportFrom, package: str) -> dict[str, str]:
    """Names that a statement brings, and what each stands for."""
    if isinstance(node, ast.Import):
        heads = {one.name.partition(".")[0] for one in node.names if not one.asname}
        return {one: one for one in heads} | {o.asname: o.name for o in node.names if o.asname}
    base = f"{'.' * node.level}{node.module or ''}"
    if node.level and package:
        parts = package.split(".")[: len(package.split(".")) + 1 - node.level]
        base = ".".join([*parts, *([node.module] if node.module else [])])
    joint = "" if base.endswith(".") else "."
    return {
        base if one.name == "*" else one.asname or one.name: f"{base}{joint}{one.name}"
        for one in node.names
    }


def found_in(
    module: Module, name: str, others: Callable[[str], Module | None], depth: int = 0
) -> Found | None:
    """The function or the class that a name of a module stands for, through its imports."""
    own = module.functions.get(name) or module.classes.get(name)
    if own is not None:
        return Found(module, own)
    if depth > FARTHEST:
        return None
    whole = module.names.get(name, "")
    bases = [whole.rpartition(".")] if whole else []
    stars = (one for one in module.names.values() if one.endswith(".*"))
    bases += [(one.removesuffix(".*"), "", name) for one in stars]
    for base, _, last in bases:
        other = others(base)
        found = found_in(other, last, others, depth + 1) if other else None
        if found is not None:
            return found
    return None
