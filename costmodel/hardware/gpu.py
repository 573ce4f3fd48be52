"""One GPU type: datasheet numbers and fitted constants, each with its source."""

from typing import Literal

from pydantic import Field, PositiveInt

from trainplan.costmodel.spec import Sourced, Spec

CPU = "cpu"
"""Vendor and architecture of what a profile measured on a machine without GPUs."""


class GpuSpec(Spec):
    """Datasheet of one GPU as it is mounted in its usual node. Unknown numbers are null."""

    vendor: str
    device_names: tuple[str, ...] = ()
    """What its driver calls it, by which a profile knows it."""
    architecture: str
    """Family whose fitted constants are used where this GPU has none: ampere, hopper, ..."""
    memory_gib: Sourced
    """Usable memory in GiB."""
    memory_gb_per_s: Sourced
    peak_tflops: dict[str, Sourced]
    """Dense peak by precision: fp16, bf16, tf32, fp8, mxfp8, nvfp4; fp32 where there is no tf32."""
    link: str
    """Name of the scale-up link."""
    link_gb_per_s: Sourced
    """Scale-up GB/s of one GPU in one direction."""
    host_gb_per_s: Sourced
    """GPU to host memory GB/s in one direction."""
    nic_gb_per_s: Sourced | None = None
    """Scale-out GB/s of one GPU in one direction in the usual node."""
    gpus_per_node: PositiveInt
    nvlink_domain: PositiveInt
    """GPUs in one scale-up domain of the usual machine."""
    peer_access: bool = True
    """Does its driver let GPUs of a node without NVLink into each other's memory?"""
    tdp_w: Sourced | None = None
    mtbf_node_days: Sourced | None = None
    """Mean days between failures of one node of it in a published run."""
    announced: str | None = None
    """What is known of a GPU whose figures may still change; null: its data sheet is final."""
    host_factor: Sourced | None = None
    """Time its usual host needs to launch kernels over that of an x86 server; null: as long."""

    @property
    def reaches_peers(self) -> bool:
        """Do GPUs of a node write into each other's memory? Not known of a link: no."""
        over_bus = self.link.startswith("PCIe") and self.peer_access
        return over_bus or self.link.startswith(("NVLink", "xGMI"))


EvidenceKind = Literal["measured", "stand-in", "assumed"]
"""What a fit rests on: measurements of the GPU, of another in its place, or neither."""


class Fit(Spec):
    """A curve of one GPU."""

    kind: EvidenceKind = "measured"
    source: str


class GemmFit(Fit):
    """Seconds of a product: `fixed + flop / peak * flop_factor + bytes / bw * byte_factor`."""

    fixed_us: float
    flop_factor: float
    byte_factor: float


class CollectiveFit(Fit):
    """Seconds of a collective: `alpha + bus_bytes / bandwidth + sqrt_coefficient * sqrt(bytes)`."""

    alpha_us: float
    bus_gb_per_s: float
    sqrt_coefficient: float
    """Seconds per sqrt(byte)."""


class AttentionFit(Fit):
    """Fraction of peak of fused causal attention: `max_efficiency * s / (s + half_length)`."""

    max_efficiency: float
    half_length: float
    """Sequence length at which half of `max_efficiency` is reached."""


class SustainedFit(Sourced):
    """Speed of matrix products in a training loop over that of a short burst."""

    kind: EvidenceKind = "measured"
    sources: int | None = None
    """Sources of the published runs that it was fitted on; null: of none."""


class FittedConstants(Spec):
    """What was fitted on measurements of one GPU type; a missing entry is null or absent."""

    gemm: dict[str, GemmFit] = Field(default_factory=dict)
    """By precision: bf16, fp8."""
    collectives: dict[str, CollectiveFit] = Field(default_factory=dict)
    """By operation and group size inside one domain, `all_reduce_8`; of members that are not next
    to each other with their distance, `all_reduce_2_stride_4`."""
    attention: AttentionFit | None = None
    sustained: dict[str, SustainedFit] = Field(default_factory=dict)
    """By precision: sustained over burst speed of matrix products in a training loop."""
