"""A session with tasks of its own, started as `python -m profiler_items` in the tests' folder."""

import sys
import time
from functools import partial

from trainplan.costmodel.profiles.profile import CollectivePoint, StreamPoint
from trainplan.profiler.bench.layer import LAYER
from trainplan.profiler.journal import records
from trainplan.profiler.launch.session import main
from trainplan.profiler.task import Item, MeasurementTask

records.MOST_ATTEMPTS = 1  # tests count what is measured, however noisy the machine


def _copy(clock):
    import torch  # noqa: PLC0415

    source, target = torch.randn(2, 4096)
    time_of_copy = clock.time(lambda: target.copy_(source))
    yield StreamPoint(name="copy", moved_bytes=2 * 4 * 4096, time=time_of_copy)


def _sum(clock):
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    data = torch.ones(1024)
    seconds = clock.time_together(lambda: dist.all_reduce(data.fill_(1)))
    assert float(data[0]) == dist.get_world_size()
    yield CollectivePoint(
        operation="all_reduce",
        ranks=dist.get_world_size(),
        per_node=dist.get_world_size(),
        num_bytes=4096,
        time=seconds,
    )


def _raise():
    raise MemoryError("one rank has no room")


def _faulty(place, fault):
    """A sum that goes wrong on the last rank."""

    def measure(clock):
        if place.rank == place.world_size - 1:
            fault()
        yield from _sum(clock)

    return measure


def _unsupported(clock):
    raise NotImplementedError("no such kernel on this device")


def _not_a_number(clock):
    clock.time(int)
    raise ValueError("the product is not finite")


def _tasks(request, place):
    yield MeasurementTask("copy", _copy)
    yield MeasurementTask("sum", _sum, together=True)
    yield MeasurementTask("unsupported", _unsupported, together=True)
    yield MeasurementTask("not a number", _not_a_number)


def _faulty_tasks(request, place):
    yield MeasurementTask("before", _copy)
    yield MeasurementTask("fault", _faulty(place, _raise), together=True)
    yield MeasurementTask("after", _sum, together=True)
    yield MeasurementTask("hang", _faulty(place, partial(time.sleep, 600)), together=True)


ITEMS = {
    "plain": Item("plain", "a copy and a sum", _tasks),
    "faulty": Item("faulty", "sums in which a rank goes wrong", _faulty_tasks),
    "layer": LAYER,
}

if __name__ == "__main__":
    sys.exit(main(items=ITEMS))
