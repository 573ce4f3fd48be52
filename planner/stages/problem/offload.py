"""What a split of a layout offloads: the least with which it fits, of a range."""

from __future__ import annotations

from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import price
from trainplan.costmodel.step.block_costs import layer_counts
from trainplan.costmodel.step.heterogeneous import price_heterogeneous
from trainplan.planner.policies import with_fraction, with_least_of
from trainplan.planner.stages.problem.problem import StageProblem


def least_offloaded(problem: StageProblem, table: LayoutTable) -> LayoutTable:
    """Splits of a layout with the least fraction of its own with which each fits, or its largest.

    Source: as `planner.space.offload`.
    """
    if problem.offloads is None:
        return table
    none = problem.with_table(with_fraction(table, 0.0))
    one = price(none, merged=False) if len(problem.parts) == 1 else price_heterogeneous(none).whole
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
