"""How far NVIDIA's dense recipes are from the optimum that a search proves.

python examples/recipe_court/optimum.py --bridge PATH [--write]

Every performance recipe of Megatron-Bridge for Llama 3 that starts and fits, by the recorded
verdicts: its step, the least step that any layout of its job can have (the lower bound of the
search, under the cost model) and the CPU time that the search took. Settings and memory margin are
those of the court. PATH is a checkout at the commit of the verdicts; `--write` keeps the facts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from court import HERE, recorded
from judge import checked, read
from recipes import PROJECTS

OPTIMA = HERE / "optimum.jsonl"
DENSE = frozenset({"llama3-8b", "llama3-70b", "llama3.1-405b"})
SECONDS = 60.0
"""Of one search; what is then not proved has a weaker bound."""
Row = dict[str, object]


def names() -> frozenset[str]:
    """Dense performance recipes of pretraining that fit."""
    return frozenset(
        str(row["recipe"])
        for row in recorded()
        if row["project"] == "Megatron-Bridge" and "/perf_recipes/" in str(row["path"])
        if row["task"] == "pretraining" and row.get("model") in DENSE and row.get("fits")
    )


def optima(root: Path) -> Iterator[Row]:
    """The facts of each."""
    wanted = names()
    recipes = [one for one in PROJECTS["bridge"].recipes(root) if one.name in wanted]
    os.chdir(root)
    for recipe in recipes:
        start = time.process_time()
        found = checked(read(recipe), SECONDS)
        took = time.process_time() - start
        if found.estimate is not None and found.optimum is not None:
            proof = found.optimum.certificate
            yield {
                "recipe": recipe.name,
                "step_s": round(found.estimate.step_time_s, 4),
                "bound_s": round(proof.lower_bound_s, 4),
                "proved": proof.optimal,
                "cpu_s": round(took, 1),
            }


def summary(rows: list[Row]) -> str:
    """What they come to, in one line."""
    over = median(float(str(row["step_s"])) / float(str(row["bound_s"])) - 1 for row in rows)
    took = median(float(str(row["cpu_s"])) for row in rows)
    proved = sum(row["proved"] is True for row in rows)
    return (
        f"{len(rows)} recipes, {100 * over:.1f} % above the lower bound at the median; {proved} "
        f"optima proved, in {took:.1f} s of CPU time at the median"
    )


def main() -> None:
    """Print the facts, and what they come to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bridge", type=Path, metavar="PATH", required=True)
    parser.add_argument("--write", action="store_true", help="optimum.jsonl")
    request = parser.parse_args()
    rows = []
    for row in optima(request.bridge.resolve()):
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    sys.stdout.write(summary(rows) + "\n")
    if request.write:
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        OPTIMA.write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
