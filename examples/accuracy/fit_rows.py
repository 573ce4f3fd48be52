"""The published runs that the constants are fitted on, and how much each counts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainplan.cli.files.runs import read_runs
from trainplan.costmodel import catalog
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.cases.cases import Case, case_of
from trainplan.costmodel.validate.residuals import layout_key
from trainplan.costmodel.validate.steps import POOLED, SMALL_SOURCE

FloatColumn = NDArray[np.float64]
RUNS = Path(__file__).parent / "runs.jsonl"

NOT_FITTED = ("mcore",)
"""Sources that say nothing of production speed: Megatron's continuous integration runs
deterministic kernels and one NCCL algorithm. They are scored, not fitted."""


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


def _is_fitted(case: Case) -> bool:
    """Is its GPU of a kind whose constants follow from runs? Those of AMD have no priors yet."""
    return not catalog.gpu(speed_key(case)[0]).architecture.startswith("cdna")


def _group_key(case: Case) -> str:
    job, run = case.job, case.run
    return f"{run.model.name} {run.cluster.gpu} {job.cluster.num_gpus} {job.training} {job.runtime}"


def speed_key(case: Case) -> tuple[str, str]:
    """GPU and precision class of a run: one sustained speed."""
    precision = case.job.training.precision
    gpu = case.job.cluster.groups[0].gpu
    return gpu, precision if case.job.training.casts else "tf32" if precision == "tf32" else "bf16"
