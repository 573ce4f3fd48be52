"""`from trainplan import planner`: one page of names, imported when they are used."""

import ast
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainplan import planner

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/python-api.md").read_text(encoding="utf-8")
LIGHT = ("documents", "launchers", "plan", "runtimes", "schedules", "shell", "work")
"""Rooms below the searches; a command that writes a script, say, imports no search for it."""
SEARCHES = ("cases", "comparisons", "explanations", "goals", "launch_checks", "questions")


def checked_imports() -> dict[str, set[str]]:
    """Names that a type checker sees, by module."""
    tree = ast.parse((ROOT / "planner/__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {str(node.module): {alias.name for alias in node.names} for node in imports}


def loaded(statement: str) -> set[str]:
    """Modules that a statement imports in a fresh process."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_every_name_has_one_home():
    homes = [name for names in checked_imports().values() for name in names]
    assert sorted(homes) == sorted(planner.__all__)


@pytest.mark.parametrize("name", planner.__all__)
def test_a_name_is_told_in_the_module_and_on_the_page(name):
    assert re.search(rf"^{name}: |`{name}`", planner.__doc__, re.MULTILINE)
    assert f"`planner.{name}" in PAGE
    assert getattr(planner, name) is not None


def test_the_page_names_nothing_else():
    table = PAGE.partition("## Names of `planner`")[2].partition("\n## ")[0]
    assert {*re.findall(r"`planner\.(\w+)", table)} == {*planner.__all__}


def test_a_verb_stays_a_verb_when_rooms_are_imported():
    rooms = {room.name for room in pkgutil.iter_modules(planner.__path__)}
    assert rooms.isdisjoint(planner.__all__)
    assert callable(planner.compare)
    assert callable(planner.search)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        planner.serach  # noqa: B018


def test_names_are_listed_before_they_are_imported():
    assert {*planner.__all__} <= {*dir(planner)}


@pytest.mark.parametrize(
    ("statement", "ours"),
    [
        ("import trainplan", {"trainplan"}),
        ("from trainplan import planner", {"trainplan", "trainplan.planner"}),
    ],
)
def test_the_page_itself_imports_nothing(statement, ours):
    modules = loaded(statement)
    assert {name for name in modules if name.startswith("trainplan")} == ours
    assert modules.isdisjoint({"numpy", "pydantic"})


def test_a_search_prints_nothing_and_knows_no_terminal():
    code = (
        "import tests.unit.planner.test_typed_api as user\n"
        "user.test_a_search_is_typed_to_its_last_number()"
    )
    assert loaded(code).isdisjoint({"click", "rich", "mcp", "trainplan.cli"})


def test_light_rooms_import_no_search():
    modules = loaded("\n".join(f"import trainplan.planner.{room}" for room in LIGHT))
    assert modules.isdisjoint(f"trainplan.planner.{search}" for search in SEARCHES)
