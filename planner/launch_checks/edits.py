"""The fewest edits of a launch that bring most of what the best layout would.

Fields that mean nothing alone change together (a unit); every set of up to `MOST_EDITS` units of
those in which the launch and the optimum differ is priced, the schedule simulated, and the smallest
that brings `MOST` of the gain is taken: no smaller set of units does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, place
from trainplan.planner.comparisons import FieldDifference
from trainplan.planner.launch_checks.changed import (
    STATES,
    Priced,
    Run,
    field_changes,
    filling,
    setting_changes,
    with_options,
)
from trainplan.planner.launch_checks.notes import edit_notes
from trainplan.planner.questions import estimates
from trainplan.planner.runtimes import SettingChange
from trainplan.planner.space import broken_rules

MOST = 0.8
"""Share of the gain that is most of it."""
WORTH = 5e-3
"""Edits that save a smaller share of a step are not worth making."""
SAME = 1e-3
"""A step longer by a smaller share is as short: edits that bring no more are not listed."""
MOST_EDITS = 4
"""Units that a short list of edits has at most; with more, the optimum is as easily taken whole."""
TOGETHER = {
    "sequence_parallel": "tp",
    "vpp": "pp",
    "schedule": "pp",
    "stages": "pp",
    "etp": "ep",
    "dp_replicate": "zero_stage",
    "replicas_share_optimizer": "zero_stage",
    "hpz": "zero_stage",
    "recompute_modules": "recompute",
    "recompute_method": "recompute",
    "recompute_num_layers": "recompute",
    "options.overlap_param_gather": "options.overlap_grad_reduce",
}
"""Axes and options that change with another; any other is a unit by itself. `dp` follows from the
rest."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A set of edits and what the launch is with it."""

    units: tuple[str, ...]
    """What is changed: axes, each with those that go along, and options of the runtime."""
    count: int
    """Axes and options that have another value, but those that follow from others."""
    run: Run
    fields: tuple[FieldDifference, ...]
    settings: tuple[SettingChange, ...]
    """In the runtime's own words; empty where it has none for the launch as it is."""
    step_time_s: float
    peak_reserved_bytes: float
    saved_s: float | None
    """Of the step; null where its layout as it is cannot run."""
    notes: tuple[str, ...] = ()
    """What they need and rest on."""


def fewest_edits(
    launch: Run,
    optimum: Run | None,
    own_step_s: float | None,
    measured: Measured = NOTHING,
    *,
    memory_margin: float = 0.0,
    cures: Sequence[Priced] = (),
) -> tuple[Edit, ...]:
    """The smallest set that brings most of the gain, then the whole optimum where that is faster.

    None where they save less than `WORTH`. `own_step_s` is the step of the launch; null where its
    layout cannot run: then `cures` come first, or the smallest set of the optimum that runs.
    """
    first, alone = cures, tuple(_edit(launch, one, own_step_s) for one in cures)
    if optimum is None:
        return alone
    names = _units_that_differ(launch, optimum)
    whole, found = tuple(names), list(_sets(names))
    priced = _priced(launch, optimum, found, measured, memory_margin)
    best = next((one for one in priced if one.units == whole), None)
    if best is None:
        return alone
    target = best.step_time_s
    if own_step_s is not None and best.step_time_s > own_step_s * (1 - WORTH):
        return ()
    if own_step_s is not None:
        target = own_step_s - MOST * (own_step_s - best.step_time_s)
    if own_step_s is None and not first:
        first = [min(priced, key=lambda one: (len(one.units), one.step_time_s))]
    small = [one for one in priced if one.step_time_s <= target or len(one.units) == len(whole)]
    least = min(small, key=lambda one: (len(one.units), one.step_time_s))
    chosen = [*first, least]
    if least.step_time_s > best.step_time_s * (1 + SAME):
        chosen.append(best)
    return tuple(_edit(launch, one, own_step_s) for one in dict.fromkeys(chosen))


def _units_that_differ(launch: Run, optimum: Run) -> Mapping[str, None]:
    names: dict[str, None] = {}
    for axis in AXES:
        if axis.name != "dp" and axis.of(launch.layout) != axis.of(optimum.layout):
            names[TOGETHER.get(axis.name, axis.name)] = None
    one, other = launch.job.options, optimum.job.options
    for name in type(one).model_fields:
        if getattr(one, name) != getattr(other, name):
            names[_option(name)] = None
    return names


def _option(name: str) -> str:
    """The unit of an option."""
    return TOGETHER.get(f"options.{name}", f"options.{name}")


def _sets(names: Mapping[str, None]) -> Iterator[tuple[str, ...]]:
    """All small ones, the smallest first, then the whole."""
    for count in range(1, min(MOST_EDITS, len(names) - 1) + 1):
        yield from combinations(names, count)
    if names:
        yield tuple(names)


def _priced(
    launch: Run,
    optimum: Run,
    sets: Sequence[tuple[str, ...]],
    measured: Measured,
    memory_margin: float,
) -> list[Priced]:
    """Those that are legal and fit; sets with the same options are priced at once."""
    by_job: dict[Job, list[tuple[tuple[str, ...], Layout]]] = {}
    for units in sets:
        run = with_units(launch, optimum, units)
        if run is not None:
            by_job.setdefault(run.job, []).append((units, run.layout))
    found = []
    for job, rows in by_job.items():
        rules = broken_rules(job, LayoutTable.of([layout for _, layout in rows]))
        legal = [row for row, broken in zip(rows, rules, strict=True) if not broken]
        some = estimates(job, [one for _, one in legal], measured, memory_margin=memory_margin)
        for place_ in np.flatnonzero(some.fits):
            units, layout = legal[place_]
            step, used = some.step_time_s[place_], some.peak_reserved_bytes[place_]
            found.append(Priced(units, Run(job, layout), float(step), float(used)))
    return found


def with_units(launch: Run, optimum: Run, units: tuple[str, ...]) -> Run | None:
    """The launch with some units of the optimum, data parallelism filling the cluster."""
    layout = _layout(launch.layout, optimum.layout, units, launch.job.cluster.num_gpus)
    if layout is None:
        return None
    options = dict(optimum.job.options)
    taken = {name: value for name, value in options.items() if _option(name) in units}
    return Run(with_options(launch.job, taken), layout)


def _layout(own: Layout, best: Layout, units: tuple[str, ...], num_gpus: int) -> Layout | None:
    values: dict[str, object] = {}
    for axis in AXES:
        taken = TOGETHER.get(axis.name, axis.name) in units
        place(values, axis.name, axis.of(best if taken else own))
    return filling(values, num_gpus)


def _count(one: Run, other: Run) -> int:
    axes = {a.name for a in AXES if a.of(one.layout) != a.of(other.layout)} - {"dp"}
    own, new = (
        {**dict(run.job.options), STATES: run.job.training.state_precision} for run in (one, other)
    )
    return len(axes - {"schedule"} or axes) + len([name for name in own if own[name] != new[name]])


def _edit(launch: Run, one: Priced, own_step_s: float | None) -> Edit:
    return Edit(
        units=one.units,
        count=_count(launch, one.run),
        run=one.run,
        fields=field_changes(launch, one.run),
        settings=setting_changes(launch, one.run),
        step_time_s=one.step_time_s,
        peak_reserved_bytes=one.peak_reserved_bytes,
        saved_s=None if own_step_s is None else own_step_s - one.step_time_s,
        notes=tuple(edit_notes(launch, one.run)),
    )
