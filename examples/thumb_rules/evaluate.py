"""Rules of thumb of the runtimes' guides against the search, on thirty jobs.

python examples/thumb_rules/evaluate.py [--write]
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from scored_thumbs import scored
from thumb_jobs import jobs
from thumb_rules import RULES
from thumb_tables import document, table, write

Found = dict[str, dict[str, object]]


def of_job(name: str, rules: tuple[str, ...]) -> tuple[str, Found]:
    """Of every rule that speaks."""
    every = {rule.name: scored(rule, name) for rule in RULES if rule.name in rules}
    return name, {rule: one for rule, one in every.items() if one}


def main() -> None:
    """Score all, and write the results and the tables of the documentation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--job", action="append", choices=list(jobs()), metavar="NAME")
    parser.add_argument("--rule", action="append", choices=[rule.name for rule in RULES])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="results.json and the docs")
    request = parser.parse_args()
    if request.write and (request.job or request.rule):
        parser.error("--write needs all jobs and rules: leave out --job and --rule")
    names = request.job or list(jobs())
    rules = tuple(request.rule or [rule.name for rule in RULES])
    start, found = time.monotonic(), {}
    with ProcessPoolExecutor(request.processes) as pool:
        # the longest first: jobs with experts on many GPUs
        order = sorted(names, key=lambda name: -_work(name))
        for done in as_completed([pool.submit(of_job, name, rules) for name in order]):
            name, one = done.result()
            found[name] = one
            took = time.monotonic() - start
            sys.stderr.write(f"{len(found)} of {len(names)} jobs, {took:.0f} s: {name}\n")
    results = document({name: found[name] for name in names})
    if request.write:
        write(results)
    sys.stdout.write(table(results))


def _work(name: str) -> int:
    job = jobs()[name]
    return job.cluster.num_gpus * (10 if job.model.moe else 1)


if __name__ == "__main__":
    main()
