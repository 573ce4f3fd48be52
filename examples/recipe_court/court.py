"""Every public recipe of five projects read, judged and priced as `plan check` does; nothing runs.

python examples/recipe_court/court.py --bridge PATH --megatron PATH --torchtitan PATH --primus PATH
    --maxtext PATH [--write]

A path is a checkout; its commit is asked of git, or of a file COMMIT in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from judge import Row, verdict_row
from page import page, table
from recipes import PROJECTS, Recipe

HERE = Path(__file__).resolve().parent
VERDICTS, REPRODUCED = HERE / "verdicts.jsonl", HERE / "reproduced.json"
README = HERE / "README.md"
PAGE = HERE.parent.parent / "docs" / "recipe-court.md"


def main() -> None:
    """Judge all, and write the facts and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in PROJECTS:
        parser.add_argument(f"--{name}", type=Path, metavar="PATH")
    parser.add_argument("--only", default="", help="recipes whose names hold this")
    parser.add_argument("--seconds", type=float, default=1.0, help="search of each recipe")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="verdicts.jsonl and the page")
    parser.add_argument("--page", action="store_true", help="the page of the recorded verdicts")
    request = parser.parse_args()
    if request.page:
        _write(recorded())
        return
    roots = {name: getattr(request, name) for name in PROJECTS if getattr(request, name)}
    rows = _rows(roots, request.only, request.seconds, request.processes)
    if request.write:
        if request.only or set(roots) != set(PROJECTS):
            parser.error("--write needs all five checkouts and no --only")
        lines = (json.dumps(row, ensure_ascii=False) for row in rows)
        VERDICTS.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        _write(rows)
    else:
        for row in rows:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write(rows: list[Row]) -> None:
    PAGE.write_text(page(rows, reproduced()), encoding="utf-8")
    README.write_text(table(rows), encoding="utf-8")


def recorded() -> list[Row]:
    """The committed verdicts."""
    return [json.loads(line) for line in VERDICTS.read_text("utf-8").splitlines()]


def reproduced() -> dict[str, dict[str, str]]:
    """By what each refusal was seen in the runtime's own validation."""
    found: dict[str, dict[str, str]] = json.loads(REPRODUCED.read_text("utf-8"))
    return found


def _rows(roots: dict[str, Path], only: str, seconds: float, processes: int) -> list[Row]:
    todo: list[tuple[Recipe, str, dict[str, str]]] = []
    for name, root in roots.items():
        project = PROJECTS[name]
        facts = {
            "repository": project.repository,
            "commit": _commit(root),
            "licence": project.licence,
        }
        recipes = [one for one in project.recipes(root) if only in one.name]
        todo += [(one, str(root.resolve()), facts) for one in recipes]
    rows: list[Row] = [{} for _ in todo]
    start = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        tasks = {
            pool.submit(verdict_row, recipe, root, seconds): place
            for place, (recipe, root, _) in enumerate(todo)
        }
        for count, done in enumerate(as_completed(tasks), 1):
            place = tasks[done]
            rows[place] = done.result() | todo[place][2]
            if count % 50 == 0 or count == len(todo):
                took = time.monotonic() - start
                sys.stderr.write(f"{count} of {len(todo)} recipes, {took:.0f} s\n")
    return rows


def _commit(root: Path) -> str:
    own = root / "COMMIT"
    if own.is_file():
        return own.read_text("utf-8").strip()
    words = ["git", "-C", str(root), "rev-parse", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
