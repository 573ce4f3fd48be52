"""Formulas, searches and commands ask a runtime what it does, never what it is called."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainplan.costmodel.runtimes.registry import RUNTIMES

ROOT = Path(__file__).parents[2]
PACKAGES = ("costmodel", "planner", "profiler", "cli")
OWN = {"runtimes", "launchers", "methods", "shell"}
"""Folders with a module of each runtime, the registry of them, and the programs that start them."""
WRITTEN = {"names.py"}
"""`cli.options.names`, which `make docs` writes from the registries."""
RUN_TABLES = {"importers", "formats"}
"""Where files and logs of other programs are read: a published run names its runtime."""
DEFAULTS = {"job.py": {"megatron-lm"}, "profile.py": {"torch-eager"}}
"""Modules of `spec` where a field that names a runtime has its default."""


def allowed(path: Path) -> set[str]:
    parts = {*path.relative_to(ROOT).parts}
    if parts & (OWN | RUN_TABLES | WRITTEN):
        return {*RUNTIMES}
    return DEFAULTS.get(path.name, set()) if "spec" in parts else set()


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
