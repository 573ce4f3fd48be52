"""Curves of collectives and messages, inside a node and between nodes."""

from collections.abc import Sequence

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, MICROSECOND
from trainplan.costmodel.comm import hops_seconds, nic_share
from trainplan.costmodel.hardware import CollectiveFit
from trainplan.costmodel.machine import GROUP_SIZES, OPERATIONS, SHAPES, STRIDES, curve_name
from trainplan.costmodel.measured import inside_domain
from trainplan.costmodel.profiles import CollectivePoint
from trainplan.costmodel.spec import Sourced
from trainplan.profiler.fit.curves import fit_collective, left_out, predict_collective, relative_fit
from trainplan.profiler.fit.result import FitResult

ERRATIC = 0.25
"""A collective whose sizes do not tell each other better than that is not one curve.

Source: recorded collectives of tests/replay: at most 0.20 where the network is sound, 0.54 to 0.63
where it is not (A10G over PCIe, 4 GPUs).
"""


def fit_links(found: FitResult, points: Sequence[CollectivePoint]) -> None:
    """Set what collectives and messages tell."""
    _collectives(found, points)
    _exchanges(found)
    _messages(found, points)
    _across(found, points)


def _collectives(found: FitResult, points: Sequence[CollectivePoint]) -> None:
    for operation in OPERATIONS:
        for size, stride in SHAPES:
            name = curve_name(operation, size, stride)
            mine = inside_domain(points, name, found.spec.nvlink_domain)
            curve = _curve(found, name, mine)
            if curve is None:
                continue
            scatter = left_out(mine, predict_collective)
            if scatter > ERRATIC:
                found.notes.append(
                    f"{name}: its sizes contradict each other by {scatter:.0%}, so it is not used"
                )
                continue
            found.collectives[name] = curve
            if np.isfinite(scatter):
                found.scatter[name] = scatter


def _curve(found: FitResult, name: str, mine: Sequence[CollectivePoint]) -> CollectiveFit | None:
    """The curve through some points; null where there are none, or with a note what is wrong."""
    if not mine:
        return None
    curve, why = fit_collective(mine, found.source_of(len(mine), "sizes"))
    if curve is None:
        found.notes.append(f"{name}: {why}")
    return curve


def _exchanges(found: FitResult) -> None:
    """Start of an exchange among experts: the split sizes go first, an all-to-all of their own.

    Source: `alltoall_alpha` of `Constants`, twice the start; of the largest group measured.
    """
    for size in reversed(GROUP_SIZES):
        curve = found.collectives.get(curve_name("alltoall", size))
        if curve:
            what = f"starts of an all-to-all on {size} GPUs"
            found.constant("alltoall_alpha", 2 * curve.alpha_us * MICROSECOND, 2, what)
            return


def _messages(found: FitResult, points: Sequence[CollectivePoint]) -> None:
    """Start and bandwidth of messages between two GPUs of a node, and how far apart they are."""
    inside = [p for p in points if p.per_node == p.ranks]
    for stride in STRIDES:
        name = curve_name("p2p", 2, stride)
        mine = inside_domain(inside, name, found.spec.nvlink_domain)
        curve = _curve(found, name, mine)
        if curve is None:
            continue
        found.collectives[name] = curve
        if "p2p_alpha" not in found.constants:
            found.constant("p2p_alpha", curve.alpha_us * MICROSECOND, len(mine), "messages")


def _across(found: FitResult, points: Sequence[CollectivePoint]) -> None:
    """Bandwidth of a GPU between scale-up domains, and what a collective starts with.

    How starts grow with the nodes stays as in the catalog: one run has one number of nodes.
    Source: as `costmodel.comm.collectives.collective_rate`: all members of a node send together.
    """
    domain = found.spec.nvlink_domain
    mine = [
        p
        for p in points
        if p.ranks > p.per_node and p.ranks * p.stride > domain and p.operation in OPERATIONS
    ]
    if not mine:
        return
    constants = catalog.constants()
    shares = [nic_share(p.operation, np.array(p.ranks), np.array(p.per_node)) for p in mine]
    wire = np.array([p.num_bytes * float(one) for p, one in zip(mine, shares, strict=True)]) / GB
    nodes = np.array([p.ranks / p.per_node for p in mine])
    grown = np.array(
        [
            float(hops_seconds(constants, p.operation, np.array(p.ranks), count))
            for p, count in zip(mine, nodes, strict=True)
        ]
    )
    seconds = np.array([p.time.seconds for p in mine])
    columns = np.stack([np.full(len(mine), MICROSECOND), wire], axis=1)
    start, per_gb = relative_fit(columns, np.maximum(seconds - grown, seconds / 2))
    if per_gb <= 0:
        found.notes.append("collectives across nodes: latency only, larger messages are needed")
        return
    what = "collectives across nodes"
    found.nic = Sourced(value=float(1 / per_gb), source=found.source_of(len(mine), what))
    found.constant("inter_node_alpha", float(start) * MICROSECOND, len(mine), what)
