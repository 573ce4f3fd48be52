"""Why the interval of a step time is as wide as it is, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from trainplan.cli.words import plural
from trainplan.costmodel import catalog
from trainplan.costmodel.catalog import evidence_of
from trainplan.costmodel.hardware import NodeGroup
from trainplan.costmodel.job import Job
from trainplan.costmodel.uncertainty import BY_EVIDENCE, UNMEASURED, UNVALIDATED, Interval

KINDS = {
    "graphs": "CUDA graphs",
    "mixture_of_experts": "mixture of experts",
    "fsdp": "FSDP",
    "launch_bound": "launch-bound",
    "dense": "dense",
}
"""Words for `costmodel.uncertainty.Kind`."""
PARTS = ("matrix products", "attention", "collectives")
"""Words for the fields of `costmodel.catalog.evidence.Evidence`."""

NOT_MEASURED = {"stand_in": "stand in from a like GPU", "assumed": "are assumed"}
"""Words for regimes in which numbers of the GPU are not measured on it."""


def interval_lines(job: Job, interval: Interval, *, verbose: bool = True) -> Iterator[str]:
    """Whose errors gave its ends; nothing of a plan whose release knew other regimes.

    A short page says it where numbers of the GPU are not measured on it.
    """
    if interval.regime == UNVALIDATED and verbose:
        yield (
            "Interval: as of sources that no fit saw: no measured step was held against this "
            "profile; `plan calibrate --profile` does."
        )
    known = catalog.intervals().regimes.get(interval.regime)
    if known is None or not (verbose or interval.regime in NOT_MEASURED):
        return
    if interval.regime in UNMEASURED:
        gpus = " and ".join(sorted({group.gpu for group in job.cluster.groups}))
        why = "; ".join(_rests_on(job, interval.regime)) or "it is as of sources that no fit saw"
        yield (
            f"Interval: no scored run of this kind is on {gpus} in {job.training.precision} under "
            f"{job.runtime}; {why}."
        )
    elif interval.regime.startswith("calibrated"):
        yield "Interval: as far as published runs are off after one step of their family."
    else:
        gpu, precision, runtime, kind = interval.regime.split()
        bits = "16 bits" if precision == "bf16" else precision
        runs = f"{plural(known.runs, 'scored run')} of {plural(known.sources, 'source')}"
        yield f"Interval: of {runs} like it ({gpu}, {bits}, {runtime}, {KINDS[kind]})."


def _rests_on(job: Job, regime: str) -> Iterator[str]:
    """Which numbers of the least known GPUs are not measured on them."""
    for group in dict.fromkeys(job.cluster.groups):
        if group.device is not None:
            yield f"what is known of {group.gpu} is its datasheet"
        else:
            yield from _of_catalog(group, job, regime)


def _of_catalog(group: NodeGroup, job: Job, regime: str) -> Iterator[str]:
    kinds = astuple(evidence_of(group.gpu, job.training.precision))
    parts = [part for part, kind in zip(PARTS, kinds, strict=True) if BY_EVIDENCE[kind] == regime]
    if parts and regime in NOT_MEASURED:
        yield f"{' and '.join(parts)} of {group.gpu} {NOT_MEASURED[regime]}"
