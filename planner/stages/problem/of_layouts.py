"""The layouts of a table, each as a problem of its own, and the least that its splits offload."""

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel.block_costs import block_costs, layer_counts
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, IntColumn, objects
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import Costed, boundary_seconds, on_groups, price_heterogeneous
from trainplan.planner.policies import (
    Fractions,
    most_within,
    range_from,
    with_fraction,
    with_least_of,
)
from trainplan.planner.stages.problem.memory import first_layers, fullest_moment, least_in_transit
from trainplan.planner.stages.problem.problem import GroupCosts, StageProblem
from trainplan.planner.stages.problem.traffic import least_tails


def stage_problems(
    candidates: Candidates,
    memory_bytes: Sequence[float],
    ranges: Sequence[Fractions] = (),
    *,
    order: Sequence[int] = (),
    alike: bool = False,
) -> list[StageProblem]:
    """The layouts of a table, one by one, each free to offload as far as its own range goes.

    On equal nodes, or pipeline ranks in node groups, the groups in an order. `memory_bytes` are
    those of each group.
    """
    table, machines = candidates.table, [candidates]
    if order:
        plain = table.replaced(stages=objects([None] * len(table)))
        machines = on_groups(candidates.with_table(plain))
    priced = [Costed.of(one, merged=False) for one in machines]
    parts = [_costs(one, usable, ranges) for one, usable in zip(priced, memory_bytes, strict=True)]
    found = []
    for row, own in enumerate(zip(*parts, strict=True)):
        one, pp, vpp = own[0].table, int(table.pp[row]), int(table.vpp[row])
        group = np.zeros(pp, dtype=np.int64)
        p2p = np.full(max(1, pp * vpp - 1), float(priced[0].seconds.p2p[row]))
        wire = np.zeros_like(p2p)
        if order:
            group = ranks_in_order(
                candidates.job, int(table.tp[row] * table.cp[row] * table.dp[row]), order
            )
            stages = np.empty(pp * vpp, dtype=np.int64)
            stages[_stage_of(priced[0], row)] = group[:, None]
            (p2p,), (wire,) = boundary_seconds(candidates.with_table(one), stages[None])
        found.append(
            StageProblem(
                *candidates.shared,
                own,
                group,
                int(priced[0].microbatches[row]),
                p2p,
                wire,
                offloads=range_from(float(one.offload_optimizer[0]), ranges),
                alike=alike,
            )
        )
    return found


def ranks_in_order(job: Job, rank_gpus: int, order: Sequence[int]) -> IntColumn:
    """Node group of every pipeline rank of `rank_gpus` GPUs, the groups in an order."""
    counts = [job.cluster.groups[one].num_gpus // rank_gpus for one in order]
    return np.repeat(np.array(order), counts)


def _costs(priced: Costed, memory_bytes: float, ranges: Sequence[Fractions]) -> list[GroupCosts]:
    """Every row on one machine; bytes are those of the most of its range that may be offloaded."""
    fraction = priced.table.offload_optimizer
    costs = block_costs(priced).with_room(most_within(fraction, ranges) - fraction)
    tails = least_tails(priced, costs)
    return [
        GroupCosts(
            *priced.shared,
            priced.table.take(np.array([row])),
            memory_bytes,
            costs.take(np.array([row])),
            _transients(priced, row),
            float(priced.memory.outside_bytes[row]),
            tails[..., row],
        )
        for row in range(len(priced.table))
    ]


def _stage_of(priced: Costed, row: int) -> IntColumn:
    """Virtual stage of each (rank, chunk) of a row."""
    table = priced.table
    name = SCHEDULE_NAMES[table.schedule[row]]
    return placed(SCHEDULES[name].placement, int(table.pp[row]), int(table.vpp[row]))


def _transients(priced: Costed, row: int) -> FloatColumn:
    """Bytes that live for a moment on each rank, with the least that is in transit in any split."""
    table = priced.table
    name, pp, vpp = SCHEDULE_NAMES[table.schedule[row]], int(table.pp[row]), int(table.vpp[row])
    own = priced.memory.transients[:pp, row]
    if not table.offload_modules[row]:
        return own
    full = min(int(priced.microbatches[row]), SCHEDULES[name].rounds_to_fill * pp)
    passes = fullest_moment(name, pp, vpp, full)
    layers = least_in_transit(first_layers(priced.job.model), _stage_of(priced, row), passes)
    last = priced.gathered.layers[priced.job.model.kind_of_layer[-1]]
    return own + layers * float(last.copies.freed_bytes[row])


def least_offloaded(problem: StageProblem, table: LayoutTable) -> LayoutTable:
    """Splits of a layout with the least fraction of its own with which each fits, or its largest.

    Source: as `planner.space.offload`.
    """
    if problem.offloads is None:
        return table
    none = problem.with_table(with_fraction(table, 0.0))
    equal = len(problem.parts) == 1
    one = Costed.of(none, merged=False) if equal else price_heterogeneous(none).whole
    return with_least_of(table, one.memory, problem.rank_memory, problem.offloads)


def exactly(problem: StageProblem) -> StageProblem:
    """The same where every split offloads what the table says."""
    if problem.offloads is None:
        return problem
    return problem.with_room(problem.offloads.least - problem.offloads.most, None)


def faster_than(problem: StageProblem, value_s: float) -> StageProblem:
    """The same without fractions with which no split takes less than some seconds.

    Source: derived; ranks that never wait, and the mean rank, which moves its share.
    """
    if problem.offloads is None:
        return problem
    layers, (pp, _, microbatches) = layer_counts(problem.job.model.kind_of_layer), problem.shape
    costs, (least, most, step) = problem.costs, problem.offloads
    passes = sum(n * float(costs.pair[:, kind].min()) for kind, n in layers)
    moved = sum(n * float(costs.offload[:, kind].min()) for kind, n in layers) / pp
    left = value_s - passes * microbatches / pp
    if moved <= 0 or left * least >= moved:
        return problem
    last = min(most, max(least, left * least / moved + step))
    return problem.with_room(last - most, problem.offloads._replace(most=last))
