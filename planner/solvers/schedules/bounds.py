"""Seconds that no order of a placed pipeline goes below."""

from __future__ import annotations

from trainplan.costmodel.schedules.program import placed
from trainplan.costmodel.schedules.timeline.lower_bounds import ScheduleLimits, makespan_lower_bound
from trainplan.planner.solvers.schedules.instance import Instance


def lower_bound(of: Instance) -> float:
    """Seconds that no order goes below. Source: as `makespan_lower_bound`."""
    problem = of.problem
    stages = placed(of.placement, problem.pp, problem.vpp)
    limits = ScheduleLimits(problem.p2p, problem.limit)
    return makespan_lower_bound(stages, problem.seconds, problem.num_microbatches, limits)


def residence(instance: Instance, stage: int) -> float:
    """From the start of a stage's forward pass to the end of its weight gradient.

    Source: without waiting, the micro batch goes to the last stage and back, through each pass and
    message once, and its weight gradient follows.
    """
    deeper = range(stage, instance.num_stages)
    forward, backward, weight = instance.durations
    hops = 2 * sum(instance.latency(s, s + 1) for s in deeper[:-1])
    return sum(forward[s] + backward[s] for s in deeper) + hops + weight[stage]
