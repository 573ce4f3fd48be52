"""Products beside collectives, messages or copies: how much each slows the other down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from math import ceil
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

from trainplan.costmodel.profiles import HOST_COPIES, HostCopy, Operation, OverlapPoint, Point
from trainplan.profiler.bench.inputs.tensors import Tensors, task, tensors
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import Work

Partner = Operation | HostCopy
"""What runs beside products."""

COVER = 2.0
"""What runs beside the measured part lasts this many times as long alone, so that it covers it."""
SIZES = {"cuda": (2**28, 2**26, 2**30), "cpu": (2**20, 2**22)}
"""Bytes of the full tensor: 256 and 64 MiB and 1 GiB on GPUs, all far longer than to start them;
as much as gloo moves in some ms."""
SIDES = {"cuda": 4096, "cpu": 256}
"""Of a square product that fills the device: 0.1 to 1 ms each."""
OPERATIONS: tuple[Operation, ...] = (*OverlapPoint.SHARDING, "alltoall", "p2p")
LEAST_PRODUCTS = {"cuda": 8, "cpu": 1}
"""Products timed in a row beside messages, so that starting the first is no slowdown of them."""
REPEATS = 8


def overlap_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each collective or message and size, the first size only if quick.

    On GPUs then one for each way of a copy, which needs no other rank.
    """
    sizes = SIZES[place.device]
    partners: list[tuple[int, Partner]] = []
    if place.world_size > 1:
        partners += product(sizes[: 1 if request.quick else None], OPERATIONS)
    if place.device == "cuda":
        partners += product(sizes[:1], HOST_COPIES)
    for size, operation in partners:
        measure = partial(_measure, operation, size, place)
        yield task(place, f"{operation} bytes={size}", measure, together=True)


Started = Sequence["Work"]
"""What to wait for; of a copy nothing, which is done as its stream is."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A product, and what runs beside it on all ranks, which begins without waiting."""

    compute: Callable[[], object]
    start: Callable[[], Started]

    def communicate(self) -> None:
        """What runs beside it until it is over."""
        _finish(self.start())


def _pair(operation: Partner, size: int, place: Place) -> Pair:
    make = tensors(place, "bf16" if place.device == "cuda" else "fp32")
    side = SIDES[place.device]
    left, right = make.normal(side, side), make.normal(side, side)
    result = torch.empty_like(left)
    start = STARTS[operation](make, size // make.dtype.itemsize, place)
    return Pair(lambda: torch.mm(left, right, out=result), start)


def _all_reduce(make: Tensors, count: int, place: Place) -> Callable[[], Started]:
    """The mean (gloo: the largest) of all ranks: sums of sums would leave the number format."""
    tensor = make.normal(count)
    operation = dist.ReduceOp.AVG if tensor.is_cuda else dist.ReduceOp.MAX
    return lambda: _works(dist.all_reduce(tensor, op=operation, async_op=True))


def _all_gather(make: Tensors, count: int, place: Place) -> Callable[[], Started]:
    part, whole = _part_and_whole(make, count, place)
    return lambda: _works(dist.all_gather_into_tensor(whole, part, async_op=True))


def _reduce_scatter(make: Tensors, count: int, place: Place) -> Callable[[], Started]:
    part, whole = _part_and_whole(make, count, place)
    return lambda: _works(dist.reduce_scatter_tensor(part, whole, async_op=True))


def _alltoall(make: Tensors, count: int, place: Place) -> Callable[[], Started]:
    _, sent = _part_and_whole(make, count, place)
    received = torch.empty_like(sent)
    return lambda: _works(dist.all_to_all_single(received, sent, async_op=True))


def _ring(make: Tensors, count: int, place: Place) -> Callable[[], Started]:
    """Every rank sends to the next one while it receives from the one before, as stages do."""
    sent, received = make.normal(count), make.normal(count)
    following, former = ((place.rank + step) % place.world_size for step in (1, -1))

    def start() -> Started:
        sends = dist.P2POp(dist.isend, sent, following)
        receives = dist.P2POp(dist.irecv, received, former)
        works: Started = dist.batch_isend_irecv([sends, receives])
        return works

    return start


def _copy(way: HostCopy, make: Tensors, count: int, place: Place) -> Callable[[], Started]:
    """Of pinned memory, which the device reads and writes by itself."""
    on_device = make.normal(count)
    on_host = torch.empty(count, dtype=make.dtype, pin_memory=True).copy_(on_device)
    source, target = (on_host, on_device) if way == "host_to_device" else (on_device, on_host)

    def start() -> Started:
        target.copy_(source, non_blocking=True)
        return ()

    return start


def _part_and_whole(make: Tensors, count: int, place: Place) -> tuple[Tensor, Tensor]:
    part = make.normal(count // place.world_size)
    return part, make.normal(len(part) * place.world_size)


def _works(work: Work | None) -> Started:
    return () if work is None else (work,)


Starter = Callable[[Tensors, int, Place], Callable[[], Started]]
STARTS: Mapping[Partner, Starter] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "alltoall": _alltoall,
    "p2p": _ring,
    "host_to_device": partial(_copy, "host_to_device"),
    "device_to_host": partial(_copy, "device_to_host"),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each."""

    products: int
    """Timed in a row."""
    messages: int
    """Around those."""
    covering: int
    """Products around one message."""


def counts(device: Literal["cuda", "cpu"], compute: float, communication: float) -> Counts:
    """From the seconds of one product and one message alone.

    Source: n products take n `compute` seconds, so COVER n compute / communication messages outlast
    them COVER times; the other way round with one message.
    """
    products = max(LEAST_PRODUCTS[device], round(communication / compute))
    return Counts(
        products,
        messages=max(1, ceil(COVER * products * compute / communication)),
        covering=max(1, ceil(COVER * communication / compute)),
    )


def _measure(operation: Partner, size: int, place: Place, clock: Clock) -> Iterator[Point]:
    """Each alone, then each with the other all around it."""
    pair = _pair(operation, size, place)
    # the slowest rank's times are the same on all ranks, and so are the counts
    compute = clock.time_together(pair.compute).seconds
    communication = clock.time_together(pair.communicate).seconds
    count = counts(place.device, compute, communication)
    partners = OnStreams(pair) if place.device == "cuda" else OnThreads(pair)
    slow_compute = clock.timing_of(
        [partners.compute_seconds(count.products, count.messages) for _ in range(REPEATS)]
    ).seconds
    slow_message = clock.timing_of(
        [partners.message_seconds(count.covering) for _ in range(REPEATS)]
    ).seconds
    yield OverlapPoint(
        operation=operation,
        ranks=place.world_size,
        num_bytes=size,
        compute_slowdown=slow_compute / (count.products * compute),
        communication_slowdown=slow_message / communication,
    )


class OnStreams:
    """Both on a GPU: products on the stream in use, collectives behind a stream of their own."""

    def __init__(self, pair: Pair) -> None:
        stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream
        self.pair, self.side = pair, stream()

    def compute_seconds(self, products: int, messages: int) -> float:
        """Seconds of some products while messages go on."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self.side):
            works = [self.pair.start() for _ in range(messages)]
        seconds = self._between(lambda: [self.pair.compute() for _ in range(products)])
        _finish(chain.from_iterable(works))
        return seconds()

    def message_seconds(self, products: int) -> float:
        """Seconds of one message while products go on."""
        torch.cuda.synchronize()
        for _ in range(products):
            self.pair.compute()
        with torch.cuda.stream(self.side):
            seconds = self._between(self.pair.communicate)
        return seconds()

    def _between(self, call: Callable[[], object]) -> Callable[[], float]:
        """Makes the call between two marks in the stream in use; gives what lay between them."""
        event: Callable[..., torch.cuda.Event] = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        begin.record()
        call()
        end.record()

        def seconds() -> float:
            torch.cuda.synchronize()
            return float(begin.elapsed_time(end)) / 1000

        return seconds


class OnThreads:
    """Both on a CPU: gloo has threads of its own, which a product leaves less of."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def compute_seconds(self, products: int, messages: int) -> float:
        """Seconds of some products while messages go on."""
        works = [self.pair.start() for _ in range(messages)]
        begin = time.perf_counter()
        for _ in range(products):
            self.pair.compute()
        seconds = time.perf_counter() - begin
        _finish(chain.from_iterable(works))
        return seconds

    def message_seconds(self, products: int) -> float:
        """Seconds of one message while another thread makes products, at least as many."""
        over = Event()

        def work() -> None:
            done = 0
            while done < products or not over.is_set():
                self.pair.compute()
                done += 1

        thread = Thread(target=work)
        thread.start()
        begin = time.perf_counter()
        self.pair.communicate()
        seconds = time.perf_counter() - begin
        over.set()
        thread.join()
        return seconds


def _finish(works: Iterable[Work]) -> None:
    for work in works:
        work.wait()


OVERLAP = Item("overlap", "products during collectives, messages and copies", overlap_tasks, 2.0)
