"""Threads of torch in a process that measures on the host."""

from collections.abc import Iterator
from contextlib import contextmanager

from trainplan.profiler.host import usable_cores
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import torch


def own_threads(place: Place, processes: int | None = None) -> int:
    """This process's share of the cores it may use: launchers often leave it a single thread.

    `processes` of the node work at the same time; left out, all of them.
    """
    return max(1, usable_cores() // (processes or place.local_world_size))


@contextmanager
def running(threads: int) -> Iterator[None]:
    """Torch's own threads, this many, while it lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
