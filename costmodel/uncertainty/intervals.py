"""How far a step time may be off, by regime: what the model got wrong on published runs like it.

The widths are in `catalog/intervals.toml`, which `make accuracy` writes: of ln(measured /
estimated), so far on either side that `LEVEL` of the runs of sources left out of both fits and
widths lie inside (`costmodel.validate.intervals`). A regime is GPU, precision, runtime and kind of
run. Where no run of it was measured, it is of the kind alone and depends on what the constants of
the GPU rest on: measurements of it, a similar GPU, or assumptions. A calibrated
machine uses errors after one measured step of another layout.

The ratio of two step times of one job is off by less than either: what the model has wrong about
the machine, it has wrong in both layouts. The more of a layout changes, the less they share.
"""

import math
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel import catalog
from trainplan.costmodel.catalog import evidence_of
from trainplan.costmodel.hardware import NodeGroup
from trainplan.costmodel.job import Graph, Job, Precision
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.machine import PRODUCTS, Machine

LEVEL = 0.8
"""Share of measured steps that should fall inside the interval, of sources that no fit saw."""
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
"""What regimes that no published run measured begin with, then the kind: constants of the GPU are
its own, those of a similar one, or assumed. Each is at least as wide as the one before."""
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
    """Share of measured steps that should lie inside: as many runs of a source that no fit had seen
    do."""
    regime: str
    """Runs whose errors gave the ends: GPU, precision, runtime and kind; or `unseen`, `stand_in` or
    `assumed`, and kind."""
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
    """Interval around an estimate that holds `LEVEL` of measured steps.

    That of the node group that is known least; measured steps that correct the machine never make
    it wider. Errors of published runs are those of the catalog: parts that no step was held against
    are not known better than a machine that no run was on.
    """
    known = catalog.intervals().regimes
    name = max(regimes(job, machine, kind), key=lambda one: known[one].half_width)
    unseen = f"{UNMEASURED[0]} {kind}"
    if machine.unvalidated and known[name].half_width < known[unseen].half_width:
        low, high = known[unseen].factors
        return Interval(LEVEL, UNVALIDATED, step_seconds * low, step_seconds * high)
    if machine.calibrated:
        name = min(name, calibrated_regime(job), key=lambda one: known[one].half_width)
    low, high = known[name].factors
    return Interval(LEVEL, name, step_seconds * low, step_seconds * high)


def regimes(job: Job, machine: Machine, kind: Kind) -> tuple[str, ...]:
    """Regime of each node group: that of runs like it, else that of what its GPU rests on."""
    known = catalog.intervals().regimes
    return tuple(
        name if name in known else f"{_unmeasured(group, job, machine)} {kind}"
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
    """Source: runs of one library are similar; `RuntimeTraits.library`."""
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


SIZES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "micro_batch_size")
"""Numbers of which every factor of two counts one; data parallelism follows from them."""
KNOBS = (
    ("zero_stage",),
    ("schedule",),
    ("recompute", "recompute_modules"),
    ("offload", "offload_modules"),
    ("stages",),
)
"""What counts one where it differs."""
MOST = 4.0
"""Unlikeness beyond which errors share no less.

Source: pairs of examples/accuracy/runs.jsonl: by the likelihood of sources left out a limit of 4
is as good as none, limits of 2 and 3 are worse, and beyond 4 the measured spread grows no more.
"""


def unlikeness(one: Layout, other: Layout) -> float:
    """Doublings and choices that lead from one layout to the other; 0: they are the same.

    Source: a convention; `width_factor` states what it is for.
    """
    if one == other:
        return 0.0
    doublings = sum(abs(math.log2(getattr(one, n) / getattr(other, n))) for n in SIZES)
    return doublings + sum(any(getattr(one, n) != getattr(other, n) for n in k) for k in KNOBS)


def width_factor(one: Layout, other: Layout) -> float:
    """Error of the ratio of two step times, over that of layouts that differ by one doubling.

    Source: derived; every change adds an error of its own, so their squares add: a random walk. Of
    13 shapes tried on 527 pairs (constant, number of degrees that differ, distance of the terms'
    shares, gap of the predictions) none is likelier on sources left out, however they are weighed.
    """
    return 0.0 if one == other else math.sqrt(min(max(unlikeness(one, other), 1.0), MOST))


def comparison_spread(one: Layout, other: Layout) -> float:
    """Standard deviation of ln(ratio of two step times), of one job in two layouts.

    Source: derived; log ratios are normal, 80 % of them inside the width of `comparison`.
    """
    return _one_change() * width_factor(one, other)


def probability_faster(one: Layout, seconds: float, other: Layout, other_seconds: float) -> float:
    """Probability that a layout runs faster than another of the same job, by their estimates.

    Source: derived, as `comparison_spread`.
    """
    spread = comparison_spread(one, other)
    if spread == 0:
        return 0.5
    return 0.5 * (1 + math.erf(math.log(other_seconds / seconds) / spread / math.sqrt(2)))


def is_near_tie(one: Layout, seconds: float, best: Layout, best_seconds: float) -> bool:
    """Is a layout no slower than the best, or is it the faster one in one of three cases?"""
    return seconds <= best_seconds * (1 + _fraction(comparison_spread(one, best)))


def place_of_tie(inside: bool | None, seconds: float) -> tuple[bool, float]:  # noqa: FBT001
    """Where a near-tie comes among others: those inside what was measured first, then by time.

    Source: measured groups of layouts (docs/accuracy.md, near-ties): it picks no worse than time
    alone in any study; free memory, nodes of a group and near runs do.
    """
    return not inside, seconds


def near_tie_range() -> tuple[float, float]:
    """How much slower a near-tie may look: one change, and as different as can be."""
    return _fraction(_one_change()), _fraction(_one_change() * math.sqrt(MOST))


def _one_change() -> float:
    """The spread of layouts that differ by one doubling."""
    return catalog.intervals().comparison.half_width / NORMAL_80


def _fraction(spread: float) -> float:
    """How much slower a layout may look and still be the faster one in one of three cases."""
    return math.expm1(NORMAL_33 * spread)
