"""Messages between pipeline ranks of different node groups.

A join of two groups carries one message of a rank at a time in each direction, so it bounds the
step by itself where messages are long.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import GB, MICROSECOND
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, FloatMatrix, IntRowStages, RowBoundaries
from trainplan.costmodel.comm import group as links_of
from trainplan.costmodel.comm import link_speed, message_seconds
from trainplan.costmodel.program import placed
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step.estimate import p2p_seconds, sent_bytes
from trainplan.costmodel.timeline import StageSeconds


def boundary_seconds(
    candidates: Candidates, group: IntRowStages
) -> tuple[RowBoundaries, RowBoundaries]:
    """Seconds of one message between each stage and the next, and how long it keeps a join busy.

    All rows have one pp and vpp; `group` is (row, stage), both results are (row, boundary).
    Source: between two ranks of a group as `step.estimate.p2p_seconds` on the machine of the
    group; between two groups over their join, busy for what the wire takes.
    """
    machine, table = candidates.machine, candidates.table
    here, there = group[:, :-1], group[:, 1:]
    total, wire = np.zeros((2, *here.shape))
    vpp = int(table.vpp[0])
    for one in range(len(machine.groups)):
        own = table.replaced(pp=(group == one).sum(axis=1) // vpp)
        inside = p2p_seconds(replace(candidates, machine=machine.groups[one], table=own))
        total += ((here == one) & (there == one)) * inside[:, None]
        for other in range(len(machine.groups)):
            crosses = (here == one) & (there == other)
            if one != other and crosses.any():
                every, busy = group_link_seconds(candidates, (one, other))
                total += crosses * every[:, None]
                wire += crosses * busy[:, None]
    return total, wire


def group_link_seconds(
    candidates: Candidates, pair: tuple[int, int]
) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of one message between two groups, and of these what it keeps their join busy.

    Source: derived; the GPUs of a node that send share the adapters of the node.
    """
    machine, table = candidates.machine, candidates.table
    stride = table.tp * table.cp * table.dp
    sent = sent_bytes(candidates)
    latency, both = 0.0, [machine.groups[one] for one in pair]
    if (between := candidates.job.cluster.between_groups) is not None:
        senders = np.max([np.minimum(one.gpus_per_node, stride) for one in both], axis=0)
        nic = between.gb_per_s * GB * machine.constants.nic_efficiency / senders
        latency = between.latency_us * MICROSECOND
    else:
        nic = links_of(machine, np.ones_like(stride), stride).nic_bytes_per_second
        known = [one.nic_bytes_per_second for one in both if np.isfinite(one.nic_bytes_per_second)]
        if len(known) == len(both):
            nic = nic * (min(known) / machine.nic_bytes_per_second)
    link = link_speed(machine, stride)
    nic = np.minimum(nic, link)
    crossing = np.ones(len(table))
    return message_seconds(machine, sent, crossing, link, nic) + latency, sent / nic


def link_bound(
    shape: tuple[str, int, int, int], seconds: StageSeconds, p2p: FloatMatrix, wire: FloatMatrix
) -> FloatColumn:
    """Seconds in which the joins of groups can carry all messages of a step, one after the other.

    A rank pair is busy in one direction with all its messages; before the first a micro batch has
    to come that far, after the last the gradient has to come home.
    Source: derived; of every message the earliest start and the shortest way home count.
    """
    name, pp, vpp, microbatches = shape
    stage_of = placed(SCHEDULES[name].placement, pp, vpp)
    rank = np.empty(pp * vpp, dtype=np.int64)
    rank[stage_of] = np.arange(pp)[:, None]
    reach = np.cumsum(seconds.forward[:, :-1], axis=1)
    home = np.cumsum((seconds.backward - seconds.weight)[:, :-1], axis=1)
    reach[:, 1:] += np.cumsum(p2p, axis=1)[:, :-1]
    home[:, 1:] += np.cumsum(p2p, axis=1)[:, :-1]
    bound = np.zeros(len(wire))
    there = np.stack([rank[:-1], rank[1:]], axis=1)
    for pair in np.unique(np.concatenate([there, there[:, ::-1]]), axis=0):
        forth, back = (there == pair).all(axis=1), (there[:, ::-1] == pair).all(axis=1)
        some = forth | back
        busy = microbatches * wire @ (forth.astype(np.int64) + back)
        first, last = reach[:, some].min(axis=1), home[:, some].min(axis=1)
        bound = np.maximum(bound, (busy > 0) * (first + busy + last))
    return bound
