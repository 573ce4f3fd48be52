"""A rule of thumb on a job: what it costs read as it stands, and what however well it is completed.

A rule is steps in order, each a set of layouts. Its best completion is the fastest layout of the
first step on which one fits, or of the first on which one does without moving anything off the GPU,
or also without recomputing whole layers, whichever is fastest. Read as it stands, it is run by a
reader who plans nothing: `Reading`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from thumb_jobs import facts_of, jobs
from thumb_rule import Reading, Step, ThumbRule, among, only, where

from trainplan.costmodel.axes.values import expert_degrees
from trainplan.costmodel.calibration import NOTHING, context_for
from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.layouts.table import FULL, LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.planner import SearchOptions, estimates
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.settings.combinations import Level, combinations
from trainplan.planner.space import Space
from trainplan.planner.space.choices import broken_rules
from trainplan.planner.work.budget import Unlimited

MARGIN = 0.05
"""Share of memory that stays free, of rules and of the search. Source: assumed."""
TIE = 0.05
"""Slower by less is a tie: what the model gets wrong from layout to layout of one job is 5.6 %.
Source: examples/tuning/README.md."""
SCHEDULES = ("1f1b", "interleaved")
"""Of pipelines, on both sides: with all that torchtitan has a search takes minutes."""
ANY = sys.float_info.max
"""Seconds that every layout beats: a search that finds none does not tell why."""
Best = tuple[float, LayoutTable] | None


PLAIN: Step = (
    *only(dp_replicate=1, cp_heads=1, tiled_loss=0, tiled_mlp=0, offload_modules=0),
    *only(offload_optimizer=0, offload_parameters=0, offload_checkpoints=0),
)
"""Axes that readings have."""


@dataclass(frozen=True)
class Yardstick:
    """What the search finds for a job: with all it searches, and with the axes of readings."""

    seconds: float
    winner: LayoutTable
    same_axes_seconds: float | None


def fastest(job: Job, step: Step, level: Level, found: Best = None) -> Best:
    """The fastest layout of a step over settings of the runtime, or `found` if none is faster."""
    names = [SCHEDULE_NAMES.index(name) for name in SCHEDULES]
    rules = (*step, among("schedule", *names), among("etp", 1))
    context = SearchContext.of(job, SearchOptions(memory_margin=MARGIN), NOTHING, Unlimited())
    every = [one for one in combinations(context, level) if not one.covered]
    for one in sorted(every, key=lambda one: -len(one.settings)):
        inside = replace(context.with_job(one.job), only=(*rules, *one.only))
        result = inside.search().run(Unlimited(), found[0] if found else ANY)
        if result.finalists is not None:
            found = result.value, result.finalists.take(np.array([0]))
    return found


@cache
def yardstick(job: Job) -> Yardstick | None:
    """None where nothing fits."""
    held = fastest(job, PLAIN, "none")
    free = fastest(job, (), "safe", held)
    return Yardstick(*free, held[0] if held else None) if free else None


def passes(job: Job, step: Step, table: LayoutTable) -> BoolColumn:
    """Which layouts are of the step?"""
    allowed = np.ones(len(table), dtype=bool)
    for rule in step:
        allowed &= ~rule.broken(job, table)
    return allowed


def best_of_steps(job: Job, steps: Sequence[Step], known: Yardstick) -> Best:
    """The rule's best completion; the search's own answer where the rule allows it."""

    def best(step: Step) -> Best:
        if passes(job, step, known.winner)[0]:
            return known.seconds, known.winner
        return fastest(job, step, "safe")

    first = next((one for step in steps if (one := best(step))), None)
    if first is None or len(steps) == 1 or first[0] <= known.seconds:
        return first
    for more in (PLAIN, (*PLAIN, where("recompute", lambda table: table.recompute != FULL))):
        others = (fastest(job, (*step, *more), "safe") for step in steps)
        first = min(first, next((one for one in others if one), first), key=_s)
    return first


def as_read(job: Job, reading: Reading, steps: Sequence[Step]) -> tuple[int, Best]:
    """Legal layouts that a reader may come to, and the fastest of the two that are run.

    One is the first that fits, the other the first that does without recomputing whole layers: of
    the earliest step, with the least model parallelism and fewest pipeline ranks (of experts:
    tensor ranks). Of both, what the reading sweeps is swept.
    """
    table = _readings(job, reading)
    step = np.full(len(table), len(steps))
    for place in reversed(range(len(steps))):
        step[passes(job, steps[place], table)] = place
    inside = np.flatnonzero(step < len(steps))
    rows = inside[_legal(job, table.take(inside))]
    if not len(rows):
        return 0, None
    table = table.take(rows[_order(job, reading, table.take(rows), step[rows])])
    priced = estimates(job, table, memory_margin=MARGIN)
    fits = priced.fits, priced.fits & (table.recompute != FULL)
    firsts = sorted({int(np.argmax(one)) for one in fits if one.any()})
    if not firsts:
        return len(table), None
    if reading.swept:
        return len(table), min(
            (_swept(job, reading, table.take(np.array([n]))) for n in firsts), key=_s
        )
    ran = [(float(priced.step_time_s[n]), table.take(np.array([n]))) for n in firsts]
    return len(table), min(ran, key=_s)


def _s(pair: tuple[float, LayoutTable]) -> float:
    return pair[0]


def _swept(job: Job, reading: Reading, row: LayoutTable) -> tuple[float, LayoutTable]:
    """The fastest of a layout with all micro batches and ways to recompute."""
    sizes = Space(context_for(job)).micro_batches
    policies = LayoutTable.of(_policies(job, reading))
    each = np.repeat(np.arange(len(policies)), len(sizes))
    names = ("recompute", "recompute_modules", "recompute_method", "recompute_num_layers")
    ways = {name: getattr(policies, name)[each] for name in names}
    ways["micro_batch_size"] = np.tile(np.array(sizes), len(policies))
    table = row.take(np.zeros(len(each), dtype=np.int64)).replaced(**ways)
    table = table.take(_legal(job, table))
    priced = estimates(job, table, memory_margin=MARGIN)
    seconds = np.where(priced.fits, priced.step_time_s, np.inf)
    place = int(np.argmin(seconds))
    return float(seconds[place]), table.take(np.array([place]))


def _legal(job: Job, table: LayoutTable) -> BoolColumn:
    return np.array([not broken for broken in broken_rules(job, table)], dtype=bool)


def _order(job: Job, reading: Reading, table: LayoutTable, step: IntColumn) -> IntColumn:
    """Rows as a reader tries them; the last key counts most."""
    stages = np.array(reading.zero_stages)
    zero = np.argmax(table.zero_stage[:, None] == stages, axis=1)
    degree = table.tp * table.pp * table.cp * table.ep
    fewest = table.tp if job.model.moe else table.pp
    keys = (table.recompute, -table.micro_batch_size, fewest, degree, zero, step)
    return np.asarray(np.lexsort(keys))


def _readings(job: Job, reading: Reading) -> LayoutTable:
    """All splits of the GPUs with what the reading leaves to a reader."""
    space = Space(context_for(job))
    sizes = (1,) if reading.swept else space.micro_batches
    choices = product(
        expert_degrees(job, space.traits), sizes, reading.zero_stages, _policies(job, reading)
    )
    return LayoutTable.concat(_completed(job, reading, space, chosen) for chosen in choices)


def _policies(job: Job, reading: Reading) -> list[Layout]:
    """Layouts with each way to recompute that the reading has."""
    own, model = traits_of(job).recompute.policy, job.model
    modules = (own,) if own else ()
    if model.moe and not own:
        modules = ("layernorm", "moe_act", *(("mla_up_proj",) if model.mla else ()))
    every = {
        "none": Layout(),
        "full": Layout(recompute="full", recompute_method="uniform", recompute_num_layers=1),
    }
    if modules:
        every["selective"] = Layout(recompute="selective", recompute_modules=modules)
    return [every[name] for name in reading.recompute if name in every]


def _completed(
    job: Job, reading: Reading, space: Space, chosen: tuple[int, int, int, Layout]
) -> LayoutTable:
    ep, size, zero, policy = chosen
    degrees = space.degree_table
    row = LayoutTable.of([policy.model_copy(update={"ep": ep, "micro_batch_size": size})])
    same = row.take(np.zeros(len(degrees), dtype=np.int64))
    vpp = np.array([_virtual_stages(job, reading, pp) for pp in degrees.pp.tolist()])
    schedules = [SCHEDULE_NAMES.index(name) for name in SCHEDULES]
    return same.replaced(
        **{name: getattr(degrees, name) for name in ("tp", "pp", "cp", "dp")},
        vpp=vpp,
        zero_stage=np.full(len(degrees), zero),
        schedule=np.where(vpp > 1, schedules[1], schedules[0]),
        sequence_parallel=(degrees.tp > 1).astype(np.int64),
    )


def _virtual_stages(job: Job, reading: Reading, pp: int) -> int:
    """Of a rank: one, or the middle one of the divisors of its layers."""
    if pp == 1 or reading.virtual_stages == "one":
        return 1
    layers = -(-job.model.num_hidden_layers // pp)
    divisors = [n for n in range(1, layers + 1) if layers % n == 0]
    return divisors[len(divisors) // 2]


def shown(table: LayoutTable) -> str:
    """A layout in a few words."""
    row = table.row(0)
    degrees = ("tp", "pp", "vpp", "cp", "dp", "ep")
    some = [f"{n} {getattr(row, n)}" for n in degrees if getattr(row, n) > 1 or n == "dp"]
    some += [f"mbs {row.micro_batch_size}", f"zero {row.zero_stage}"]
    more = {
        f"recompute {row.recompute}": row.recompute != "none",
        "offload": row.offload.optimizer or row.offload.parameters or row.offload.checkpoints,
        "tiled": row.tiled_loss or row.tiled_mlp,
    }
    return " ".join([*some, *(name for name, on in more.items() if on)])


def scored(rule: ThumbRule, name: str) -> dict[str, object] | None:
    """One rule on one job; None where the rule is silent or nothing at all fits."""
    job = jobs()[name].model_copy(update={"runtime": rule.runtime})
    steps = rule.steps(facts_of(job))
    known = yardstick(job) if steps else None
    if steps is None or known is None:
        return None
    legal, read = _read(job, rule.reading, steps)
    best = best_of_steps(job, steps, known)
    if best is None:
        return {"verdict": "out of memory" if legal else "illegal"}
    best = min(best, read or best, key=_s)
    found: dict[str, object] = {
        "verdict": "fits" if read or not rule.reading else "out of memory as read"
    }
    found |= {"best": _loss(best[0], known.seconds), "best_layout": shown(best[1])}
    if read:
        found["read"] = _loss(read[0], known.seconds)
        if known.same_axes_seconds:
            found["read_same_axes"] = _loss(read[0], known.same_axes_seconds)
        found |= {"read_layout": shown(read[1])}
    return found


def _read(job: Job, reading: Reading | None, steps: Sequence[Step]) -> tuple[int, Best]:
    """Legal layouts of a reading and the one that is run; of a tool what it finds fastest."""
    legal, first = as_read(job, reading or Reading(), steps)
    if reading is None:
        return legal, None
    return legal, fastest(job, (*steps[0], *PLAIN), "none") if reading.runs_all else first


def _loss(seconds: float, search: float) -> float:
    """How much slower, as a fraction; rounded so that results read well."""
    return round(seconds / search - 1, 4)
