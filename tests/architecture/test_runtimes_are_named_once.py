"""Formulas, searches and commands ask a runtime what it does, never what it is called."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainplan.costmodel.runtimes.registry import RUNTIMES

ROOT = Path(__file__).parents[2]
PACKAGES = ("costmodel", "planner", "profiler", "cli")
OWN = {"runtimes", "launchers", "methods.py", "shell"}
"""Folders with a module of each runtime, the registry of them, and the programs that start them;
the table of published methods, some of which are runtimes, too."""
WRITTEN = {"names.py"}
"""`cli.options.names`, which `make docs` writes from the registries."""
RUN_TABLES = {"importers", "formats"}
"""Where files and logs of other programs are read: a published run names its runtime."""
DEFAULTS = {
    Path("costmodel/job/job.py"): {"megatron-lm"},
    Path("costmodel/profiles/profile.py"): {"torch-eager"},
}
"""Modules where a field that names a runtime has its default."""


def allowed(path: Path) -> set[str]:
    inside = path.relative_to(ROOT)
    if {*inside.parts} & (OWN | RUN_TABLES | WRITTEN):
        return {*RUNTIMES}
    return DEFAULTS.get(inside, set())


def named(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    yield from (f"{path}:{one.lineno}: {one.value}" for one in constants if one.value in RUNTIMES)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_holds_the_name_of_a_runtime(package):
    paths = [*(ROOT / package).rglob("*.py")]
    assert paths
    found = [
        one for path in paths for one in named(path) if one.rpartition(" ")[2] not in allowed(path)
    ]
    assert found == []


def test_names_are_seen(tmp_path):
    path = tmp_path / "leak.py"
    path.write_text('def slow(job):\n    """As megatron-lm."""\n    return job.runtime == "nemo"\n')
    assert [*named(path)] == [f"{path}:3: nemo"]
