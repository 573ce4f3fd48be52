"""What the profiler is asked, and one thing it measures."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Precision
from trainplan.costmodel.profiles import MEASURED_RUNTIME, Point, Timing
from trainplan.costmodel.spec import Spec


class Request(Spec):
    """What to measure: the same on every rank, and written into the journal."""

    model: ModelSpec
    """Its layers, ends and products are measured."""
    tensor_parallel: tuple[int, ...]
    """Degrees whose slices of a layer are measured."""
    micro_batch_sizes: tuple[int, ...]
    seq_length: int
    precision: Precision
    quick: bool
    """One minute: fewer sizes, fewer repeats."""
    only: tuple[str, ...] = ()
    """Names of items; none: all."""
    all_links: bool = False
    """Time all pairs of nodes and GPUs, not some rounds of random ones."""
    optimizers: tuple[str, ...] = ()
    """Names of those to measure beside AdamW."""
    runtimes: tuple[str, ...] = (MEASURED_RUNTIME,)
    """Whose whole layers are measured, of `profiler.bench.layer.RUNTIMES`."""
    scratch: str | None = None
    """Folder on the drive whose speed is wanted."""


@dataclass(frozen=True, slots=True)
class Place:
    """The process that measures: one for each GPU, or some on the CPU."""

    device: Literal["cuda", "cpu"]
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @property
    def num_nodes(self) -> int:
        """Nodes of the run, all with the same number of processes."""
        return self.world_size // self.local_world_size


class Clock(Protocol):
    """Times calls until the median is known well enough."""

    def time(self, call: Callable[[], object], *, on_host: bool = False) -> Timing:
        """Seconds of a call on this rank's device, warmed up, over adaptive repeats.

        What it queues on a GPU must wait for the stream in use: it is timed behind a delay there.
        `on_host`: it works on the host, or waits for the GPU, and is timed as it comes.
        """
        ...

    def time_together(self, call: Callable[[], object], *, on_host: bool = False) -> Timing:
        """As `time` for a call all ranks make at once: of every repeat the slowest rank counts."""
        ...

    def laps(
        self, call: Callable[[Callable[[], None]], object], *, together: bool = False
    ) -> Sequence[Sequence[float]]:
        """Seconds of the parts of a call, over repeats as in `time` or `time_together`.

        The call is given a function, with which it marks where a part ends; the last one ends with
        a mark, too.
        """
        ...

    def timing_of(self, seconds: Sequence[float]) -> Timing:
        """As `time`, of calls that a task timed by itself."""
        ...


@dataclass(frozen=True, slots=True)
class MeasurementTask:
    """One thing to measure; its key is what the journal knows it by."""

    key: str
    """Unique in the item, the same in every run: `m=4096 n=6144 k=4096 bf16`."""
    measure: Callable[[Clock], Iterable[Point]]
    together: bool = False
    """All ranks take part; otherwise rank 0 measures and the others wait."""


@dataclass(frozen=True, slots=True)
class Item:
    """A named sort of measurement: one file of `profiler.bench` and one line of its registry."""

    name: str
    what: str
    """For the help page: `matrix products of the model`."""
    tasks: Callable[[Request, Place], Iterable[MeasurementTask]]
    seconds: float = 0.6
    """What one of its tasks is taken to last before any was measured.

    Source: derived. A timing may take 0.6 s by the clock; twice that forward and backward.
    """
    goes_first: bool = False
    """What the others leave behind would change it."""
