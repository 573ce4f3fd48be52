"""Exchanges between nodes whose messages a thread of the host posts.

GPUs post messages themselves on InfiniBand and RoCE (IBGDA); adapters of EFA take them from the
host alone, so a proxy there reads each command of a GPU and posts it.
Source: deepseek-ai/DeepEP README, Requirements; uccl-project/uccl@021c2c00 `ep/README.md`.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm.topology import Group
from trainplan.costmodel.machine import Machine

DEFAULT_PROXY = "uccl"
"""Where none is stated: it replaces DeepEP as it is, which NVSHMEM needs a build of its own for."""


def exchange_speed(machine: Machine, group: Group) -> FloatColumn:
    """Bytes per second that one rank sends to other nodes in an all-to-all, on their rails.

    Source: `alltoall_proxied_bytes_per_second`, that of one proxy; else its adapters.
    """
    speed = group.exchange_bytes_per_second / group.inside
    if not machine.by_proxies:
        return speed
    return np.minimum(speed, machine.constants.alltoall_proxied_bytes_per_second)


def proxied_seconds(
    machine: Machine,
    group: Group,
    messages: FloatColumn,
    message_bytes: float,
    proxy: str | None,
) -> FloatColumn:
    """Seconds of so many messages of a rank, one for each token and node that it leaves for.

    An adapter of a newer generation posts more messages in proportion to its speed, so one takes
    as long as `message` bytes on one adapter. UCCL's proxies start each exchange late; NVSHMEM's
    one proxy waits for all nodes before it lets a flag follow data that arrive in any order.
    Source: uccl-project/uccl `ep/`; NVIDIA/nvshmem `transport/libfabric/libfabric.cpp`, quiet; the
    constants.
    """
    constants, sent = machine.constants, messages * message_bytes
    start, message = (
        constants.uccl_start_seconds,
        np.full(len(messages), constants.uccl_message_bytes),
    )
    if (proxy or DEFAULT_PROXY) == "nvshmem":
        start, message = 0.0, constants.nvshmem_message_bytes * group.nodes
    posted = messages * message / machine.adapter_bytes_per_second
    return np.asarray(
        start + np.maximum(posted, sent * group.inside / group.exchange_bytes_per_second)
    )
