"""A launch with something changed, in fields of ours and in the runtime's own words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.comparisons import FieldDifference, field_differences
from trainplan.planner.runtimes import EXPORTERS, SettingChange

STATES = "state_precision"
"""What weights, gradients and moments are stored in: part of the training."""


@dataclass(frozen=True, slots=True)
class Run:
    """A job, with the settings of its runtime, and how it is laid out."""

    job: Job
    layout: Layout


@dataclass(frozen=True, slots=True)
class Priced:
    """A run that fits, with what was changed for it."""

    units: tuple[str, ...]
    run: Run
    step_time_s: float
    peak_reserved_bytes: float


def with_options(job: Job, values: Mapping[str, object]) -> Job:
    """The job with other values of some settings of its runtime, or of `STATES`."""
    training = {name: values[name] for name in values.keys() & {STATES}}
    options = {name: value for name, value in values.items() if name != STATES}
    return job.model_copy(
        update={
            "options": job.options.model_copy(update=options),
            "training": job.training.model_copy(update=training),
        }
    )


def filling(values: Mapping[str, object], num_gpus: int) -> Layout | None:
    """The layout with such fields, data parallelism filling the GPUs; null: there is none."""
    try:
        least = Layout.model_validate({**values, "dp": values["dp_replicate"]})
    except ValidationError:  # such values never go together, whatever the job
        return None
    return least.resized(num_gpus)


def field_changes(before: Run, after: Run) -> tuple[FieldDifference, ...]:
    """Fields of the layout and of the runtime's options that differ."""
    one, other = (_fields(run) for run in (before, after))
    return field_differences(one, other)


def _fields(run: Run) -> dict[str, object]:
    options = run.job.options.model_dump(mode="json")
    options[STATES] = run.job.training.state_precision
    return {**run.layout.model_dump(mode="json"), "options": options}


def setting_changes(before: Run, after: Run) -> tuple[SettingChange, ...]:
    """The same as the runtime is told; empty where one of both has no words in it."""
    export = EXPORTERS.get(before.job.runtime)
    if export is None:
        return ()
    try:
        one, other = (dict(export(run.job, run.layout).settings) for run in (before, after))
    except PlanError:
        return ()
    return tuple(_changes(one, other))


def _changes(before: dict[str, str], after: dict[str, str]) -> Iterator[SettingChange]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield SettingChange(name, before.get(name), after.get(name))
