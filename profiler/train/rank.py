"""One rank: joins the others, trains, says how it ended."""

import socket
import sys
import traceback
from datetime import timedelta

from trainplan.costmodel.documents import Ending
from trainplan.profiler.torch_on_use import dist, torch
from trainplan.profiler.train.request import Answered, TrainOrder
from trainplan.profiler.train.trainers import Train


def run_rank(rank: int, order: TrainOrder, train: Train, meeting: socket.socket) -> Answered:
    """Train as one of the ranks; an error is an answer, too."""
    try:
        join(rank, order, meeting)
        report = train(order.request, rank, order.nproc)
        dist.barrier()
    except Exception as error:  # noqa: BLE001 (any error of a library ends the trial, not us)
        traceback.print_exc(file=sys.stderr)
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Answered(ending=ending_of(error), reason=f"rank {rank}: {words}")
    return Answered(ending="measured", reports=(report,))


PATIENCE_SECONDS = 60.0
"""What ranks wait for each other beyond the deadline, so that it is the deadline that ends them."""


class NotANumberError(Exception):
    """A loss or a gradient that is none."""


def ending_of(error: Exception) -> Ending:
    """How a run that raises this has ended."""
    if isinstance(error, NotANumberError):
        return "not_a_number"
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    allocator = "can't allocate memory" in str(error) or "out of memory" in str(error).lower()
    return "out_of_memory" if memory or allocator else "crash"


def join(rank: int, order: TrainOrder, meeting: socket.socket) -> None:
    """Connect all ranks: NCCL where each has a GPU of its own, else gloo on the CPU.

    They meet at a socket that was there before they were forked, so no port is taken twice.
    """
    timeout = timedelta(seconds=order.deadline_seconds + PATIENCE_SECONDS)
    first = rank == 0
    port = meeting.getsockname()[1]
    listening = {"master_listen_fd": meeting.detach()} if first else {}
    store = dist.TCPStore("127.0.0.1", port, order.nproc, first, timeout, **listening)
    if not first:
        meeting.close()
    if uses_gpus(order.nproc):
        torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl" if uses_gpus(order.nproc) else "gloo",
        store=store,
        rank=rank,
        world_size=order.nproc,
        timeout=timeout,
    )


def uses_gpus(nproc: int) -> bool:
    """Has each rank a GPU of its own?"""
    gpus: int = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return gpus >= nproc
