"""Which node holds which ranks, where the links between nodes were measured.

The search proves its answer for links that are all as fast as the fastest, so no layout is faster
on the measured ones. The best layouts are placed one by one, and the fastest placed one wins.
"""

import json
import math

import numpy as np
from pydantic import ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import IntColumn
from trainplan.costmodel.hardware import ClusterSpec, LinkSpec, Placement
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.placement import (
    NodeLinks,
    PlacementCosts,
    nodes_of,
    placed_seconds,
    placement_costs,
)
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.plan import Candidate, Plan
from trainplan.planner.solvers import (
    CLOSE,
    MISSING,
    MOST_NODES,
    UNITS,
    constraint_solver_is_there,
    good_order,
    least_seconds,
    proved_order,
)
from trainplan.planner.work import Budget

LEAST_GAIN = 1e-3
"""A smaller gain over the given order does not change it. Source: derived; links of equal nodes
differ by some percent from one measurement to the next, which gives orders that differ by less."""


def placed(plan: Plan, machine: Machine, budget: Budget) -> Plan:
    """The plan with its nodes placed; a layout that is faster so by the slack becomes the answer.

    A cluster without measured links, or one whose nodes cannot change places, stays as it is.
    """
    if _leaves_nodes_out(plan.job.cluster):
        return plan.model_copy(update={"job": _without_links(plan.job)})
    if plan.job.cluster.links is None or not_placed(plan.job.cluster, machine):
        return plan
    best, answer = plan.best, place(plan.job, machine, plan.best.layout, budget)
    assert answer is not None
    limit = answer.step_time_s / (1 + plan.certificate.objective.slack_fraction)
    fastest_first = sorted(plan.candidates, key=lambda one: one.estimate.step_time_s)
    for other in fastest_first if plan.certificate.objective.name == "time" else ():
        if other is plan.best or other.estimate.step_time_s >= limit:
            continue
        found = place(plan.job, machine, other.layout, budget, beat=limit)
        if found and found.step_time_s < limit:
            best, answer, limit = other, found, found.step_time_s
    return _with_best(plan, best).model_copy(update={"placement": answer})


def not_placed(cluster: ClusterSpec, machine: Machine) -> str | None:
    """Why measured links do not decide the order of the nodes; null: they do, or there are none."""
    if cluster.links is None:
        return None
    if _leaves_nodes_out(cluster):
        return "measured links are not used: the plan leaves nodes out"
    if len({(group.gpu, group.gpus_per_node) for group in cluster.groups}) > 1:
        return "measured links are not used: nodes of different groups cannot change places"
    if machine.domain_gpus != machine.gpus_per_node:
        return "measured links are not used: a scale-up domain is not one node"
    return None


def unproved(placement: Placement | None) -> str | None:
    """Why the order of few nodes may not be the best; null: it is, or more time would prove it."""
    if placement is None or not placement.gap_fraction or len(placement.nodes) > MOST_NODES:
        return None
    if constraint_solver_is_there():
        return None
    return f"the order of the nodes is found without a proof: {MISSING}"


def _leaves_nodes_out(cluster: ClusterSpec) -> bool:
    """Is it a part of the cluster whose links were measured?"""
    count = cluster.num_nodes
    return cluster.links is not None and count != len(cluster.links.nodes)


def _without_links(job: Job) -> Job:
    return job.model_copy(update={"cluster": job.cluster.model_copy(update={"links": None})})


def place(
    job: Job, machine: Machine, layout: Layout, budget: Budget, *, beat: float = math.inf
) -> Placement | None:
    """The order of the nodes in which a layout's step is shortest; null: none is below `beat`.

    It is proved best where there are few nodes, the solver is there and the budget is not spent.
    """
    links = job.cluster.links
    assert links is not None
    nodes = nodes_of(links)
    costs = placement_costs(job, machine, layout, nodes)
    least = least_seconds(costs, nodes)
    if least >= beat:
        return None
    order = good_order(costs, nodes, least)
    reached = _seconds(costs, nodes, order)
    open_gap = len(order) <= MOST_NODES and least < reached * (1 - CLOSE)
    if open_gap and constraint_solver_is_there() and not budget.spent():
        left = budget.seconds_left()
        proved = proved_order(costs, nodes, order, least, seconds=left)
        order, least = proved.order, proved.bound_seconds
    return _placement(links, costs, nodes, order, least)


def _placement(
    links: LinkSpec, costs: PlacementCosts, nodes: NodeLinks, order: IntColumn, least: float
) -> Placement:
    given = np.arange(len(order))
    step, now = _seconds(costs, nodes, order), _seconds(costs, nodes, given)
    terms = 1 + len(costs.ranks) + len(costs.paths)
    rounding = terms * costs.step_seconds / UNITS
    bound = step if step - least <= rounding else least
    if now <= step * (1 + LEAST_GAIN):
        order, step = given, now
    return Placement(
        nodes=tuple(links.nodes[i] for i in order.tolist()),
        step_time_s=step,
        lower_bound_s=bound,
        gap_fraction=(step - bound) / step,
        identity_step_time_s=now,
    )


def _seconds(costs: PlacementCosts, nodes: NodeLinks, order: IntColumn) -> float:
    return float(placed_seconds(costs, nodes, order[None])[0])


def _with_best(plan: Plan, best: Candidate) -> Plan:
    """The plan with another of its candidates as the answer; the proof stays that of the search."""
    if best is plan.best:
        return plan
    others = [one for one in plan.candidates if one is not best]
    first = best.model_copy(update={"near_tie": False})
    ranked = [one.model_copy(update={"rank": i}) for i, one in enumerate([first, *others], start=1)]
    target = plan.certificate.objective
    of_best = {"value": best.estimate.step_time_s, "rank": 1, "of_answer": None}
    target = target.model_copy(update=of_best)
    proof = plan.certificate.model_copy(
        update={
            "optimal": target.lower_bound >= target.value,
            "gap_fraction": target.gap_fraction,
            "objective": target,
        }
    )
    return plan.model_copy(
        update={"best": ranked[0], "candidates": tuple(ranked), "certificate": proof}
    )


def node_order(text: str, cluster: ClusterSpec) -> tuple[str, ...]:
    """Names of the nodes in rank order, out of a plan document; empty where there is no choice.

    Raises:
        SpecError: The order does not name every node of the cluster once.
    """
    written = json.loads(text).get("placement")
    if written is None:
        return ()
    try:
        found = Placement.model_validate(written).nodes
    except ValidationError as error:
        first = first_complaint(error)
        field = f"placement.{first.field}".rstrip(".")
        raise SpecError(f"field {field!r}: {first.reason}") from error
    named = cluster.links.nodes if cluster.links else ()
    if sorted(found) != sorted(named):
        raise SpecError(
            "field 'placement.nodes' does not name every node of cluster.links once: make the plan "
            "again with `plan search`"
        )
    return found if len(found) > 1 else ()
