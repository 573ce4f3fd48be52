"""Help pages beside `plan --help`: `pytest tests/benchmarks --benchmark-only`."""

import resource
import subprocess

import pytest

from tests.e2e.command import PLAN
from trainplan.cli.commands import COMMANDS

ROUNDS = 10
ANSWERS = [*((name, "--help") for name in COMMANDS), ("doctor",)]


def cpu_seconds(*arguments: str) -> float:
    """User and system seconds of a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*PLAN, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", ANSWERS, ids=" ".join)
def test_help_speed(benchmark, arguments):
    """In turn, so that a busy machine slows both; the least of each, for nothing makes it less."""
    found: dict[tuple[str, ...], list[float]] = {arguments: [], ("--help",): []}

    def both():
        for one, seconds in found.items():
            seconds.append(cpu_seconds(*one))

    benchmark.pedantic(both, rounds=ROUNDS, warmup_rounds=1)
    ratio = min(found[arguments]) / min(found["--help",])
    benchmark.extra_info["times_plan_help"] = round(ratio, 2)
    assert ratio <= 2
