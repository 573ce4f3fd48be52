"""Reading of long scripts: seconds grow with the text."""

import time

import pytest

from trainplan.planner.shell import launches_of_script

SHARE = 4
"""The text is so many times as long as the one it is compared with."""


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda n: "A=1\n" * n, 40_000),
        (lambda n: "".join(f"export A{i}=$A{i - 1}x\n" for i in range(n)), 4_000),
        (lambda n: "A+=(x)\n" * n, 40_000),
        (lambda n: "echo " + "--a b " * n + "\n", 40_000),
        (lambda n: "A=1 " * n + "\n", 40_000),
        (lambda n: 'A="' + "x\n" * n + '"\n', 40_000),
        (lambda n: "echo " + "'a'\"b\"$C" * n + "\n", 20_000),
        (lambda n: "echo $(a<<b)\n" * n, 10_000),
        (lambda n: "if [ -f x ]; then A=1; else B=2; fi\n" * n, 4_000),
        (lambda n: "true && " * n + "true\n", 30_000),
    ],
)
def test_reading_speed(benchmark, make, size):
    def seconds(n: int) -> float:
        text = make(n) + "torchrun x.py"
        start = time.process_time()
        launches_of_script(text, "run.sh", {})
        return time.process_time() - start

    small = min(seconds(size // SHARE) for _ in range(3))
    large = benchmark.pedantic(seconds, (size,), rounds=3)
    assert large < 3 * SHARE * max(small, 0.01)
