"""Attack the proofs of the search for some time: `python -m tests.attack.run --seconds 3600`.

Prints what it finds, with the seed that finds it again; the exit status is 1 if there is anything.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from random import Random

from tests.attack.attack import climb, exhaust, figures_hold, loosen, walk
from tests.attack.declared import Tally
from tests.attack.jobs import EXPERTS, KNOWN, LONG, OBJECTIVES, Case, random_case
from tests.attack.target import Target
from tests.budgets import Until
from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.plan.plan import Plan
from trainplan.planner.plan.target import Name
from trainplan.planner.questions.best_plan import search
from trainplan.planner.work import Budget

SEARCH_SECONDS, STOPPED_SECONDS = 60.0, 5.0
"""Some searches are stopped early: what they know by then has to hold, too."""
CLIMB_STEPS = 200


def target_of(case: Case, objective: Name, budget: Budget) -> Target | None:
    """The answer to attack; None where there is none."""
    job, options = case.job, case.options(objective)
    try:
        found = search(job, options, budget)
    except SpecError:  # no layout is in time, or legal
        return None
    return Target(job, found, options) if isinstance(found, Plan) else None


def findings(seed: int, tally: Tally) -> Iterator[str]:
    """What one seed finds."""
    random = Random(seed)
    published = (*KNOWN, *EXPERTS, *LONG)
    known = seed % 3 == 0
    case = published[seed // 3 % len(published)] if known else random_case(random)
    objective = "time" if random.random() < 0.5 else random.choice(OBJECTIVES)
    target = target_of(case, objective, Until(random.choice((SEARCH_SECONDS, STOPPED_SECONDS))))
    if target is None:
        return
    yield from figures_hold(target)
    yield from climb(target, random, CLIMB_STEPS // (2 if known else 4))
    yield from walk(target, random, 5)
    yield from loosen(target, random, Until(SEARCH_SECONDS))
    if not known and objective == "time":
        yield from exhaust(target, random)
    tally.join(target.tally)


def main() -> int:
    """Attack until the time is over."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    options = parser.parse_args()
    end, seed, found = time.monotonic() + options.seconds, options.seed, 0
    tally = Tally()
    while time.monotonic() < end:
        for finding in findings(seed, tally):
            found += 1
            print(f"seed {seed}: {finding}", flush=True)  # noqa: T201 (its result)
        seed += 1
    print(f"seeds {options.seed} to {seed - 1}: {found} findings", flush=True)  # noqa: T201
    print(*tally.lines(), sep="\n", flush=True)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
