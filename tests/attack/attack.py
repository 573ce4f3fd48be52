"""One attack by its number, and an hour of them: `python tests/attack/attack.py --seconds 3600`."""

import sys
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.attack import jobs
from tests.attack.claims import Question
from tests.attack.monotone import contradictions
from trainplan.costmodel.base import PlanError
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions.search import search
from trainplan.planner.space import parse_choice

OBJECTIVES = ("time", "time", "time", "cost", "energy", "gpus", "memory")
HELD = ((), (), ("pp=2",), ("pp=4",), ("pp=2", "vpp=2"), ("pp=4", "vpp=2"), ("pp=2", "vpp=3"))
"""What the user fixes: small jobs are rarely pipelined of themselves."""
DAYS = 3650.0
"""A deadline of the runs for which the fewest GPUs are asked."""


def attack(number: int, tries: int) -> Iterator[str]:
    """What contradicts the answer of a job; the number says which, and how it is attacked."""
    random = Random(number)
    objective = OBJECTIVES[number % len(OBJECTIVES)]
    deadline = DAYS if objective == "gpus" else None
    fix = tuple(parse_choice(text, excluded=False) for text in random.choice(HELD))
    options = SearchOptions(objective=objective, deadline_days=deadline, top=3, fix=fix)
    question = Question(jobs.job(random), options, random)
    try:
        plan = search(question.job, options)
    except PlanError:
        return
    if not isinstance(plan, Plan):
        return
    yield from question.refutations(plan, tries)
    if objective == "time":
        yield from contradictions(question, plan)


def main() -> int:
    """Attack until the time is over; the exit status is 1 where a claim is false."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tries", type=int, default=2000)
    asked = parser.parse_args()
    first = number = asked.seed * 1_000_000
    end, false = time.monotonic() + asked.seconds, 0
    while time.monotonic() < end:
        for found in attack(number, asked.tries):
            false += 1
            sys.stdout.write(f"attack {number}: {found}\n")
        number += 1
    sys.stdout.write(f"{number - first} jobs attacked, {false} claims found false\n")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
