"""The ranks of a run: how they find each other, tell each other things, and part."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup, Store

DATA_FRACTION = 0.5
CONTROL_FRACTION = 0.8
"""When a rank gives up waiting, of the time a task has: for data before it does for control."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """All processes of the run, seen by one of them."""

    place: Place
    control: ProcessGroup
    """Of all ranks on the CPU, beside the groups whose traffic is measured."""

    def gather(self, text: str) -> tuple[str, ...]:
        """What every rank says, by rank, on every rank; waits for all of them."""
        texts = [""] * self.place.world_size
        dist.all_gather_object(texts, text, group=self.control)
        return tuple(texts)

    def from_first(self, text: str) -> str:
        """What rank 0 says, on every rank."""
        texts = [text]
        dist.broadcast_object_list(texts, src=0, group=self.control)
        return texts[0]


def this_place() -> Place:
    """Where `launch` put this process: on a GPU for each one of the host, or on the CPU.

    Raises:
        ProfilerError: More processes than GPUs.
    """
    local_rank = int(os.environ["LOCAL_RANK"])
    local_world_size = int(os.environ["LOCAL_WORLD_SIZE"])
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 < num_gpus < local_world_size:
        raise ProfilerError(
            f"{local_world_size} processes but {num_gpus} GPUs that this process may use: start "
            "fewer processes per node, or set CUDA_VISIBLE_DEVICES"
        )
    if num_gpus:
        torch.cuda.set_device(local_rank)
    return Place(
        device="cuda" if num_gpus else "cpu",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        local_rank=local_rank,
        local_world_size=local_world_size,
    )


def join(
    place: Place, deadline_seconds: float, start_seconds: float, listening: int | None
) -> Ranks:
    """Connect all ranks: NCCL for data on GPUs, gloo on the CPU and for control.

    gloo gives up before a task's time is up, so that the ranks that wait for a rank that hangs can
    be told from it. NCCL ends the process when it gives up, hence after that time; on GPUs the
    clock gives up. Ranks wait for those that start longer than their watcher does, who knows why.
    """
    backend, patience = "gloo", DATA_FRACTION * deadline_seconds
    if place.device == "cuda":
        # not told the device, NCCL connects when first used: memory is measured without it
        backend, patience = "nccl", 2 * deadline_seconds
    dist.init_process_group(
        backend,
        store=_meet(place, timedelta(seconds=2 * start_seconds), listening),
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=patience),
    )
    control = dist.new_group(
        backend="gloo", timeout=timedelta(seconds=CONTROL_FRACTION * deadline_seconds)
    )
    assert isinstance(control, dist.ProcessGroup), "this rank is in the group of all ranks"
    return Ranks(place, control)


def _meet(place: Place, patience: timedelta, listening: int | None) -> Store:
    """Wait for all ranks at a socket that `launch` opened, so that no port is taken twice.

    Source: torch's backend of libuv takes no socket before 2.8 (pytorch/pytorch, pull request
    150215); its other one always did.
    """
    given = {} if listening is None else {"master_listen_fd": listening}
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        place.world_size,
        place.rank == 0,
        patience,
        wait_for_workers=False,
        use_libuv=False,
        **given,
    )
    store.set(f"trainplan/{place.rank}", "here")
    store.wait([f"trainplan/{rank}" for rank in range(place.world_size)], patience)
    return dist.PrefixStore("trainplan", store)


def leave() -> None:
    """Disconnect from the other ranks."""
    dist.destroy_process_group()
