"""How far a step time may be off, by regime: what the model got wrong on published runs like it.

The widths are in `catalog/intervals.toml`, which `make accuracy` writes: the 80 % quantile of
|ln(predicted / measured)| over the strict published runs of each regime. Runs on machines and
software that were seen use residuals of the fit; others use residuals of fits that had not seen
the source of the run; a calibrated machine uses residuals after one measured step of another
layout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel import catalog
from trainplan.costmodel.spec import Job

LEVEL = 0.8
"""Share of measured steps that should fall inside the interval."""
LAUNCH_BOUND = 0.05
"""Share of the step the GPU waits for the host, from which a run counts as launch-bound.

Source: assumed; below it errors of the host time move the step by less than its other errors.
"""

NORMAL_80, NORMAL_33 = 1.2816, 0.4307
"""A normal variable is within the first of its mean in 80 % of cases, and above the second in a
third of them."""

Regime = Literal[
    "dense",
    "mixture_of_experts",
    "launch_bound",
    "unseen_dense",
    "unseen_mixture_of_experts",
    "calibrated_dense",
    "calibrated_mixture_of_experts",
]


@dataclass(frozen=True, slots=True)
class Interval:
    """Range that holds the measured step time with probability `level`."""

    level: float
    regime: Regime
    """Kind of run whose published errors gave the width."""
    step_time_low_s: float
    step_time_high_s: float


def step_time_interval(
    job: Job, step_seconds: float, host_seconds: float, *, calibrated: bool
) -> Interval:
    """Interval around an estimate, symmetric in log units.

    `host_seconds` is the part of the step the GPU waits for launches; `calibrated` says that the
    machine was corrected by measured steps, which never makes the interval wider.
    """
    kind, widths = regime(job, host_seconds / step_seconds), catalog.intervals().regimes
    if calibrated:
        after: Regime = "calibrated_mixture_of_experts" if job.model.moe else "calibrated_dense"
        kind = min(kind, after, key=lambda one: widths[one].half_width)
    factor = math.exp(widths[kind].half_width)
    return Interval(LEVEL, kind, step_seconds / factor, step_seconds * factor)


def regime(job: Job, host_share: float) -> Regime:
    """Which published runs tell how far this estimate may be off."""
    if not seen(job):
        return "unseen_mixture_of_experts" if job.model.moe else "unseen_dense"
    return kind_of_run(job, host_share)


def kind_of_run(job: Job, host_share: float) -> Regime:
    """Regime of a run on machines and software that were seen."""
    if job.model.moe:
        return "mixture_of_experts"
    return "launch_bound" if host_share > LAUNCH_BOUND else "dense"


def seen(job: Job) -> bool:
    """Did a fitted run use these GPUs, this precision and this runtime?"""
    return set(run_key(job)) <= set(catalog.intervals().seen)


def run_key(job: Job) -> tuple[str, ...]:
    """GPU, precision and runtime of each node group, as `intervals.toml` lists them."""
    precision = job.training.precision
    name = "bf16" if precision == "fp16" else precision
    return tuple(f"{group.gpu} {name} {job.runtime}" for group in job.cluster.groups)
