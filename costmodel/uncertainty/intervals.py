"""How far a step time may be off, by regime: what the model got wrong on published runs like it.

The ends are in `catalog/intervals.toml`, which `make accuracy` writes: quantiles of
ln(measured / estimated) that leave a tenth of the runs on either side
(`costmodel.validate.intervals`). A regime is GPU, precision, runtime and kind of run. Where no run
of it was measured, it depends on what the constants of the GPU rest on: measurements of it, another
GPU that stands in, or assumptions. A calibrated machine uses errors after one measured step of
another layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel import catalog
from trainplan.costmodel.catalog.evidence import evidence_of
from trainplan.costmodel.hardware import NodeGroup
from trainplan.costmodel.job import Graph, Job, Precision
from trainplan.costmodel.machine import PRODUCTS, Machine

LEVEL = 0.8
"""Share of measured steps that should fall inside the interval."""
LAUNCH_BOUND = 0.05
"""Share of the step the GPU waits for the host, from which a run counts as launch-bound.

Source: assumed; below it errors of the host time move the step by less than its other errors.
"""
SHARDED = 2
"""ZeRO stage from which on gradients are sharded: FSDP."""

NORMAL_80, NORMAL_33 = 1.2816, 0.4307
"""A normal variable is within the first of its mean in 80 % of cases, and above the second in a
third of them."""

Kind = Literal["graphs", "mixture_of_experts", "fsdp", "launch_bound", "dense"]
Unmeasured = Literal["unseen", "stand_in", "assumed"]
UNMEASURED: tuple[Unmeasured, ...] = ("unseen", "stand_in", "assumed")
"""Regimes of what no published run measured: constants of the GPU are its own, those of another
that stands in, or assumed. Each is at least as wide as the one before."""
UNVALIDATED = "unvalidated"
"""Regime of a profile that no measured step was held against: as wide as `unseen`."""
BY_EVIDENCE: dict[str, Unmeasured] = {
    "measured": "unseen",
    "stand-in": "stand_in",
    "assumed": "assumed",
}


@dataclass(frozen=True, slots=True)
class Interval:
    """Range that holds the measured step time with probability `level`."""

    level: float
    """Share of measured steps that should lie inside."""
    regime: str
    """Runs whose errors gave the ends: GPU, precision, runtime and kind; or what no run is of."""
    step_time_low_s: float
    """Lower end."""
    step_time_high_s: float
    """Upper end."""


def kind_of_run(job: Job, graph: Graph, zero_stage: int, host_share: float) -> Kind:
    """Kind of a run; the first that fits.

    `host_share` is the share of the step the GPU waits for launches.
    """
    if graph != "none":
        return "graphs"
    if job.model.moe:
        return "mixture_of_experts"
    if zero_stage >= SHARDED:
        return "fsdp"
    return "launch_bound" if host_share > LAUNCH_BOUND else "dense"


def step_time_interval(job: Job, machine: Machine, step_seconds: float, kind: Kind) -> Interval:
    """Interval around an estimate; a tenth of measured steps is below it, and a tenth above.

    That of the node group that is known least; measured steps that correct the machine never make
    it wider. Errors of published runs are those of the catalog: parts that no step was held against
    are not known better than a machine that no run was on.
    """
    known = catalog.intervals().regimes
    name = max(regimes(job, machine, kind), key=lambda one: known[one].width)
    if machine.unvalidated and known[name].width < known["unseen"].width:
        low, high = known["unseen"].factors
        return Interval(LEVEL, UNVALIDATED, step_seconds * low, step_seconds * high)
    if machine.calibrated:
        name = min(name, calibrated_regime(job), key=lambda one: known[one].width)
    low, high = known[name].factors
    return Interval(LEVEL, name, step_seconds * low, step_seconds * high)


def regimes(job: Job, machine: Machine, kind: Kind) -> tuple[str, ...]:
    """Regime of each node group: that of runs like it, else that of what its GPU rests on."""
    known = catalog.intervals().regimes
    return tuple(
        name if name in known else _unmeasured(group, job, machine)
        for name, group in zip(names_of_runs(job, kind), job.cluster.groups, strict=True)
    )


def seen(job: Job) -> bool:
    """Did a fitted run of any kind use these GPUs, this precision and this runtime?"""
    precision, runtime = job.training.precision, job.runtime
    return all(kind_was_seen(group.gpu, precision, runtime) for group in job.cluster.groups)


def kind_was_seen(gpu: str, precision: Precision, runtime: str) -> bool:
    """Did a fitted run of any kind use this GPU, precision and runtime?"""
    known = {name.rpartition(" ")[0] for name in catalog.intervals().regimes}
    return _machine_name(gpu, precision, runtime) in known


def names_of_runs(job: Job, kind: Kind) -> tuple[str, ...]:
    """GPU, precision, library (else runtime), kind of each node group, as in `intervals.toml`."""
    precision, runtime = job.training.precision, job.runtime
    names = (_machine_name(group.gpu, precision, runtime) for group in job.cluster.groups)
    return tuple(f"{name} {kind}" for name in names)


def _machine_name(gpu: str, precision: Precision, runtime: str) -> str:
    """Source: runs of one library are alike; `RuntimeTraits.library`."""
    library = catalog.intervals().libraries.get(runtime, runtime)
    return f"{gpu} {'bf16' if precision == 'fp16' else precision} {library}"


def calibrated_regime(job: Job) -> str:
    """Regime of a machine that measured steps of the job's precision and runtime correct."""
    return "calibrated_mixture_of_experts" if job.model.moe else "calibrated_dense"


def _unmeasured(group: NodeGroup, job: Job, machine: Machine) -> Unmeasured:
    """Regime of a node group that no published run is like; a profile is as good as own fits."""
    if any(one.kind == "measured" and PRODUCTS in one.quantity for one in machine.provenance):
        return "unseen"
    if group.device is not None:
        return "assumed"
    return BY_EVIDENCE[evidence_of(group.gpu, job.training.precision).weakest]
