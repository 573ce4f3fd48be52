"""Constants of the model of a machine, and the published runs that step times are scored on.

Ends of the intervals around a step time.
"""

from dataclasses import dataclass
from math import exp

from pydantic import Field, NonNegativeInt, PositiveFloat

from trainplan.costmodel.spec import Spec


class Constants(Spec):
    """One value of every fitted constant; `costmodel/catalog/constants.toml` has their sources.

    Fields are grouped as the formulas are: products and kernels, collectives, tensor and context
    parallelism, mixtures of experts, data parallelism, host, and what is left.
    """

    elementwise_efficiency: PositiveFloat
    """Share of datasheet memory bandwidth that norms, activations and the optimizer reach."""
    elementwise_backward: PositiveFloat
    """Bytes moved by the backward pass of an elementwise kernel over those of its forward pass."""
    eager_elementwise: PositiveFloat
    """Bytes moved by unfused elementwise kernels (eager torch) over those of fused ones."""
    power_exponent: PositiveFloat
    """Products slow down as the share of time they run, to this power."""
    launch_seconds: PositiveFloat
    """One small kernel on the GPU."""
    attention_fixed_seconds: PositiveFloat
    """Start of one fused attention call."""
    attention_backward_efficiency: PositiveFloat
    """Speed of the backward over that of the forward kernel of fused attention."""
    flash2_on_hopper: PositiveFloat
    """Speed of FlashAttention-2 on Hopper over that of kernels written for Hopper."""
    triton_attention: PositiveFloat
    """Speed of FlashAttention written in Triton over that of FlashAttention-2."""

    untuned_on_amd: PositiveFloat
    """Speed of products of torch on AMD's GPUs over that of kernels chosen by timing."""
    rowwise_product: PositiveFloat
    """Forward products in fp8 that scale rows, over those with one scale for a tensor."""

    softmax_passes: PositiveFloat
    """Passes over the scores of unfused attention in 16 bits, over the derived number."""

    nic_efficiency: PositiveFloat
    """Share of the NIC's datasheet bandwidth that long messages get."""
    inter_node_alpha: PositiveFloat
    """Seconds to start a collective across nodes."""
    inter_node_alpha_per_doubling: PositiveFloat
    """Seconds added for every doubling of the nodes."""
    p2p_alpha: PositiveFloat
    """Seconds to start a message between neighbouring stages."""

    regather_exposed: PositiveFloat
    """Share of the all-gather repeated under sequence parallelism that is not hidden."""
    tp_overlap_exposed: PositiveFloat
    """Share of tensor-parallel traffic left where the runtime overlaps it with products."""
    async_tp_exposed: PositiveFloat
    """As above where products are cut in chunks between copies (torch.distributed)."""

    expert_extra_rows: PositiveFloat
    """Rows a grouped product costs beyond its own, per local expert: loading its weights."""
    expert_extra_rows_weight_gradient: PositiveFloat
    """As above for the weight gradient, which writes fp32."""
    alltoall_alpha: PositiveFloat
    """Seconds to start an all-to-all with unequal splits."""
    alltoall_efficiency: PositiveFloat
    """Share of the fitted all-to-all bandwidth that unequal splits reach."""
    alltoall_proxied_bytes_per_second: PositiveFloat
    """Bytes that a rank sends to other nodes in a plain all-to-all that the host posts."""
    uccl_start_seconds: PositiveFloat
    """Seconds to start an exchange of DeepEP over UCCL's proxies."""
    uccl_message_bytes: PositiveFloat
    """Bytes that an adapter sends while it posts one message of UCCL."""
    nvshmem_message_bytes: PositiveFloat
    """As above of NVSHMEM over libfabric, for each node of the exchange."""
    expert_overlap_contention: PositiveFloat
    """Share of the seconds of an expert all-to-all that the compute it overlaps loses."""
    dispatch_sync_seconds: PositiveFloat
    """Idle time of a dropless dispatch that waits for its split sizes on the host."""

    first_bucket: PositiveFloat
    """Share of overlapped data-parallel traffic that has nothing to hide behind."""
    overlap_window: PositiveFloat
    """Share of one micro batch's pass that data-parallel traffic can hide behind."""
    overlap_contention: PositiveFloat
    """Share of hidden data-parallel traffic of a step that slows the passes it hides behind."""
    fsdp_contention: PositiveFloat
    """Share of hidden FSDP traffic that slows the compute it hides behind."""

    host_dense: PositiveFloat
    """Seconds the host needs to launch the forward pass of a dense layer; fused kernels."""
    host_legacy: PositiveFloat
    """As above, unfused kernels of 2021 to 2023."""
    host_tp: PositiveFloat
    """Host seconds added to the forward pass of a layer by its tensor-parallel collectives."""
    host_fsdp: PositiveFloat
    """As above, torch FSDP."""
    host_moe: PositiveFloat
    """As above, a mixture-of-experts layer with dropless dispatch."""
    host_moe_graph: PositiveFloat
    """As above, with attention and router in CUDA graphs."""
    host_checkpoint: PositiveFloat
    """As above, one module that is recomputed by itself, beyond what it launches."""
    host_backward_dense: PositiveFloat
    """Host time of a backward pass over that of a forward pass, dense layer."""
    host_backward_moe: PositiveFloat
    """As above, mixture-of-experts layer."""

    overhead_fraction: PositiveFloat
    """Share of the step that no term explains."""
    overhead_seconds: PositiveFloat
    """Fixed part of the same."""
    straggler_per_doubling: PositiveFloat
    """Slowdown for every doubling of the GPUs beyond one node of 8."""


class IntervalWidth(Spec):
    """How far measured steps, or the ratio of two of them, are from their estimates."""

    half_width: PositiveFloat
    """In log units: the interval is estimate * exp(+- half_width)."""
    runs: NonNegativeInt
    """Runs, or pairs, it was taken from."""
    sources: NonNegativeInt
    """Publications that measured them."""

    @property
    def factors(self) -> tuple[float, float]:
        """Both ends over the estimate."""
        return exp(-self.half_width), exp(self.half_width)


class Peaks(Spec):
    """How far peaks of memory are from their estimates."""

    widened: PositiveFloat
    """Factor on every scale, so that it holds for sources that were left out."""
    left_out: PositiveFloat
    """Share of the runs of sources left out that are below the peak that a chance of 0.9 allows."""
    libraries: tuple[str, ...]
    """Those of which peaks were measured."""
    scales: dict[str, PositiveFloat]
    """Of ln(peak / estimated peak) by regime, widened; `costmodel.uncertainty.peaks`."""


class Intervals(Spec):
    """Contents of `intervals.toml`."""

    comparison: IntervalWidth
    """Of the ratio of two step times in layouts that differ by one doubling; `runs` are pairs."""
    widened: PositiveFloat
    """Factor on every width, so that it holds for sources that were left out."""
    left_out: PositiveFloat
    """Share of the runs of sources that is inside intervals which had not seen their source."""
    libraries: dict[str, str] = Field(default_factory=dict)
    """Library of the layers of each runtime that does not train its own: regimes name that."""
    regimes: dict[str, IntervalWidth]
    peaks: Peaks


@dataclass(frozen=True, slots=True)
class Shape:
    """What is compared of a run and of an answer: machine, model, layout and settings."""

    gpu: str
    """As in the catalog; the kinds of a mixed cluster with blanks between."""
    runtime: str
    precision: str
    kind: tuple[str, ...]
    """`dense`, or what its layers have: `moe`, `mla`."""
    parameters: int
    num_gpus: int
    seq_length: int
    tp: int
    pp: int
    vpp: int
    cp: int
    dp: int
    ep: int
    etp: int
    dp_replicate: int
    micro_batch_size: int
    zero_stage: int
    schedule: str
    recompute: tuple[str, ...]
    """Modules that are recomputed, `full` for whole layers; empty: nothing."""
    offload_optimizer: float
    """Fraction of the optimizer in host memory."""
    offload_modules: tuple[str, ...]
    settings: tuple[str, ...]
    """What the runtime does as it was set, NAME=VALUE; only what this layout can notice."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A measured run with the error of its estimate."""

    id: str
    """Its name in `examples/accuracy/runs.jsonl`, which has the address of its source."""
    source: str
    """Repository or paper."""
    model: str
    global_batch_size: int
    """Sequences of a step."""
    step_time_s: float
    """Measured."""
    error_fraction: float
    """Estimate over measured step time, minus one."""
    shape: Shape
