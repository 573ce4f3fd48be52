"""Imports that wait until a command answers."""

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from trainplan.cli.commands import COMMANDS
from trainplan.cli.terminal.lazily import Later, imported_on_answer, load

PROGRAM = """
with imported_on_answer():
    from statistics import fmean as mean
    from xml import sax
"""


def test_names_wait_and_are_loaded_once():
    module = ModuleType("some_command")
    vars(module)["imported_on_answer"] = imported_on_answer
    exec(PROGRAM, vars(module))  # as a command's module runs
    assert module.mean == Later("statistics", "fmean")
    load(module)
    assert module.mean((1.0, 3.0)) == 2.0
    assert isinstance(module.sax, ModuleType)
    module.mean = max
    load(module)
    assert module.mean is max  # what a test puts there stays


def test_imports_are_as_ever_after_an_error():
    with pytest.raises(ZeroDivisionError), imported_on_answer():
        1 / 0  # noqa: B018
    from statistics import fmean  # noqa: PLC0415

    assert callable(fmean)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_what_waits_has_one_meaning_and_no_use_before(command):
    module = import_module(f"trainplan.cli.commands.{command.module}")
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    blocks = [one for one in tree.body if isinstance(one, ast.With)]
    waiting = {alias.asname or alias.name for block in blocks for alias in _imported(block.body)}
    assert waiting.isdisjoint(alias.asname or alias.name for alias in _imported(tree.body))
    assert waiting.isdisjoint(one.id for node in tree.body for one in _run_at_import(node))


def _imported(body):
    nodes = (one for one in body if isinstance(one, ast.Import | ast.ImportFrom))
    return [alias for node in nodes for alias in node.names]


def _run_at_import(node):
    """Names that are looked up before a command answers."""
    match node:
        case ast.FunctionDef(
            decorator_list=first, args=ast.arguments(defaults=some, kw_defaults=more)
        ):
            run = [*first, *some, *(one for one in more if one)]
        case ast.ClassDef(decorator_list=first, bases=bases):
            run = [*first, *bases]
        case (
            ast.Assign(value=value)
            | ast.AnnAssign(value=ast.expr() as value)
            | ast.Expr(value=value)
        ):
            run = [value]
        case _:
            run = []
    return [one for part in run for one in ast.walk(part) if isinstance(one, ast.Name)]
