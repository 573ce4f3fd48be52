"""Products and collectives at the same time: how much each slows the other down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import ceil
from threading import Event, Thread
from typing import TYPE_CHECKING, Literal

from trainplan.costmodel.spec.evidence.profile import Operation, OverlapPoint, Point
from trainplan.profiler.bench.inputs.tensors import Tensors, task, tensors
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch.distributed import Work

COVER = 2.0
"""What runs beside the measured part lasts this many times as long alone, so that it covers it."""
SIZES = {"cuda": (2**28, 2**26, 2**30), "cpu": (2**20, 2**22)}
"""Bytes of the full tensor: 256 and 64 MiB and 1 GiB on GPUs, all far longer than to start them;
as much as gloo moves in some ms."""
SIDES = {"cuda": 4096, "cpu": 256}
"""Of a square product that fills the device: 0.1 to 1 ms each."""
OPERATIONS: tuple[Operation, ...] = ("all_gather", "reduce_scatter", "all_reduce")
LEAST_PRODUCTS = {"cuda": 8, "cpu": 1}
"""Products timed in a row beside messages, so that starting the first is no slowdown of them."""
REPEATS = 8


def overlap_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each collective and size; the first size only if quick."""
    if place.world_size < 2:
        return
    for size, operation in product(SIZES[place.device][: 1 if request.quick else None], OPERATIONS):
        measure = partial(_measure, operation, size, place)
        yield task(place, f"{operation} bytes={size}", measure, together=True)


@dataclass(frozen=True, slots=True)
class Pair:
    """A product, and a collective of all ranks that begins without waiting."""

    compute: Callable[[], object]
    start: Callable[[], Work | None]

    def communicate(self) -> None:
        """The collective until it is over."""
        work = self.start()
        if work is not None:
            work.wait()


def _pair(operation: Operation, size: int, place: Place) -> Pair:
    make = tensors(place, "bf16" if place.device == "cuda" else "fp32")
    side = SIDES[place.device]
    left, right = make.normal(side, side), make.normal(side, side)
    result = torch.empty_like(left)
    start = STARTS[operation](make, size // make.dtype.itemsize, place.world_size)
    return Pair(lambda: torch.mm(left, right, out=result), start)


def _all_reduce(make: Tensors, count: int, ranks: int) -> Callable[[], Work | None]:
    """The mean (gloo: the largest) of all ranks: sums of sums would leave the number format."""
    tensor = make.normal(count)
    operation = dist.ReduceOp.AVG if tensor.is_cuda else dist.ReduceOp.MAX
    return lambda: dist.all_reduce(tensor, op=operation, async_op=True)


def _all_gather(make: Tensors, count: int, ranks: int) -> Callable[[], Work | None]:
    part = make.normal(count // ranks)
    whole = make.normal(len(part) * ranks)
    return lambda: dist.all_gather_into_tensor(whole, part, async_op=True)


def _reduce_scatter(make: Tensors, count: int, ranks: int) -> Callable[[], Work | None]:
    part = make.normal(count // ranks)
    whole = make.normal(len(part) * ranks)
    return lambda: dist.reduce_scatter_tensor(part, whole, async_op=True)


Starter = Callable[[Tensors, int, int], Callable[[], "Work | None"]]
STARTS: Mapping[Operation, Starter] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
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


def _measure(operation: Operation, size: int, place: Place, clock: Clock) -> Iterator[Point]:
    """Each alone, then each with the other all around it."""
    pair = _pair(operation, size, place)
    # the slowest rank's times are the same on all ranks, and so are the counts
    compute = clock.time_together(pair.compute).seconds
    communication = clock.time_together(pair.communicate).seconds
    count = counts(place.device, compute, communication)
    beside = OnStreams(pair) if place.device == "cuda" else OnThreads(pair)
    slow_compute = clock.timing_of(
        [beside.compute_seconds(count.products, count.messages) for _ in range(REPEATS)]
    ).seconds
    slow_message = clock.timing_of(
        [beside.message_seconds(count.covering) for _ in range(REPEATS)]
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
        _finish(works)
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
        _finish(works)
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


def _finish(works: Iterable[Work | None]) -> None:
    for work in works:
        if work is not None:
            work.wait()


OVERLAP = Item("overlap", "products and collectives at the same time", overlap_tasks, 2.0)
