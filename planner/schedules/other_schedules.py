"""What schedules that the runtime does not execute would make of a layout."""

import numpy as np

from trainplan.costmodel.axes import RULES
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.layout import SCHEDULE_NAMES, Layout, Schedule
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.runtimes import executed_by
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import price, step_seconds
from trainplan.planner.plan import OtherSchedule

MOST_RANKS = 6
"""Pipeline ranks of schedules that repeat a pattern, each of them filled anew: it takes a second
for more. Source: measured; `plan schedule --kind v-half` makes them of any size."""
MOST_PASSES = 1 << 14
"""Passes of all ranks in one direction, of schedules whose order suits the durations: it takes a
second for more. Source: measured; `plan schedule --kind zb-1p` orders any number."""


def other_schedules(on: Context, layout: Layout, memory_margin: float) -> tuple[OtherSchedule, ...]:
    """The same degrees under every schedule the runtime lacks, fastest first, then by memory.

    Passes cost what they cost on the job's runtime, and every rank waits for the others at the end
    of a step. Schedules that do not run in this shape are left out; without a pipeline all are.
    What does not fit is not simulated; patterns of more than `MOST_RANKS` ranks, and orders of more
    than `MOST_PASSES` passes, are left out too.
    Layouts whose stages name their node groups have none: the ranks of another placement would lie
    elsewhere.
    """
    if layout.pp == 1 or any(stage.group for stage in layout.stages or ()):
        return ()
    job = on.job
    names = [name for name in SCHEDULE_NAMES if name not in on.traits.pipeline.schedules]
    passes = layout.pp * job.training.global_batch_size // (layout.dp * layout.micro_batch_size)
    layouts = [under(on, layout, name) for name in names if _quick(name, layout.pp, passes)]
    table = LayoutTable.of([layout, *layouts]).take(np.arange(1, len(layouts) + 1))
    for rule in RULES:
        table = table.take(~rule.broken(job, table))
    if not len(table):
        return ()
    candidates = on.with_table(table)
    used = price(candidates).memory.used
    fits = used <= on.machine.memory_bytes * (1 - memory_margin)
    seconds = np.full(len(table), np.inf)
    if fits.any():
        seconds[fits] = step_seconds(candidates.take(fits))
    order = np.lexsort((used, seconds)).tolist()
    microbatches = num_microbatches(job, table).tolist()
    return tuple(
        _other(table.row(row), microbatches[row], seconds[row], used[row]) for row in order
    )


def _quick(name: Schedule, pp: int, passes: int) -> bool:
    """Is its order known, or short? What suits the durations has to be tried out."""
    if not SCHEDULES[name].adapts:
        return True
    return pp <= MOST_RANKS if SCHEDULES[name].repeats else passes <= MOST_PASSES


def _other(layout: Layout, microbatches: int, seconds: float, used_bytes: float) -> OtherSchedule:
    fits = bool(np.isfinite(seconds))
    return OtherSchedule(
        schedule=layout.schedule,
        vpp=layout.vpp,
        step_time_s=float(seconds) if fits else None,
        peak_reserved_bytes=float(used_bytes),
        fits=fits,
        executed_by=executed_by(layout.schedule, layout.pp, microbatches),
    )


def under(on: Context, layout: Layout, schedule: Schedule) -> Layout:
    """The layout under another schedule, with the nearest number of virtual stages it runs with.

    With another number stages are even. No stage recomputes more layers than it then holds.
    """
    most, least = SCHEDULES[schedule].most_vpp, SCHEDULES[schedule].least_vpp
    vpp = max(least, min(layout.vpp, most))
    largest = -(-on.job.model.num_hidden_layers // (layout.pp * vpp))
    number = layout.recompute_num_layers
    again = min(number, largest) if number else None
    stages = layout.stages if vpp == layout.vpp else None
    changed = {"schedule": schedule, "vpp": vpp, "recompute_num_layers": again, "stages": stages}
    return layout.model_copy(update=changed)
