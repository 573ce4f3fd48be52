"""A real step of a small model whose weights and states lie on a drive, beside its estimate.

Its parts are timed alone; the lanes of the cost model say how long the whole takes: the longest
path through its items, and the largest lane, which no order of them beats.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle

from trainplan.costmodel.copy_streams import Lane
from trainplan.costmodel.profiles import OffloadedStepPoint, Point
from trainplan.profiler.bench.drive import at_once, past_cache_is_open, scratch_file
from trainplan.profiler.bench.inputs.tensors import (
    check_finite,
    device_of,
    dtype_of,
    task,
    working_precision,
)
from trainplan.profiler.bench.inputs.threads import own_threads, running
from trainplan.profiler.bench.offload.program import KINDS, Sizes, program, run, threads_of
from trainplan.profiler.bench.offload.step import Files, Step, step_of
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

SIZES = {"cuda": (4, 2048, 16384), "cpu": (8, 1024, 128)}
QUICK_SIZES = {"cuda": (4, 1024, 16384), "cpu": (4, 512, 128)}
"""Layers, width and tokens: products last about as long as what is read for them on a drive of
some GB/s, so that what is hidden behind what counts; a step moves 1 GB at most, for slow drives.

Source: derived; a layer of 2 x 1024^2 fp32 weights is 8 MiB, 5 ms at 1.6 GB/s; its forward pass of
128 tokens is 0.5 GFLOP, 5 ms at 0.1 TFLOP/s. In bf16 with 2048^2: 16 MiB and 0.3 TFLOP.
"""


def step_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One step, where a folder on a drive is given."""
    if request.scratch is None:
        return
    layers, width, tokens = (QUICK_SIZES if request.quick else SIZES)[place.device]
    dtype = dtype_of(working_precision(request, place))
    sizes = Sizes(layers, width, tokens, dtype.itemsize, on_gpu=place.device == "cuda")
    measure = partial(measure_step, sizes, request, place)
    yield task(place, f"layers={layers} width={width} tokens={tokens}", measure, together=False)


def measure_step(sizes: Sizes, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    """Time steps, then each sort of item alone."""
    assert request.scratch is not None, "a step without a folder has no task"
    threads = own_threads(place, 1)
    work, begin = program(sizes, {}), partial(_begin, threads, place)
    with (
        open_step(sizes, request, place) as step,
        threads_of(work, begin) as lanes,
        running(threads),
    ):

        def whole() -> None:
            step.begin()
            run(work, step.calls(), lanes)

        time = clock.time(whole, on_host=True)
        read, written = step.read_bytes, step.written_bytes
        check_finite(step.inputs[-1], "an offloaded step")
        work = program(sizes, _alone(step, clock))
    seconds = zip(Lane, work.lane_seconds[:, 0], strict=True)
    yield OffloadedStepPoint(
        layers=sizes.layers,
        width=sizes.width,
        tokens=sizes.tokens,
        precision=working_precision(request, place),
        cached=not past_cache_is_open(request.scratch),
        read_bytes=read,
        written_bytes=written,
        lane_seconds={lane.plain: float(one) for lane, one in seconds if one},
        floor_seconds=float(work.floor[0]),
        path_seconds=float(work.makespan[0]),
        time=time,
    )


@contextmanager
def open_step(sizes: Sizes, request: Request, place: Place) -> Iterator[Step]:
    """The step with its files, past the file system's cache where that is possible."""
    folder = request.scratch or "."
    direct = past_cache_is_open(folder)
    weights, states = sizes.layers * sizes.layer_bytes, sizes.layers * sizes.state_bytes
    dtype = dtype_of(working_precision(request, place))
    with (
        scratch_file(folder, weights, direct=direct) as of_weights,
        scratch_file(folder, states, direct=direct) as of_states,
    ):
        yield step_of(sizes, Files(of_weights, of_states), device_of(place), dtype)


def _alone(step: Step, clock: Clock) -> Mapping[str, float]:
    """Seconds of an item of each sort while nothing else runs; those of all layers in turn.

    But states are read while others are written: the longer of the two takes as long as both
    together, as drives share themselves between the two.
    """
    sizes, calls = step.sizes, step.calls()
    seconds = {}
    for sort in KINDS:
        if sort.startswith("copy") and not sizes.on_gpu:
            continue
        first = sizes.layers if sort in ("backward", "copy_out") else 0
        call = _in_turn(calls[sort], first, sizes.layers)
        seconds[sort] = clock.time(call, on_host=True).seconds
    seconds[max("read_states", "write", key=lambda sort: seconds[sort])] = _both(step, clock)
    return seconds


def _both(step: Step, clock: Clock) -> float:
    """Seconds of reading states of one layer while those of another are written."""
    turns = cycle(range(step.sizes.layers - 1))
    with ThreadPoolExecutor(1) as thread:

        def call() -> None:
            turn = next(turns)
            at_once(thread, partial(step.read_states, turn), partial(step.write, turn + 1))

        return clock.time(call, on_host=True).seconds


def _in_turn(call: Callable[[int], object], first: int, count: int) -> Callable[[], object]:
    numbers = cycle(range(first, first + count))
    return lambda: call(next(numbers))


def _begin(threads: int, place: Place) -> None:
    """A thread of a lane: torch's threads, and on a GPU a stream of its own."""
    torch.set_num_threads(threads)
    if place.device == "cuda":
        torch.cuda.set_device(place.local_rank)
        torch.cuda.set_stream(torch.cuda.Stream())


OFFLOADED_STEP = Item(
    "offloaded_step",
    "a step whose weights and states lie on the drive of --scratch",
    step_tasks,
    30.0,
)
