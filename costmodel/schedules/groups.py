"""Interleaved 1F1B in groups that a run states: named `interleaved:8`, as any other schedule.

With groups of pp the output of the last rank is wanted on the first one as soon as it is there, so
its message is waited for; larger groups leave it time, for more activations in flight. Micro
batches that fill no groups of pp run in larger ones alone.
Source: NVIDIA/Megatron-LM @d98e8a64 `megatron/core/pipeline_parallel/schedules.py`,
get_pp_rank_microbatches, get_schedule_table and forward_backward_pipelining_with_interleaving.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial

from trainplan.costmodel.plugins import Registry
from trainplan.costmodel.program import Program, RelativeSeconds, Shape
from trainplan.costmodel.schedules.programs.one_forward_one_backward import (
    INTERLEAVED,
    group_runs,
    interleaved_held,
)
from trainplan.costmodel.schedules.schedule import ALL_MICROBATCHES, Schedule

GROUPED = "interleaved"
"""The schedule whose groups a runtime may be given."""


@lru_cache(maxsize=4096)
def group_size(stated: int | str | None, pp: int, microbatches: int) -> int:
    """Micro batches of a group: of `least` as few as run, of `double` twice pp; null: pp."""
    if stated == "least":
        sizes = range(pp, microbatches + 1)
        return next((one for one in sizes if group_runs(one, pp, microbatches)), pp)
    return 2 * pp if stated == "double" else int(stated or pp)


def grouped(name: str, stated: int | str | None, pp: int, microbatches: int) -> str:
    """Name of a schedule in its groups: its own where nothing else is stated, or does not run."""
    if stated is None or name != GROUPED:
        return name
    size = group_size(stated, pp, microbatches)
    own = size == pp or not group_runs(size, pp, microbatches)
    return name if own else f"{name}:{size}"


class Schedules(Registry[Schedule]):
    """Schedules by name, in groups of any size too."""

    def __init__(self, ours: Mapping[str, Schedule]) -> None:
        super().__init__("schedules", ours, Schedule)

    def __getitem__(self, name: str) -> Schedule:
        base, _, size = name.partition(":")
        return _in_groups(int(size)) if base == GROUPED and size else super().__getitem__(name)


@lru_cache(maxsize=256)
def _in_groups(size: int) -> Schedule:
    """Its order does not repeat every pp micro batches, so it is run whole. Source: the module."""
    return replace(
        INTERLEAVED,
        program=partial(_program, size),
        held=partial(interleaved_held, size=size),
        rounds_to_fill=ALL_MICROBATCHES,
        rules=(),
        options=frozenset(),
        repeats=False,
    )


def _program(size: int, shape: Shape, relative: RelativeSeconds) -> Program:
    return INTERLEAVED.program(shape._replace(microbatch_group_size=size), relative)
