"""How good is the answer of `plan search` before its proof ends?

`python -m tests.benchmarks.anytime [--only WORD] [--seconds 120]`, from the root, prints a Markdown
table. A job is searched to its end, or for some CPU seconds of one process; then anew with a tenth,
a fifth and a half of what that took, each in a fresh process that remembers nothing. A figure is
the step time that a limit leads to, over that of the whole search.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context

from tests.attack.jobs import Case
from tests.budgets import Until
from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.questions.best_plan import search

CASES = (
    Case("llama3-8b", "1x8:h100-sxm", 64, 8192),
    Case("llama3-8b", "1x8:h100-sxm", 8, 131_072),
    Case("llama3-8b", "4x4:a100-sxm-40gb", 64),
    Case("llama3-8b", "4x8:h100-sxm", 256, 8192, runtime="torchtitan"),
    Case("gemma2-9b", "1x4:l40s", 64),
    Case("gemma3-27b", "3x8:h100-sxm", 96),
    Case("qwen3-32b", "1x8:h100-sxm", 64),
    Case("llama3-70b", "8x8:h100-sxm", 128, 8192),
    Case("llama3-70b", "8x8:h100-sxm", 128, 8192, runtime="torchtitan"),
    Case("gpt3-175b", "512x8:a100-sxm-80gb", 3072, 2048),
    Case("llama3.1-405b", "2048x8:h100-sxm", 2048, 8192),
    Case("mixtral-8x7b", "2x8:h100-sxm", 96),
    Case("mixtral-8x22b", "8x8:h100-sxm", 256),
    Case("deepseek-v2-lite", "1x8:h100-sxm", 64),
    Case("gpt-oss-120b", "8x8:h100-sxm", 512),
    Case("qwen3-30b-a3b", "8x8:h100-sxm", 512),
    Case("nemotron-3-nano-30b-a3b", "2x8:h100-sxm", 128),
    Case("qwen3-235b-a22b", "16x8:h100-sxm", 512),
    Case("deepseek-v3", "32x8:h100-sxm", 2048),
    Case("deepseek-v3", "256x8:h100-sxm", 15_360),
)
SHARES = (0.1, 0.2, 0.5)
HEADER = ("job", "answer, s", "gap", "CPU s", *(f"after {share:.0%}" for share in SHARES))


def searched(case: Case, seconds: float) -> tuple[float, float, float]:
    """Step time, gap and CPU seconds of a search with a limit; infinite where nothing is found."""
    start = time.process_time()
    try:
        plan = search(case.job, case.options(), Until(seconds, time.process_time))
        step_s, gap = plan.best.estimate.step_time_s, plan.certificate.gap_fraction
    except SpecError:  # the limit struck first
        step_s, gap = float("inf"), 1.0
    return step_s, gap, time.process_time() - start


def alone(case: Case, seconds: float) -> tuple[float, float, float]:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
        return one.submit(searched, case, seconds).result()


def row(case: Case, seconds: float) -> tuple[str, ...]:
    """One line of the table."""
    last_s, gap, spent_s = alone(case, seconds)
    early = [alone(case, share * spent_s)[0] / last_s for share in SHARES]
    figures = f"{last_s:.4g}", f"{gap:.1%}", f"{spent_s:.1f}", *(f"{one:.3f}" for one in early)
    return name_of(case), *figures


def name_of(case: Case) -> str:
    """The job in a cell, and for `--only`."""
    return f"{case.model} on {case.cluster}, {case.batch:,} x {case.seq:,}, {case.runtime}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="jobs with this in their first cell")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the whole search, CPU")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only in name_of(case)]
    rows = (row(case, options.seconds) for case in cases)
    for cells in chain((HEADER, ["---"] * len(HEADER)), rows):
        sys.stdout.write(f"| {' | '.join(cells)} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
