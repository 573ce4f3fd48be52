"""A small search from a cold start: `pytest tests/benchmarks --benchmark-only`, on an idle core."""

from tests.benchmarks.test_help_speed import ROUNDS, cpu_seconds

JOB = (
    *("--model", "llama3-8b", "--cluster", "1x8:h100-sxm"),
    *("--global-batch-size", "64", "--seq-length", "8192"),
)
MOST_SECONDS = 1.5
"""Of a processor, all processes together: a wait that is not noticed."""


def test_search_speed(benchmark):
    """The least of some, for nothing makes it less."""
    found = []
    benchmark.pedantic(
        lambda: found.append(cpu_seconds("search", *JOB)), rounds=ROUNDS, warmup_rounds=1
    )
    benchmark.extra_info["cpu_seconds"] = round(min(found), 2)
    assert min(found) < MOST_SECONDS
