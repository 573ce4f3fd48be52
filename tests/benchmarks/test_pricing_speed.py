"""Candidates priced in a second on one core: `pytest tests/benchmarks --benchmark-only`."""

import time

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price

JOBS = {
    "gpt3-175b": ("gpt3-175b", "512x8:a100-sxm-80gb", 3072, 2048),
    "deepseek-v3": ("deepseek-v3", "256x8:h100-sxm", 15360, 4096),
}
ROWS = 50_000


@pytest.mark.parametrize("chunk", [4096, 8192, 16384, 32768])
@pytest.mark.parametrize("name", JOBS)
def test_pricing_speed(benchmark, make_job, legal_table, name, chunk):
    job = make_job(*JOBS[name])
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    table = legal_table(job, ROWS, 0)
    starts = range(0, ROWS, chunk)
    parts = [table.take(np.arange(start, min(start + chunk, ROWS))) for start in starts]

    def price_all():
        return [price(Candidates(job, machine, traits, part)).memory.used for part in parts]

    pedantic = {"rounds": 5, "warmup_rounds": 1, "iterations": 1}
    before = time.process_time()
    benchmark.pedantic(price_all, **pedantic)
    seconds = (time.process_time() - before) / (pedantic["rounds"] + pedantic["warmup_rounds"])
    benchmark.extra_info["candidates_per_cpu_second"] = round(ROWS / seconds)
    benchmark.extra_info["candidates_per_second"] = round(ROWS / benchmark.stats.stats.min)
