"""A machine with some memory of every GPU left to another tenant.

The other tenant takes memory alone: when it computes, the job waits (colocated rollout engines and
trainers take turns), so no speed is divided. Margins are shares of what is left.
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.base import GIB, SpecError
from trainplan.costmodel.machine.constants import Machine


def with_reserve(machine: Machine, reserve_bytes: int) -> Machine:
    """The machine with so much less memory on every GPU.

    Source: derived; both tenants hold memory at the same time, so what one keeps the other lacks.

    Raises:
        SpecError: Nothing would be left.
    """
    if not reserve_bytes:
        return machine
    left = machine.memory_bytes - reserve_bytes
    if left <= 0:
        raise SpecError(
            f"--reserve {reserve_bytes / GIB:.6g}GiB: a GPU has {machine.memory_bytes / GIB:.6g} "
            "GiB, so nothing is left for the job: reserve less"
        )
    return replace(machine, memory_bytes=left)
