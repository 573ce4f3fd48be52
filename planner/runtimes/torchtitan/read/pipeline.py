"""The pipeline of a config: its schedule, and the layers of every stage."""

import re
from collections.abc import Sequence
from math import ceil

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, Schedule, StageSpec, stage_specs
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.schedules import TORCH_CLASSES
from trainplan.planner.runtimes.torch_schedule_csv import schedule_csv
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.read.config import Config
from trainplan.planner.runtimes.torchtitan.write.schedule import priced_program

SINGLE = ("1f1b", "gpipe")
"""Classes with one stage a rank."""
CLASSES: dict[str, Schedule] = {
    **{name.lower(): schedule for schedule, name in TORCH_CLASSES.items()},
    "interleavedzerobubble": "zb-h1",
}
ABSTRACT = ("pipelineschedulesingle", "pipelineschedulemulti")
"""Names that stand beside a table of ops alone."""
TABLES: tuple[Schedule, ...] = ("zb-h1", "zb-h2", "v-half", "v-min")
"""Schedules our exporter writes as tables."""


def schedule_of(config: Config) -> Schedule:
    """The schedule by its class; what torch does not know stops the runtime."""
    name = config.of(key.SCHEDULE)
    if name.lower() in ABSTRACT:
        return "1f1b"
    if name.lower() not in CLASSES:
        known = ", ".join((*TORCH_CLASSES.values(), "InterleavedZeroBubble"))
        config.stops(
            "unknown_schedule",
            f"torch has no schedule {name!r}: use {known}",
            key.SCHEDULE,
        )
    return CLASSES.get(name.lower(), "1f1b")


def stages_of(
    config: Config, schedule: Schedule, pp: int, layers: int
) -> tuple[StageSpec, ...] | None:
    """Virtual stages in order, or null where the runtime stops."""
    counts = _listed(config, layers) or _by_itself(config, schedule, pp, layers)
    if counts is None:
        return None
    if len(counts) % pp or (schedule in ("zb-v", "dualpipe-v") and len(counts) != 2 * pp):
        config.stops(
            "stages_fill_ranks",
            f"{len(counts)} stages do not fall on {pp} pipeline ranks under {schedule}: make them "
            "a multiple, and two a rank under a V",
            key.MODULES,
            key.PP,
            key.SCHEDULE,
        )
        return None
    return stage_specs(counts)


def _listed(config: Config, layers: int) -> tuple[int, ...] | None:
    entry = config.entries.get(key.MODULES.name)
    if entry is None or entry.value is None:
        return None
    parts = entry.value
    if not isinstance(parts, Sequence) or not all(isinstance(part, list) for part in parts):
        config.problem(
            "unread_value", "unread", f"{key.MODULES} cannot be read: give it in full", key.MODULES
        )
        return None
    counts = tuple(sum(bool(LAYER.fullmatch(str(name))) for name in part) for part in parts)
    if sum(counts) != layers:
        config.stops(
            "stages_hold_the_model",
            f"{key.MODULES} names {sum(counts)} layers of {layers}: name each once",
            key.MODULES,
        )
        return None
    return counts


LAYER = re.compile(r"layers\.[0-9]+")


def _by_itself(config: Config, schedule: Schedule, pp: int, layers: int) -> tuple[int, ...] | None:
    """Embedding and head count as layers of the first and the last stage.

    Source: torchtitan/distributed/pipeline_parallel.py, _get_pipeline_metadata and
    _generate_llm_fqn_per_model_part.
    """
    first = config.of(key.FIRST_LESS)
    last = config.of(key.LAST_LESS)
    entry = config.entries.get(key.PER_STAGE.name)
    whole = layers + first + last
    each = entry.value if entry and isinstance(entry.value, int) and entry.value > 0 else None
    stages = ceil(whole / each) if each else pp * (1 if schedule in SINGLE else 2)
    wrong = each and (stages % pp or (stages == pp) != (schedule in SINGLE))
    least, extra = divmod(whole, stages)
    if wrong or least < max(first, last, 1):
        config.stops(
            "stages_fill_ranks",
            f"{layers} layers make no {stages} stages for {pp} ranks under {schedule}: change "
            "pipeline_parallel_layers_per_stage or the degree",
            key.PER_STAGE,
            key.PP,
            key.SCHEDULE,
            key.MODULES,
        )
        return None
    counts = [least + (stage < extra) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    return tuple(counts)


def evenly_or(stages: tuple[StageSpec, ...], layers: int) -> tuple[StageSpec, ...] | None:
    """Null where the stages are our own even split."""
    even = stages == stage_specs(layers_per_stage(layers, len(stages)))
    return None if even else stages


def by_table(config: Config, job: Job, layout: Layout, text: str | None) -> Layout | None:
    """The layout under the schedule whose table this is; null: it is none of ours."""
    if text is None:
        config.problem(
            "missing_file",
            "unread",
            "the table of the schedule is not there: give it",
            key.SCHEDULE_CSV,
        )
        return None
    for schedule in TABLES:
        one = layout.model_copy(update={"schedule": schedule})
        try:
            same = schedule_csv(priced_program(job, one)) == text
        except PlanError:  # not in this shape
            continue
        if same:
            return one
    config.problem(
        "own_schedule",
        "unmodelled",
        "the table of ops is none that a layout names: `plan schedule --from-csv` takes it",
        key.SCHEDULE_CSV,
    )
    return None
