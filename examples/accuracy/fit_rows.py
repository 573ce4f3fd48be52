"""The published runs that the constants are fitted on, and how much each counts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainplan.cli.files.runs import read_runs
from trainplan.costmodel import catalog
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.cases.cases import Case, case_of
from trainplan.costmodel.validate.gains import twins
from trainplan.costmodel.validate.residuals import layout_key
from trainplan.costmodel.validate.steps import POOLED, SMALL_SOURCE

FloatColumn = NDArray[np.float64]
RUNS, TWINS = (Path(__file__).parent / name for name in ("runs.jsonl", "twins.jsonl"))

NOT_FITTED = ("mcore",)
"""Sources that say nothing of production speed: Megatron's continuous integration runs
deterministic kernels and one NCCL algorithm. They are scored, not fitted."""


ATTENTION_PRIOR = {
    "ampere": 0.68,
    "ada": 0.68,
    "hopper": 0.7,
    "blackwell": 0.61,
    "cdna3": 0.522,
    "cdna4": 0.714,
}
"""Largest share of peak that fused attention reaches at burst clocks, before any run is seen.

Source: `e s / (s + s_half)` through kernels of 512 to 16k tokens. A100: 0.654 forward, sglang
0.5.10, and 0.714 by 0.620 forward and backward, FlashAttention-2. H100: 0.662, FlashAttention-3,
and 0.628 and 0.658, sglang 0.5.14 and vllm 0.24.0. FlashAttention-3 of 2026,
0.743: 685 TFLOP/s of causal 8k, facebookexperimental/triton pull 3582. B200: 0.551 and 0.561,
likewise, and FlashAttention-4 0.685: 1,418 TFLOP/s of causal 8k, Dao-AILab/flash-attention pull
2280. From
ai-dynamo/aiconfigurator@095f58a51c4ca8e61b66ec108d86f223f8d559ce and
Dao-AILab/flash-attention@0251105a2fb19d2957484b7f023cd8c115286ced, assets. CDNA: forward kernels
over the sustained speed, ROCm/aiter@e4048607a535ace3a2b51ded31b1c8c2d45c0879
op_tests/cpp/mha/README.md.
"""


@dataclass(frozen=True)
class Row:
    """A run, its case and how much it counts."""

    run: MeasuredRun
    case: Case
    source: str
    """Source, small ones pooled."""
    key: str
    """Equal for runs the model cannot tell apart."""
    group: str
    """Runs that differ in layout alone."""
    weight: float


def strict_rows() -> list[Row]:
    """Strict runs with a step time that the model prices."""
    runs = [run for run in read_runs(RUNS) if isinstance(run, MeasuredRun)]
    cases = [
        case
        for case in map(case_of, runs)
        if isinstance(case, Case) and case.timed and case.run.is_strict and _is_fitted(case)
        if case.run.measured.step_time_s
    ]
    sizes: dict[str, int] = defaultdict(int)
    repeats: dict[str, int] = defaultdict(int)
    for case in cases:
        sizes[case.run.source_group] += 1
    names = [
        case.run.source_group if sizes[case.run.source_group] >= SMALL_SOURCE else POOLED
        for case in cases
    ]
    keys = [layout_key(case.run, case.job, case.layout) for case in cases]
    for key in keys:
        repeats[key] += 1
    distinct: dict[str, float] = defaultdict(float)
    for name, key in zip(names, keys, strict=True):
        distinct[name] += 1 / repeats[key]
    return [
        Row(
            case.run,
            case,
            name,
            key,
            _group_key(case),
            0.0 if case.run.source_group in NOT_FITTED else 1 / repeats[key] / distinct[name],
        )
        for name, case, key in zip(names, cases, keys, strict=True)
    ]


@dataclass(frozen=True)
class Pair:
    """Two runs that differ in one setting."""

    base: Row
    other: Row
    log_ratio: float
    """Logarithm of the measured step of the other over that of the base."""
    source: str
    weight: float


def pairs() -> list[Pair]:
    """Twins that the model prices; those of a source share the weight of one.

    A pair shares what its records leave out, so its ratio counts where its step times do not.
    """
    runs = [run for path in (RUNS, TWINS) for run in read_runs(path)]
    marked = [run for run in runs if isinstance(run, MeasuredRun) and run.twins]
    rows = {run.id: row for run in marked if (row := _twin_row(run))}
    found = [one for one in twins(marked) if {one.base.id, one.other.id} <= rows.keys()]
    sizes = Counter(rows[one.other.id].source for one in found)
    return [
        Pair(
            rows[one.base.id],
            other := rows[one.other.id],
            math.log(one.step_ratio),
            other.source,
            1 / max(sizes[other.source], SMALL_SOURCE),
        )
        for one in found
    ]


def _twin_row(run: MeasuredRun) -> Row | None:
    """A run of a pair; null: it is not priced. Published elsewhere, its source is a repository."""
    case = case_of(run)
    if not isinstance(case, Case) or not case.timed or not _is_fitted(case):
        return None
    source = run.source_group
    if source == "twins" and isinstance(run.source, dict):
        source = str(run.source.get("repo"))
    return Row(run, case, source, layout_key(run, case.job, case.layout), "", 0.0)


def _is_fitted(case: Case) -> bool:
    """Is its GPU of a kind whose constants follow from runs: does its attention have a prior?"""
    return catalog.gpu(speed_key(case)[0]).architecture in ATTENTION_PRIOR


def _group_key(case: Case) -> str:
    job, run = case.job, case.run
    return f"{run.model.name} {run.cluster.gpu} {job.cluster.num_gpus} {job.training} {job.runtime}"


def speed_key(case: Case) -> tuple[str, str]:
    """GPU and precision class of a run: one sustained speed.

    The GPU is the one that stands in where the same chip runs at another power.
    """
    precision = case.job.training.precision
    gpu = case.job.cluster.groups[0].gpu
    other = catalog.stand_in(gpu)
    if other and not catalog.fitted(gpu).sustained and catalog.fitted(other).sustained:
        same = catalog.gpu(gpu).architecture == catalog.gpu(other).architecture
        gpu = other if same else gpu
    return gpu, precision if case.job.training.casts else "tf32" if precision == "tf32" else "bf16"
