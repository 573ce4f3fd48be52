"""What was measured on a machine: points, the curves through them, and where they come from."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import FittedConstants, GpuSpec
from trainplan.costmodel.job import Float8Recipe, Precision
from trainplan.costmodel.spec import Sourced, Spec

MEASURED_RUNTIME = "torch-eager"
"""Layers and ends of plain PyTorch, which are timed wherever torch is."""

Count = Annotated[int, Field(gt=0, le=1 << 40)]
"""A size or a number; what is larger is a slip."""
MOST_POINTS = 20_000
Flag = Literal["noisy", "drift", "outliers", "throttled", "with_host", "stated"]
"""What is wrong with a timing: repeats that do not agree, that change while measured, that lie far
from the others, a GPU that reports it was slowed down; `with_host`: the GPU may have waited for
Python; `stated`: a figure of another tool, whose repeats are unknown."""
Operation = Literal["all_reduce", "all_gather", "reduce_scatter", "alltoall", "p2p"]
HostCopy = Literal["host_to_device", "device_to_host"]
HOST_COPIES: tuple[HostCopy, ...] = ("host_to_device", "device_to_host")
"""What data parallelism hides behind compute."""
Direction = Literal["host_to_device", "device_to_host", "host_to_host", "nvme_read", "nvme_write"]


class Timing(Spec):
    """Seconds of one call, over repeats; of several ranks the slowest in every repeat."""

    seconds: PositiveFloat
    """Median; on a GPU of the device alone, where `host_seconds` is known."""
    spread_fraction: NonNegativeFloat = 0.0
    """Scaled median absolute deviation over the median."""
    half_width_fraction: NonNegativeFloat = 0.0
    """Half the 95 % confidence interval of the median, over the median."""
    repeats: Count = 1
    flags: tuple[Flag, ...] = ()
    slowest_rank: NonNegativeInt | None = None
    host_seconds: NonNegativeFloat | None = None
    """What Python takes to queue one call; null on a CPU, where the GPU may have waited for it, and
    in profiles of before it was measured separately: there `seconds` are those of both."""

    @property
    def in_a_row(self) -> float:
        """Seconds of each of many calls in a row.

        Source: host and device work in parallel, so a row takes the longer of both.
        """
        return max(self.seconds, self.host_seconds or 0.0)


class ProductPoint(Spec):
    """A matrix product `m x k` times `k x n`, or `groups` of them in one grouped kernel."""

    kind: Literal["gemm"] = "gemm"
    m: Count
    """Rows; of a group on average."""
    n: Count
    k: Count
    groups: Count = 1
    precision: Precision = "bf16"
    weight_gradient: bool = False
    """Reduces over tokens into an fp32 gradient: `m` inputs and `n` outputs of the weight, `k`
    tokens, of one group on average."""
    fast_accumulation: bool = False
    """In fp8: sums stay in the matrix unit, as Transformer Engine and torchao have it forward; else
    they are added up in fp32, as in both gradients. Some GPUs know one way alone."""
    recipe: Float8Recipe = "tensorwise"
    """In fp8: how operands are scaled."""
    time: Timing


class AttentionPoint(Spec):
    """The core of causal attention on one rank."""

    kind: Literal["attention"] = "attention"
    micro_batch_size: Count
    seq_length: Count
    num_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    value_dim: Count
    precision: Precision = "bf16"
    forward: Timing
    backward: Timing | None = None


class LayerPoint(Spec):
    """One whole transformer layer on one rank, nothing recomputed."""

    kind: Literal["layer"] = "layer"
    model: ModelSpec
    """The model it is a layer of; `moe` has which sort."""
    moe: bool = False
    runtime: str
    """What ran it."""
    kernels: Literal["fused", "legacy", "eager"] = "eager"
    """As in the traits of runtimes: one kernel for what belongs together, those of 2021 to 2023, or
    one for every operation."""
    attention: Literal["flash", "unfused"] = "flash"
    tp: Count = 1
    ep: Count = 1
    micro_batch_size: Count
    seq_length: Count
    precision: Precision = "bf16"
    sequence_parallel: bool = False
    """The residual stream is cut over the tensor-parallel ranks, too."""
    in_step: bool = False
    """Timed in the order of a step: several layers, each with weights of its own, forward one after
    another, then backward, weight gradients added to fp32 ones. Else each pass in a loop."""
    collectives_inside: bool = False
    """The times include those of the tensor-parallel collectives."""
    alone: bool = False
    """The sum of its operations, each timed alone; else the layer ran as a whole."""
    forward: Timing | None = None
    backward: Timing | None = None
    """Input and weight gradients; null where only both passes together are known."""
    forward_alone: Timing | None = None
    """In a loop by itself, next to the time in a step; informs only."""
    backward_alone: Timing | None = None
    """As `forward_alone`."""
    both: Timing | None = None
    """Forward and backward together, where they were not separated."""
    weight: Timing | None = None
    """Weight gradients alone."""
    saved_bytes: NonNegativeFloat | None = None
    """Kept from forward to backward."""


class EndPoint(Spec):
    """The embedding, or the final norm, output projection and loss, on one rank."""

    kind: Literal["embedding", "head"]
    tokens: Count
    hidden_size: Count
    vocab_size: Count
    """Rows on this rank."""
    runtime: str = MEASURED_RUNTIME
    kernels: Literal["fused", "legacy", "eager"] = "eager"
    """As in `LayerPoint`."""
    alone: bool = False
    """As in `LayerPoint`."""
    precision: Precision = "bf16"
    in_step: bool = False
    """As in `LayerPoint`, before and behind the layers."""
    forward: Timing
    backward: Timing


class OptimizerPoint(Spec):
    """A step of an optimizer over parameters of one rank."""

    kind: Literal["optimizer"] = "optimizer"
    name: str = "adamw"
    """As `--optimizer` takes it."""
    num_params: Count
    side: Count | None = None
    """Of the square matrices the parameters lie in; null: they are one vector."""
    place: Literal["gpu", "cpu"] = "gpu"
    """Where states live and are updated."""
    threads: Count = 1
    processes: Count | None = None
    """Of the node that update at the same time, in host memory; null: all of them."""
    time: Timing


class StreamPoint(Spec):
    """A kernel bound by memory: a norm, an activation, a copy."""

    PERMUTES: ClassVar = ("permute", "permute_backward")
    LOSSES: ClassVar = ("loss",)
    kind: Literal["stream"] = "stream"
    name: str
    """PERMUTES sort rows by expert, LOSSES are fused; all others are kernels without reuse."""
    moved_bytes: Count
    """Read and written; of a loss `LOSS_PASSES` of `blocks.embedding_and_head` over the logits."""
    time: Timing


class CollectivePoint(Spec):
    """A collective or message on groups that all run at once."""

    kind: Literal["collective"] = "collective"
    operation: Operation
    ranks: Count
    """Members of one group."""
    per_node: Count
    """Members of one group in one node."""
    stride: Count = 1
    """Distance of neighbouring members: 1 consecutive, the node size for one rank per node."""
    num_bytes: Count
    """Of the full tensor: gathered output, scattered input, reduced tensor, sum sent by one rank;
    of `p2p` the message."""
    time: Timing


class LinkPoint(Spec):
    """Messages between two nodes, or two GPUs of one, while other pairs do the same."""

    kind: Literal["link"] = "link"
    source: str
    target: str
    num_bytes: Count
    time: Timing


class CopyPoint(Spec):
    """Bytes between a GPU and host memory, or between memory and a drive."""

    kind: Literal["copy"] = "copy"
    direction: Direction
    num_bytes: Count
    concurrent: Count = 1
    """GPUs of the node that copy at the same time; of a drive requests in flight."""
    pageable: bool = False
    """Host memory that the system may move: the driver copies through a buffer of its own."""
    both_ways: bool = False
    """As much goes the other way at the same time; the time is that of both."""
    cached: bool = False
    """Through the file system's cache, without waiting for the drive; else past it (`O_DIRECT`)."""
    time: Timing


class OffloadedStepPoint(Spec):
    """A step of a small model whose weights and states lie on a drive, with its estimate."""

    kind: Literal["offloaded_step"] = "offloaded_step"
    layers: Count
    width: Count
    """Of both square matrices of a layer."""
    tokens: Count
    precision: Precision = "bf16"
    """Of weights and products; states are fp32."""
    cached: bool = False
    """Through the file system's cache, where nothing gets past it."""
    read_bytes: Count
    """From the drive in a step."""
    written_bytes: Count
    lane_seconds: Mapping[str, NonNegativeFloat]
    """Of each lane in a step, from the times of its parts alone."""
    floor_seconds: PositiveFloat
    """Of the largest lane."""
    path_seconds: PositiveFloat
    """Of the longest path through the parts: the estimate."""
    time: Timing
    """Of the step that was run."""


class OverlapPoint(Spec):
    """Compute, and communication or copies, at the same time."""

    SHARDING: ClassVar[tuple[Operation, ...]] = ("all_gather", "reduce_scatter", "all_reduce")
    kind: Literal["overlap"] = "overlap"
    operation: Operation | HostCopy
    """Of `p2p` every rank sends to the next one; copies are of pinned memory."""
    ranks: Count
    """That communicate or copy at the same time."""
    num_bytes: Count
    """As in `CollectivePoint`; of a copy those of one rank."""
    compute_slowdown: PositiveFloat
    """Seconds of the compute during traffic over those alone."""
    communication_slowdown: PositiveFloat


class MemoryPoint(Spec):
    """Memory that the caching allocator does not count, or takes beyond what is requested of it."""

    kind: Literal["memory"] = "memory"
    name: Literal["context_bytes", "communicator_bytes", "reserve_fraction"]
    value: NonNegativeFloat


class PowerPoint(Spec):
    """Power of one GPU in a state, and how fast it runs in it."""

    kind: Literal["power"] = "power"
    state: str
    gpus: Count = 1
    """Of the node in that state at the same time."""
    gpu: str = ""
    """The GPU, by node and number: `node3:5`."""
    watts: NonNegativeFloat
    joules_per_call: NonNegativeFloat | None = None
    """By the counter of energy where the GPU has one, else power times seconds."""
    seconds_per_call: NonNegativeFloat | None = None
    """While the load repeats."""
    sm_mhz: NonNegativeFloat | None = None
    """Mean clock of the multiprocessors."""
    celsius: NonNegativeFloat | None = None
    """At the end."""
    slowed_by: tuple[str, ...] = ()
    """What kept its clock low, as the driver reports; the power limit is none of them."""


Point = Annotated[
    ProductPoint
    | AttentionPoint
    | LayerPoint
    | EndPoint
    | OptimizerPoint
    | StreamPoint
    | CollectivePoint
    | LinkPoint
    | CopyPoint
    | OffloadedStepPoint
    | OverlapPoint
    | MemoryPoint
    | PowerPoint,
    Field(discriminator="kind"),
]


class Host(Spec):
    """One node that was measured."""

    name: str
    num_gpus: PositiveInt
    gpu_names: tuple[str, ...] = ()
    gpu_memory_bytes: NonNegativeInt | None = None
    """Of one GPU."""
    cpu: str = ""
    num_cores: PositiveInt | None = None
    bf16_units: tuple[str, ...] = ()
    """Instructions of the processor for products in bf16, `amx_bf16`; empty also where the system
    does not state."""
    memory_bytes: NonNegativeInt | None = None
    drive_bytes: NonNegativeInt | None = None
    """Of the file system of --scratch, where one is given."""
    drive_free_bytes: NonNegativeInt | None = None
    """Free when the run began."""
    drive_file_system: str = ""
    """Its type, `ext4`."""
    driver: str | None = None
    nics: tuple[str, ...] = ()
    """Device and rate, `mlx5_0 400 Gb/s`."""
    topology: tuple[str, ...] = ()
    """Links between GPUs, NUMA nodes: one sentence each."""
    clocks: tuple[str, ...] = ()
    """Largest clocks and power limit of each GPU, and what slowed it down."""


class Software(Spec):
    """Versions that decide how fast kernels are."""

    torch: str
    cuda: str | None = None
    nccl: str | None = None
    backend: str


class Origin(Spec):
    """Where a profile comes from."""

    source: str
    """Who measured: `plan profile` and the hosts, or the repository and path of an import."""
    created: str | None = None
    """ISO 8601, UTC."""
    command: str | None = None
    wall_seconds: NonNegativeFloat | None = None


class Failure(Spec):
    """Something requested that was not measured."""

    item: str
    detail: str
    rank: NonNegativeInt | None = None
    host: str | None = None


class Profile(Spec):
    """Measurements of one kind of GPU and the nodes it is in."""

    SCHEMA: ClassVar = "trainplan/profile/v1"
    gpu: str
    """Catalog name, or the machine's own name where the catalog has no such device."""
    device: GpuSpec | None = None
    """Its numbers where the catalog has none."""
    num_nodes: PositiveInt = 1
    gpus_per_node: PositiveInt
    origins: tuple[Origin, ...] = Field(min_length=1)
    hosts: tuple[Host, ...] = ()
    software: Software | None = None
    fitted: FittedConstants = FittedConstants()
    """Curves through the points; what is absent stays as in the catalog."""
    constants: Mapping[str, Sourced] = Field(default_factory=dict)
    """Values of `costmodel.documents.Constants` that the points give."""
    nic_gb_per_s: Sourced | None = None
    """Between scale-up domains, of one GPU in one direction, as collectives reach it."""
    scatter_fraction: Mapping[str, NonNegativeFloat] = Field(default_factory=dict)
    """Median of |fit / measured - 1| by curve, each point left out in turn."""
    points: tuple[Point, ...] = Field(default=(), max_length=MOST_POINTS)
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    """What to know: slow nodes, noisy neighbours, what was assumed."""

    def document(self) -> dict[str, object]:
        """As its public document."""
        return {"schema": self.SCHEMA, **self.model_dump(mode="json", exclude_none=True)}
