"""A machine with some memory of every GPU left to another tenant.

The other tenant takes memory alone: when it computes, the job waits (colocated rollout engines and
trainers take turns), so no speed is divided. Margins are shares of what is left.
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.base import GIB, SpecError
from trainplan.costmodel.machine.machine import Machine


def with_reserve(machine: Machine, reserve_bytes: int, reserve_host_bytes: int = 0) -> Machine:
    """The machine with so much less memory on every GPU, and on the host of every node.

    Source: derived; both tenants hold memory at the same time, so what one keeps the other lacks.

    Raises:
        SpecError: Nothing would be left, or nobody knows of how much.
    """
    if reserve_bytes:
        left = _left("--reserve", reserve_bytes, machine.memory_bytes, "a GPU")
        machine = replace(machine, memory_bytes=left)
    if not reserve_host_bytes:
        return machine
    if machine.host_memory_bytes is None:
        raise SpecError(
            f"--reserve-host {reserve_host_bytes / GIB:.6g}GiB: the memory of the hosts is not "
            "known: give `host: {memory_gib: ...}` in the cluster file"
        )
    left = _left("--reserve-host", reserve_host_bytes, machine.host_memory_bytes, "a host")
    return replace(machine, host_memory_bytes=left)


def _left(option: str, size: int, memory_bytes: float, owner: str) -> float:
    if size >= memory_bytes:
        raise SpecError(
            f"{option} {size / GIB:.6g}GiB: {owner} has {memory_bytes / GIB:.6g} GiB, so nothing "
            "is left for the job: reserve less"
        )
    return memory_bytes - size
