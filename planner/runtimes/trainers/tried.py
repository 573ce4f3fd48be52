"""What a trainer has words for, tried on small layouts: a search leaves out what it refuses.

A value counts as refused where the exporter of the runtime writes some small layout with it and the
trainer none of these; one that no small layout can have is left to the answer's own export.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from trainplan.costmodel.axes import AXES, Axis
from trainplan.costmodel.base import GIB, PlanError, UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.runtimes import traits_of
from trainplan.planner.runtimes.able import on_one_node, why_none_written
from trainplan.planner.runtimes.registry import EXPORTERS

if TYPE_CHECKING:
    from trainplan.planner.runtimes.trainers.trainer import Trainer

GPUS = 8
"""Of a small layout."""
PLENTY = 1 << 60
"""Bytes of an engine beside small layouts, so that none is refused for its size."""
DEGREES: tuple[Mapping[str, Any], ...] = (
    MappingProxyType({}),
    MappingProxyType({"tp": 2, "sequence_parallel": True}),
    MappingProxyType({"tp": 2}),
    MappingProxyType({"cp": 2}),
    MappingProxyType({"pp": 2}),
    MappingProxyType({"pp": 2, "vpp": 2, "schedule": "interleaved"}),
    MappingProxyType({"ep": 2}),
    MappingProxyType(
        {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    ),
)
STAGES = (1, 3, 0, 2)
"""ZeRO stages, those that most runtimes have first."""


def under_trainer(trainer: Trainer, job: Job) -> Job:
    """The job with what the trainer has and needs, where it states nothing else.

    Raises:
        UnsupportedError: The trainer writes no layout of it; the message says why.
    """
    under = _as_always(trainer, job)
    if reason := why_unwritten(trainer, under):
        raise UnsupportedError(reason)
    least = trainer.kept_free(job)
    if 0 < job.reserve_bytes < least:
        raise UnsupportedError(
            f"{trainer.title} generates on the GPUs that train, and its engine takes at least "
            f"{least / GIB:.1f} GiB of each: give --reserve {ceil(least / GIB)}GiB or more, or "
            "leave it out"
        )
    return under.model_copy(update={"reserve_bytes": job.reserve_bytes or least})


def _as_always(trainer: Trainer, job: Job) -> Job:
    own = {k: v for k, v in trainer.always(job).items() if getattr(job.options, k) is None}
    return job.model_copy(update={"options": job.options.model_copy(update=own)})


def on_its_runtime(trainer: Trainer, job: Job) -> Job:
    """The job on the first runtime of the trainer for which it writes some layout, or the first."""
    every = [job.model_copy(update={"runtime": name}) for name in trainer.runtimes]
    able = (one for one in every if why_unwritten(trainer, _as_always(trainer, one)) is None)
    return next(able, every[0])


def why_unwritten(trainer: Trainer, job: Job) -> str | None:
    """Why the trainer writes no layout of a job, or its runtime none; null: some are written."""
    return why_none_written(trainer, _small(job), _layouts())


def has_words_for_settings(trainer: Trainer, job: Job) -> bool:
    """Are all small layouts written under the settings of a job that are without them?"""
    return _has_words(trainer, _small(job))


@lru_cache(maxsize=1024)
def _has_words(trainer: Trainer, job: Job) -> bool:
    if any(_lacks(trainer, job, [layout]) for layout in _written(trainer, _plain(trainer, job))):
        return False
    return why_unwritten(trainer, job) is None or not _lacks(trainer, job, _layouts())


@cache
def _written(trainer: Trainer, job: Job) -> tuple[Layout, ...]:
    return tuple(one for one in _layouts() if not _lacks(trainer, job, [one]))


def _plain(trainer: Trainer, job: Job) -> Job:
    """The job under none of the settings that it could do without."""
    return _as_always(trainer, job.model_copy(update={"options": type(job.options)()}))


def rules_of_words(trainer: Trainer, job: Job) -> tuple[Rule, ...]:
    """What layouts must respect for the trainer to have words for them, under any settings."""
    return _rules(trainer, _plain(trainer, job))


@cache
def _rules(trainer: Trainer, job: Job) -> tuple[Rule, ...]:
    traits, small = traits_of(job), _small(job)
    refused = (
        (axis, _refused(trainer, small, axis, axis.tried(job, traits) or LEAST)) for axis in AXES
    )
    return tuple(_without(trainer, axis, values) for axis, values in refused if values)


LISTED = 4
"""Values that a rule names."""
LEAST = (1.0,)
"""Of an axis whose values are solved for."""


def _refused(
    trainer: Trainer, job: Job, axis: Axis, values: Iterable[object]
) -> tuple[object, ...]:
    """Of the values those that the trainer has no word for.

    Degrees that leave a small layout no replicas, which many runtimes refuse, are as 2 is.
    """
    tried = {value: 2 if type(value) is int and value >= GPUS else value for value in values}
    return tuple(value for value, one in tried.items() if _has_no_word(trainer, job, axis, one))


@lru_cache(maxsize=1024)
def _has_no_word(trainer: Trainer, job: Job, axis: Axis, value: object) -> bool:
    with_it = (one for layout in _layouts() if (one := _with(layout, axis, value)))
    return _lacks(trainer, job, with_it)


def _without(trainer: Trainer, axis: Axis, values: tuple[object, ...]) -> Rule:
    codes = [axis.number(value) for value in values]
    texts = [axis.codec.text(value) for value in values]
    listed = ", ".join(texts if len(texts) <= LISTED else (*texts[:LISTED], "..."))

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """The value is one of these."""
        return np.isin(getattr(table, axis.column), codes)

    return Rule(
        name=f"{trainer.title}_writes_no_{axis.column}",
        columns=frozenset({axis.column}),
        broken=broken,
        says=f"{trainer.title} has no word for {axis.name} = {listed}: leave --trainer "
        "out, or use another",
        source=f"what `plan export --trainer` writes for {trainer.title}",
    )


def _lacks(trainer: Trainer, job: Job, layouts: Iterable[Layout]) -> bool:
    """Does the trainer write none of those layouts that its runtime writes, if any?"""
    whole = job.model_copy(update={"model": job.model.model_copy(update={"trained": None})})
    runtime = EXPORTERS[job.runtime]
    there = (one for one in layouts if why_none_written(runtime, whole, [one]) is None)
    return why_none_written(trainer, job, there) is not None


def _small(job: Job) -> Job:
    """The job on a few GPUs."""
    return on_one_node(job, GPUS, 8 * GPUS).model_copy(update={"reserve_bytes": PLENTY})


@cache
def _layouts() -> tuple[Layout, ...]:
    return tuple(
        _filled(Layout(**degrees, zero_stage=stage)) for stage in STAGES for degrees in DEGREES
    )


def _with(layout: Layout, axis: Axis, value: object) -> Layout | None:
    """The layout with another value, on as many GPUs; null: not on so few."""
    field, _, part = axis.name.partition(".")
    if part:
        value = getattr(layout, field).model_copy(update={part: value})
    try:
        return _filled(Layout(**{**dict(layout), field: value}))
    except (PlanError, ValueError):
        return None


def _filled(layout: Layout) -> Layout:
    """With replicas on all GPUs that are left."""
    return layout.model_copy(update={"dp": GPUS // (layout.tp * layout.cp * layout.pp)})
