"""Speeds, curves and sizes of a cluster: of one GPU, its links and its host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.documents import Constants
from trainplan.costmodel.hardware import FabricTier
from trainplan.costmodel.machine.hardware import GemmRate, Provenance
from trainplan.costmodel.profiles import EndPoint, LayerPoint
from trainplan.costmodel.residuals import ALONE, Residuals, Shares


@dataclass(frozen=True, slots=True)
class Machine:
    """What the formulas know of a cluster. Bandwidths are bytes per second of one GPU."""

    num_gpus: int
    domain_gpus: int
    """GPUs of the job in one scale-up domain. Source: `NodeGroup.domain_gpus`."""
    memory_bytes: float
    memory_bytes_per_second: float
    half: GemmRate
    """Matrix products that stay in 16 bits where the job computes in 8 or 4; else as `linear`."""
    linear: GemmRate
    """Matrix products in the precision of the job."""
    attention_max_efficiency: float
    attention_half_length: float
    alpha_seconds: FloatColumn
    """Latency by operation and shape of group, shape (operations, `machine.hardware.SHAPES`)."""
    bus_bytes_per_second: FloatColumn
    sqrt_coefficient: FloatColumn
    link_bytes_per_second: FloatColumn
    """Of a message between two GPUs of a domain, by `costmodel.machine.hardware.STRIDES`."""
    nic_bytes_per_second: float
    """Datasheet; infinite where the cluster is one domain."""
    adapter_bytes_per_second: float
    """Of one adapter, datasheet."""
    by_proxies: bool
    """Does the host post what GPUs send to other nodes?"""
    fabric: tuple[FabricTier, ...]
    rails: int
    """Of one scale-up domain, in a network that joins no rails; 0: it joins all GPUs."""
    host_bytes_per_second: float
    """To host memory, one direction."""
    gpus_per_node: int
    peak_flop_per_second: float
    """Dense datasheet peak of the precision in use: what MFU is counted against."""
    provenance: tuple[Provenance, ...]
    constants: Constants
    storage_bytes: int
    """Bytes of one activation or working weight."""
    architecture: str
    host_factor: float
    """Launch time of the host over that of an x86 server."""
    speed: float = 1.0
    """Measured over predicted speed of whole steps, where a calibration has it."""
    fixed_overhead_seconds: float = 0.0
    """Added to every step, where a calibration has it."""
    outer_seconds: float = 0.0
    """Of an island: a step lasts no less than so many seconds and `outer_factor` times its local
    ones."""
    outer_factor: float = 1.0

    calibrated: bool = False
    """Corrected by measured steps of the job's own precision and runtime."""

    attention_residuals: Residuals | None = None
    """Of the core, by sequence length, rows (heads times sequences) and both widths of a head."""
    attention_backward_residuals: Residuals | None = None
    collective_residuals: Mapping[tuple[int, int], Residuals] = field(default_factory=dict)
    """By row and column of the fits; over bytes of the full tensor, inside one domain."""
    layers: tuple[LayerPoint, ...] = ()
    """Whole layers that were measured: their level is that of the parts."""
    ends: tuple[EndPoint, ...] = ()
    """Embeddings and heads that were measured, as `layers`."""
    optimizer_bytes_per_second: float | None = None
    """Measured speed of Adam; null: that of other kernels without reuse."""
    optimizer_slowness: float = 1.0
    """Measured over derived seconds of a step of the job's optimizer, where it is not AdamW."""
    permute_bytes_per_second: float | None = None
    """Measured speed of kernels that sort rows by expert; null: as fitted with their passes."""
    loss_bytes_per_second: float | None = None
    """Measured speed of the fused loss; null: that of other kernels without reuse."""
    cpu_adam_params_per_second: float | None = None
    """Measured, or stated, of all cores of a node; null: as published."""
    host_memory_bytes: float | None = None
    """Of one node; null: not known, so not checked."""
    drives: Drives | None = None
    """Of one node; null: none is known."""
    outside_bytes: float | None = None
    """Measured device memory outside the allocator; null: that of the runtime."""

    shares: Shares = ALONE
    """Of what was measured, with the catalog."""
    unvalidated: bool = False
    """Priced from measured parts that no measured step was held against."""

    groups: tuple[Machine, ...] = ()
    """The machine of each node group alone, where there are several."""


@dataclass(frozen=True, slots=True)
class Drives:
    """All drives of one node together."""

    space_bytes: float
    read_bytes_per_second: float | None
    write_bytes_per_second: float | None
    """Null: not known, so nothing is kept there."""
    written_bytes: float | None
    """That may be written in their life; null: not known."""
    both_bytes_per_second: float | None = None
    """Each way while as much goes the other way; null: not known, ways are taken to be separate."""
