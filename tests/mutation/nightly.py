"""Break the cost model and the planner in some places, one by one: do the tests notice?

A sample of all faults that Cosmic Ray knows, in a copy of the tree, for as long as the time lasts.
Survivors are shown with their differences; the exit status is 1 where fewer than the floor die.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db

ROOT = Path(__file__).parents[2]
CONFIG = "tests/mutation/cosmic-ray.toml"
LEAST_KILLED_PERCENT = 80
UNLIKELY = ("_BitOr", "_BitAnd", "_BitXor", "_LShift", "_RShift")
"""Operators on bits in the place of others: nobody writes them, and 2 ^ 1 is 2 + 1."""
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", "__pycache__", "out", "build", "dist"
)


def says_nothing(path: Path) -> list[ast.AST]:
    """Parts of a file that nothing runs: annotations, which are text here."""
    found: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            found.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
    return [node for node in found if node is not None]


def sampled(items: list, tree: Path, count: int, seed: int) -> list:
    """Some of the faults, in the order in which they are tried."""
    silent = {
        path: says_nothing(tree / path) for path in {i.mutations[0].module_path for i in items}
    }

    def runs(item) -> bool:
        fault = item.mutations[0]
        return not fault.operator_name.endswith(UNLIKELY) and not any(
            (node.lineno, node.col_offset)
            <= fault.start_pos
            < (node.end_lineno, node.end_col_offset)
            for node in silent[fault.module_path]
        )

    return random.Random(seed).sample([item for item in items if runs(item)], count)


def main() -> int:
    """Draw, try, report."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=5.0)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree, session = Path(folder) / "tree", str(Path(folder) / "session.sqlite")
        shutil.copytree(ROOT, tree, symlinks=True, ignore=NOT_COPIED)
        binaries = Path(sys.executable).parent
        path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
        env = os.environ | {"PATH": path, "PYTHONPATH": str(tree / ".editable"), "CI": "true"}

        def tool(name: str, *arguments: str, seconds: float | None = None) -> int:
            command = [str(binaries / name), *arguments]
            return subprocess.run(
                command, cwd=tree, env=env, timeout=seconds, check=False
            ).returncode

        # tests that fail without a fault would notice every fault
        if tool("cosmic-ray", "baseline", CONFIG) or tool("cosmic-ray", "init", CONFIG, session):
            return 1
        with use_db(session, WorkDB.Mode.open) as db:
            some = sampled(list(db.work_items), tree, wanted.count, wanted.seed)
            db.clear()
            db.add_work_items(some)
        try:
            tool("cosmic-ray", "exec", CONFIG, session, seconds=3600 * wanted.hours)
        except subprocess.TimeoutExpired:
            sys.stderr.write("time is up: the rate is that of the faults tried so far\n")
        tool("cr-report", "--surviving-only", "--show-diff", session)
        return tool("cr-rate", "--fail-over", str(100 - LEAST_KILLED_PERCENT), session)


if __name__ == "__main__":
    sys.exit(main())
