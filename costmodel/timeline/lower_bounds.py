"""What no schedule can beat: seconds below which no order of the passes ends, whoever finds it.

The bound knows the placement, the passes' durations, the messages and the memory, and no schedule.
A schedule that reaches it is optimal; the distance to it is the most that any other can save.
docs/explanation/schedules.md derives every term; tests/properties/test_proof.py tries to beat them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Op, Program, peak_activations
from trainplan.costmodel.timeline.clock import StageSeconds
from trainplan.costmodel.timeline.one_machine_bound import (
    HeadsAndTails,
    heads_and_tails,
    rank_bound,
)
from trainplan.costmodel.timeline.release_times import FORWARD, Route

NO_STAGE = -1
"""Fills the row of a rank that has fewer stages than others."""


EQUALS = 1 + 1e-9
"""Two times whose ratio is smaller differ by rounding alone. Source: assumed."""


def reaches(makespan: float, lower_bound: float) -> bool:
    """Is a makespan its bound, up to rounding?

    Source: no makespan is below its bound, so one above it by no more than EQUALS, which the
    rounding of sums explains, equals it.
    """
    return makespan <= lower_bound * EQUALS


def settled(value: float, lower_bound: float) -> float:
    """A bound, or the value that it bounds where rounding alone tells them apart; never more.

    Source: as `reaches`; no value is below its bound.
    """
    return value if reaches(value, lower_bound) else min(value, lower_bound)


def gap_fraction(makespan: float, lower_bound: float) -> float:
    """By how much a makespan is longer than its bound.

    Source: makespan = (1 + gap) bound, solved for the gap; a bound of 0 has no work and leaves no
    gap.
    """
    return makespan / lower_bound - 1 if lower_bound > 0 else 0.0


@dataclass(frozen=True, slots=True)
class ScheduleLimits:
    """What a schedule has to keep to."""

    p2p: float = 0.0
    """Seconds of a message between two ranks; it occupies nobody."""
    memory: int | IntColumn | None = None
    """Activations a rank may hold at once, of one micro batch through one virtual stage each: one
    number for all ranks, or one for each; null: no limit."""
    splits_backward: bool = True
    """May weight gradients run apart from input gradients?"""


def makespan_lower_bound(
    stages: IntMatrix, seconds: StageSeconds, num_microbatches: int, limits: ScheduleLimits
) -> float:
    """Seconds from the first op to the last that no legal schedule goes below.

    `stages` are the virtual stages of each rank, shape (rank, chunk), as of `placed`;
    `NO_STAGE` where a rank has fewer than others. `seconds` has one candidate.

    A schedule runs the work of every rank, so each rank's bound holds, and the largest does.

    Source: docs/explanation/schedules.md, "One rank" and "One memory".

    Raises:
        SpecError: No schedule exists under the memory limit.
    """
    ends = heads_and_tails(route_of(stages, seconds, num_microbatches, limits))
    return max(rank_bound([ends], rank) for rank in range(len(stages)))


def route_of(
    stages: IntMatrix, seconds: StageSeconds, num_microbatches: int, limits: ScheduleLimits
) -> Route:
    """The walk of micro batches. Parameters and exception as of `makespan_lower_bound`."""
    row, chunk = np.nonzero(stages != NO_STAGE)
    rank = np.empty(len(row), dtype=np.int64)
    rank[stages[row, chunk]] = row
    weight = seconds.weight[0] * limits.splits_backward
    hosted = np.bincount(rank, minlength=len(stages))
    most = hosted * num_microbatches if limits.memory is None else limits.memory
    memory = np.broadcast_to(np.asarray(most, dtype=np.int64), hosted.shape)
    short = np.flatnonzero(memory < hosted)
    if len(short):
        raise SpecError(
            f"rank {short[0]} may hold {memory[short[0]]} activations and no schedule runs its "
            f"{hosted[short[0]]} stages with fewer than {hosted[short[0]]}: raise memory_limit"
        )
    return Route(
        rank,
        before=np.zeros(len(rank)),
        forward=seconds.forward[0],
        backward=seconds.backward[0] - weight,
        after=weight,
        hop=limits.p2p * (rank[1:] != rank[:-1]),
        memory=memory[rank],
        passes=num_microbatches,
    )


def program_lower_bound(
    program: Program, seconds: StageSeconds, p2p: float = 0.0, memory_limit: int | None = None
) -> float:
    """Seconds that no schedule with a program's placement, passes and memory goes below.

    `memory_limit` is that of every rank, in activations of one micro batch through one virtual
    stage; null: the most that any rank of the program holds. Where activations wait on the host,
    any number may be on their way, so no limit counts. Every copy of a model keeps its micro
    batches; chunks of a sequence count with the seconds of the shortest one, and once with all.
    Source: docs/explanation/schedules.md, "Programs".
    """
    if memory_limit is None:
        memory_limit = int(np.ceil(peak_activations(program).max()))
    memory = None if program.copy_lanes else memory_limit * program.sequence_chunks
    limits = ScheduleLimits(p2p, memory, splits_backward=bool((program.kind == Op.WEIGHT).any()))
    routes = [
        heads_and_tails(route_of(stages, _shortest(seconds, program), passes, limits))
        for stages, passes in _copies(program)
    ]
    shares = _shares(program, seconds)
    ranks = range(program.pp)
    bound = max(rank_bound(routes, rank, float(shares[rank])) for rank in ranks)
    return max(bound, _all_work(program, seconds, routes)) if program.sequence_chunks > 1 else bound


def _copies(program: Program) -> Iterator[tuple[IntMatrix, int]]:
    """Stages of each rank in every copy that runs, and the passes through each of them."""
    rank = program.rank_of_stage.reshape(program.copies, program.num_stages)
    forward = program.kind == Op.FORWARD
    for copy, ranks in enumerate(rank):
        if (ranks < 0).any():
            continue
        stages = np.full((program.pp, int(np.bincount(ranks).max())), NO_STAGE, dtype=np.int64)
        for row in range(program.pp):
            own = np.flatnonzero(ranks == row)
            stages[row, : len(own)] = own
        yield stages, int((forward & (program.stage == copy * program.num_stages)).sum())


def _shortest(seconds: StageSeconds, program: Program) -> StageSeconds:
    """Seconds of every stage's shortest pass, of each kind."""
    shape = (1, program.num_stages, program.sequence_chunks)
    forward, weight = seconds.forward.reshape(shape), seconds.weight.reshape(shape)
    sent = (seconds.backward - seconds.weight).reshape(shape).min(axis=2)
    least = weight.min(axis=2)
    return replace(seconds, forward=forward.min(axis=2), backward=sent + least, weight=least)


def _shares(program: Program, seconds: StageSeconds) -> FloatColumn:
    """Seconds of every rank's shares of the output layer.

    Source: every micro batch has both shares on each rank, so a rank needs the seconds of both
    times the number of micro batches.
    """
    none = np.zeros(program.pp)
    if not program.barriers:
        return none
    shares = sum((matrix[0, : program.pp] for matrix in seconds.other[:2]), none)
    return np.asarray(shares * program.num_microbatches)


def _all_work(program: Program, seconds: StageSeconds, routes: list[HeadsAndTails]) -> float:
    """The longest of all ranks' work, with the way to it and home."""
    work = seconds.forward[0] + seconds.backward[0]
    of_stage = work.reshape(program.num_stages, program.sequence_chunks).sum(axis=1)
    bounds = [0.0]
    for rank in range(program.pp):
        heads, tails, busy = [], [], 0.0
        for ends in routes:
            own = np.flatnonzero(ends.route.rank == rank)
            micro_batches = ends.route.passes / program.sequence_chunks
            busy += micro_batches * float(of_stage[own].sum())
            heads += ends.heads[FORWARD, own, 0].tolist()
            tails += [ends.freeing_tails(int(stage))[0] for stage in own]
        bounds.append(min(heads) + busy + min(tails) if heads else 0.0)
    return max(bounds)
