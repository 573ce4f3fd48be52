"""A bound of the step time that holds for every split of the layers, for many layouts at once.

Any weights of the paths of a pipeline that sum to one give a bound: the step is no shorter than
their mean. The weights that make the mean path cross every rank alike leave a split nothing to
gain. They depend on the shape of the pipeline alone, so one small linear program serves all
layouts of that shape.

Source: linear programming duality; a maximum is no less than any mean of what it is taken over.
"""

import numpy as np

from trainplan.costmodel.block_costs import (
    EMBEDDING,
    HEAD,
    MTP,
    BlockCosts,
    layer_counts,
    usual_layers,
)
from trainplan.costmodel.columns import FloatColumn, IntColumn, distinct
from trainplan.costmodel.layouts import FULL, UNIFORM
from trainplan.costmodel.memory import RankParams
from trainplan.costmodel.step import Costed, with_overhead
from trainplan.costmodel.traffic import gather_overlap, reduction_overlap, step_traffic
from trainplan.planner.stages.bounds.layer_capacity import (
    layer_capacities,
    least_update,
    may_fit,
    states_may_fit,
)
from trainplan.planner.stages.bounds.mean_paths import Crossings, PathPool, seed_paths
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.bounds.rank_paths import RankPaths
from trainplan.planner.stages.problem.chunks import longest_chunks, recomputed_line, spread_sum


def split_bound(of: PricedGroups, pipeline_s: float, pool: PathPool) -> FloatColumn:
    """Seconds that no split of the layers of each row goes below, if that is less than a limit.

    Where no split is faster than the limit, some number that is not less than it, or a bound;
    infinite where none fits. Cheap bounds come first: each spares later ones some rows. Each holds
    for every split by itself, so the largest does.
    Source: as `states_bound`; `may_fit`; the mean path of the module; the paths that stay on a
    rank.
    """
    every = [_split_bound(one, pipeline_s, pool) for one in of.bounding]
    return np.asarray(np.max(every, axis=0))


def _split_bound(of: PricedGroups, pipeline_s: float, pool: PathPool) -> FloatColumn:
    """As `split_bound`, of layers of the kinds that the costs have."""
    table, (priced,), (costs,) = of.table, of.priced, of.costs
    most = _most_layers(priced, costs, pipeline_s)
    around = _around(of, most)
    bound = _steady_bound(of, around, pipeline_s)
    rows = np.flatnonzero(bound + around < pipeline_s)
    capacity = layer_capacities(of, rows, pipeline_s, alike=pool.alike)
    fits = may_fit(costs.kinds, capacity)
    bound[rows[~fits]] = np.inf
    rows, capacity = rows[fits], capacity[:, :, fits]
    first, shape = distinct(table.schedule, table.pp, table.vpp, priced.microbatches)
    for number in np.unique(shape[rows]).tolist():
        own, pipeline = np.flatnonzero(shape[rows] == number), of.pipeline(int(first[number]))
        some = rows[own]
        path = pool.mean(pipeline, of.job.model.num_hidden_layers)
        length = _mean_seconds(of, path, rows=some, most=most[some], alike=pool.alike)
        bound[some] = np.maximum(bound[some], length)
        own = own[bound[some] + around[some] < pipeline_s]
        if len(own):
            room, seeds = capacity[:, : len(path.stage_of), own], seed_paths(pipeline)
            stay = RankPaths(of, rows[own], seeds, path.stage_of, room, alike=pool.alike)
            bound[rows[own]] = np.maximum(bound[rows[own]], stay.seconds)
    return with_overhead(priced.machine, bound + around)


def states_bound(of: PricedGroups, pipeline_s: float) -> FloatColumn:
    """As `split_bound`, less and cheaper: layers keep no activations, ranks never wait.

    Source: all ranks run all blocks; `states_may_fit`.
    """
    found = []
    for one in of.bounding:
        around = _around(one, _most_layers(one.priced[0], one.costs[0], pipeline_s))
        found.append(_steady_bound(one, around, pipeline_s) + around)
    return with_overhead(of.machine, np.max(found, axis=0))


def _steady_bound(of: PricedGroups, around: FloatColumn, pipeline_s: float) -> FloatColumn:
    """Seconds of all passes on ranks that never wait; infinite where the states do not fit.

    Source: all ranks together run every block for each micro batch, and the slowest rank takes no
    less than the mean, 1 / pp of the total; what does not fit without activations does not fit with
    them.
    """
    (costs,), layers = of.costs, layer_counts(of.kinds)
    each = costs.forward + costs.backward
    modules = of.job.model.num_nextn_predict_layers
    held = (*layers, (EMBEDDING, 1), (HEAD, 1), (MTP, modules))
    total = sum(count * each[kind] for kind, count in held)
    recompute_forward = sum(count * costs.recompute_forward[kind] for kind, count in layers)
    repeats_all = (of.table.recompute == FULL) & (of.table.recompute_method == UNIFORM)
    total = total + repeats_all * recompute_forward
    bound = np.asarray(total * of.microbatches / of.table.pp)
    rows = np.flatnonzero(bound + around < pipeline_s)
    bound[rows[~states_may_fit(of, rows, pipeline_s)]] = np.inf
    return bound


def _mean_seconds(
    of: PricedGroups, path: Crossings, *, rows: IntColumn, most: FloatColumn, alike: bool
) -> FloatColumn:
    """Length of a mean path with the layers where it is shortest.

    Source: derived; `spread_sum`; a rank holds no more layers than fit into the cutoff, and of a
    stage with n of at most h layers at least the share min(N, h) / h is recomputed where N are,
    maybe the cheaper ones.
    """
    (priced,), (costs,) = of.priced, of.costs
    model, layers = of.job.model, layer_counts(costs.kinds)
    modules = model.num_nextn_predict_layers
    total = path.hops * priced.seconds.p2p[rows]
    for kind, stage, count in ((EMBEDDING, 0, 1), (HEAD, -1, 1), (MTP, -1, modules)):
        total = total + count * path.of_block(costs, kind, rows)[stage]
    others = model.num_hidden_layers - usual_layers(costs.kinds)[1]
    longest = longest_chunks(path.stage_of, (most + others)[None, :], alike=alike)
    slope, start = recomputed_line(of.recomputed_layers(rows), longest)
    cheapest = costs.recompute_forward[[kind for kind, _ in layers]][:, rows].min(axis=0)
    total = total + (path.backward * start).sum(axis=0) * cheapest
    whole = (slope == 1).all(axis=0)
    passes = []
    for kind, _ in layers:
        repeated = np.where(whole, costs.recompute_forward[kind, rows], cheapest)
        passes.append(path.of_block(costs, kind, rows) + path.backward * slope * repeated)
    least = np.min(passes, axis=0)  # of any kind, for a chunk may hold layers of one kind alone
    for one, (_, count) in zip(passes, layers, strict=True):
        total = total + count * (one - least).min(axis=0)
    number, stage_of = model.num_hidden_layers, path.stage_of
    return np.asarray(total + spread_sum(least, stage_of, number, alike=alike))


def _around(of: PricedGroups, most: FloatColumn) -> FloatColumn:
    """Seconds at least of what follows the passes.

    Source: the traffic of the rank with fewest layers, and the optimizer of the one with most,
    which holds no fewer than their mean.
    """
    return np.asarray(_least_traffic(of.priced[0], of.costs[0], most) + least_update(of))


def _least_traffic(priced: Costed, costs: BlockCosts, most: FloatColumn) -> FloatColumn:
    """Seconds by which the traffic of any rank outlasts its passes, at least.

    A rank holds what the others cannot run. Source: `step_traffic_seconds`, as if all that can hide
    did.
    """
    kind, count = usual_layers(costs.kinds)
    fewest = np.maximum(0, count - (priced.table.pp - 1) * most)
    expert = np.zeros((1, 1))
    if costs.params.has_experts:
        expert = (costs.params.expert[kind] * fewest)[None, :]
    shared = (costs.params.shared[kind] * fewest)[None, :]
    held = RankParams(shared, expert, costs.params.has_experts)
    found = step_traffic(priced, held)
    reduce = found.reduce * reduction_overlap(priced).least
    gather = found.gather * gather_overlap(priced).least
    return np.asarray(np.broadcast_to(reduce + gather, (1, len(fewest)))[0])


def _most_layers(priced: Costed, costs: BlockCosts, cutoff_s: float) -> FloatColumn:
    """Layers of the usual kind that one rank can run in the cutoff.

    Source: n layers take n pairs of passes for each micro batch, one after the other, so more than
    cutoff over pair do not end before the cutoff.
    """
    kind, count = usual_layers(costs.kinds)
    pair = (costs.forward + costs.backward)[kind] * priced.microbatches
    return np.asarray(np.minimum(np.floor(cutoff_s / pair), count))
