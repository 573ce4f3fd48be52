"""Runs priced as if less were known of their GPU: what stand-ins and assumptions are worth."""

import math
from collections.abc import Iterator, Sequence

from trainplan.costmodel import catalog
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import step_seconds
from trainplan.costmodel.validate.residuals import Miss, key_of, weights_of
from trainplan.costmodel.validate.steps import TimedRow

NOBODY = "a GPU without measurements"
"""No fits, and no similar GPU for it."""


def stand_in_misses(rows: Sequence[TimedRow]) -> tuple[Miss, ...]:
    """Runs on GPUs that a similar one could replace, priced with the fits of that one."""
    return tuple(_misses(rows, [catalog.stand_in(_gpu(row)) for row in rows]))


def assumed_misses(rows: Sequence[TimedRow]) -> tuple[Miss, ...]:
    """All runs, priced with the assumptions that hold for a GPU without fits."""
    return tuple(_misses(rows, [NOBODY] * len(rows)))


def _gpu(row: TimedRow) -> str:
    return row.job.cluster.groups[0].gpu


def _misses(rows: Sequence[TimedRow], names: Sequence[str | None]) -> Iterator[Miss]:
    """Rows with a name of a GPU; equal jobs and layouts are priced once."""
    priced: dict[str, float] = {}
    for row, name, weight in zip(rows, names, weights_of(rows), strict=True):
        if name is None:
            continue
        key = key_of(row)
        if key not in priced:
            priced[key] = _seconds(row, name)
        source = row.run.source_group
        yield Miss(source, math.log(row.measured_s / priced[key]), weight)


def _seconds(row: TimedRow, name: str) -> float:
    """Step of a run whose GPU has the fits of another, and the datasheet of its own."""
    job = _renamed(row.job, name)
    context = context_of(job, machine_of(job.cluster, job.training.precision))
    return float(step_seconds(context.with_table(LayoutTable.of([row.layout])))[0])


def _renamed(job: Job, name: str) -> Job:
    groups = tuple(
        group.model_copy(update={"gpu": name, "device": catalog.device(group)})
        for group in job.cluster.groups
    )
    cluster = job.cluster.model_copy(update={"groups": groups})
    return job.model_copy(update={"cluster": cluster})
