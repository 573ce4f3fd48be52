"""Bounds and estimates a CPU-second, beside peers: `pytest tests/benchmarks --benchmark-only`.

`TRAINPLAN_PEERS` names a folder with checkouts of calculon and SimuMax; without it they are left
out. What they import must be importable.
"""

import contextlib
import importlib
import io
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainplan import planner
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price

JOBS = {
    "llama3-8b, 32 H100": ("llama3-8b", "4x8:h100-sxm", 256, 4096),
    "gpt3-175b, 512 A100": ("gpt3-175b", "64x8:a100-sxm-80gb", 1536, 2048),
    "deepseek-v3, 256 H100": ("deepseek-v3", "32x8:h100-sxm", 2048, 4096),
}
"""Random legal layouts of each; the last two have pipelines of up to 64 ranks."""
BOUNDED, BATCH, ALONE = 50_000, 20_000, 400
CALLS = dict(zip(JOBS, (8_000, 12_000, 20_000), strict=True))
"""An estimate alone takes no longer than so many calls of numpy on one number.

Source: measured on a core that others use too, twice as many; the version before took four times.
"""
PEERS = os.environ.get("TRAINPLAN_PEERS")


def rate(benchmark, number: int, work: Callable[[], object]) -> None:
    """Times some work that has run once before, and notes pieces a CPU-second."""
    work()
    before = time.process_time()
    benchmark.pedantic(work, rounds=1)
    benchmark.extra_info["per_cpu_second"] = round(number / (time.process_time() - before))


@pytest.mark.parametrize("name", JOBS)
def test_bounds(benchmark, make_job, legal_table, name):
    job = make_job(*JOBS[name])
    context = context_of(job, machine_of(job.cluster, job.training.precision))
    parts = legal_table(job, BOUNDED, 0).batches(8192)
    rate(benchmark, BOUNDED, lambda: [price(context.with_table(part)) for part in parts])


@pytest.mark.parametrize("name", JOBS)
def test_estimates_in_a_batch(benchmark, make_job, legal_table, name):
    job = make_job(*JOBS[name])
    table = legal_table(job, BATCH, 1)
    rate(benchmark, BATCH, lambda: planner.estimates(job, table))


def call_seconds() -> float:
    """CPU seconds of a call of numpy on one number, kept in a dictionary."""
    one, kept, number = np.ones(1), {}, 40_000
    before = time.process_time()
    for call in range(number):
        kept[call % 64] = (call, np.maximum(one, one))
    return (time.process_time() - before) / number


@pytest.mark.parametrize("name", JOBS)
def test_estimates_one_by_one(benchmark, make_job, legal_table, name):
    """Layouts that were not asked before, of a job that was; then the last of them again."""
    job = make_job(*JOBS[name])
    table = legal_table(job, 2 * ALONE, 2)
    layouts = [table.row(i) for i in range(len(table))]
    left, before = iter(layouts), call_seconds()
    rate(benchmark, ALONE, lambda: [planner.estimate(job, next(left)) for _ in range(ALONE)])
    calls = 1 / benchmark.extra_info["per_cpu_second"] / ((before + call_seconds()) / 2)
    benchmark.extra_info["calls"] = round(calls)
    assert calls <= CALLS[name]
    before = time.process_time()
    for layout in layouts[-100:]:
        planner.estimate(job, layout)
    assert time.process_time() - before < 100 / benchmark.extra_info["per_cpu_second"] / 20


def peer(folder: str, module: str):
    """A module of a peer's checkout."""
    if PEERS is None:
        pytest.skip("TRAINPLAN_PEERS names no folder with the checkouts")
    top = Path(PEERS) / folder
    sys.path.insert(0, str(top))
    try:
        return top, importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{folder}: {error}")
    finally:
        sys.path.remove(str(top))


def test_calculon(benchmark):
    """Its example execution on 3,072 A100, read once, compiled and run."""
    top, llm = peer("calculon", "calculon.llm")
    read = [
        json.loads((top / file).read_text("utf-8"))
        for file in (
            "models/megatron-1T.json",
            "systems/a100_80g.json",
            "examples/3072_t4_p64_d12_mbs4_full.json",
        )
    ]
    application = llm.Llm.Application(read[0])

    def estimate():
        model, system = llm.Llm(application, logging.getLogger()), llm.System(read[1])
        model.compile(system, llm.Llm.Execution.from_json(read[2]))
        model.run(system)
        return model.get_stats_json(include_layers=False)

    rate(benchmark, 50, lambda: [estimate() for _ in range(50)])


def test_simumax(benchmark):
    """Its example of llama3-8b on 8 GPUs, time and memory."""
    _, perf = peer("SimuMax", "simumax.core.perf_llm")
    config = importlib.import_module("simumax.core.config")
    files = importlib.import_module("simumax.utils")
    warnings.simplefilter("ignore")  # of options that its example sets
    strategy, model, system = (
        kind.init_from_config_file(find(name))
        for kind, find, name in (
            (config.StrategyConfig, files.get_simu_strategy_config, "tp1_pp2_dp4_mbs1"),
            (config.ModelConfig, files.get_simu_model_config, "llama3-8b"),
            (config.SystemConfig, files.get_simu_system_config, "a100_pcie"),
        )
    )

    def estimate():
        one = perf.PerfLLM()
        one.configure(strategy_config=strategy, model_config=model, system_config=system)
        one.run_estimate()
        return one.analysis_cost(), one.analysis_mem()

    with contextlib.redirect_stdout(io.StringIO()):
        rate(benchmark, 5, lambda: [estimate() for _ in range(5)])
