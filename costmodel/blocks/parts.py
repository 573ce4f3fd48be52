"""What a part of a layer costs, the columns all parts share, and clocks under a power limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import add, attrgetter, sub
from typing import Any

import numpy as np

from trainplan.costmodel.blocks.accumulation import added_bytes, product_bytes, table_added_bytes
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels import ForwardBackward, elementwise_seconds
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.shards import CAST_BYTES


@dataclass(frozen=True)
class PassSeconds:
    """Seconds of one pass of one micro batch, by term."""

    gemm: FloatColumn
    attention: FloatColumn
    elementwise: FloatColumn
    tp_comm: FloatColumn
    cp_comm: FloatColumn
    ep_comm: FloatColumn
    host: FloatColumn
    """Time the GPU waits for the host to launch work."""

    @cached_property
    def total(self) -> FloatColumn:
        """All terms: they run one after the other.

        Source: each operation of a layer needs the result of the one before, so none runs beside
        another and the seconds of all terms add up.
        """
        busy = self.gemm + self.attention + self.elementwise + self.host
        return busy + self.tp_comm + self.cp_comm + self.ep_comm

    def times(self, count: float, row: int) -> PassSeconds:
        """One row, `count` times."""
        return PassSeconds(*(count * term[row : row + 1] for term in TERMS(self)))

    def __add__(self, other: PassSeconds) -> PassSeconds:
        return PassSeconds(*map(add, TERMS(self), TERMS(other)))

    def __sub__(self, other: PassSeconds) -> PassSeconds:
        return PassSeconds(*map(sub, TERMS(self), TERMS(other)))


TERMS: Callable[[PassSeconds], tuple[FloatColumn, ...]] = attrgetter(
    *(field.name for field in fields(PassSeconds))
)
"""All terms in their order."""


def pass_seconds(size: int, **terms: FloatColumn) -> PassSeconds:
    """A pass with the given terms; the others are zero."""
    zero = np.zeros(size)
    return PassSeconds(**{f.name: terms.get(f.name, zero) for f in fields(PassSeconds)})


@dataclass(frozen=True, slots=True)
class Module:
    """Something inside a layer that selective recomputation drops and repeats when chosen."""

    name: str
    seconds: FloatColumn
    """Forward work repeated in the backward pass."""
    dropped_bytes: FloatColumn
    """Not kept, but present again while one layer runs backward."""
    inside: str = ""
    """A larger module that holds it: where that is chosen, this one adds nothing."""
    launch_seconds: FloatColumn | None = None
    """What the host takes to launch it again; null: as long as it runs."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a layer for one micro batch on one rank."""

    forward: PassSeconds
    backward: PassSeconds
    """Input and weight gradients, without recomputation."""
    weight: FloatColumn
    """Seconds of the backward pass that only the weight gradients need."""
    saved_bytes: FloatColumn
    """Kept from forward to backward where nothing is recomputed."""
    modules: tuple[Module, ...]
    """What selective recomputation may choose."""
    tail: PassSeconds
    """End of `forward` that makes nothing the backward pass of this layer reads."""
    experts: ForwardBackward | None = None
    """Part of it between dispatch and combine; null: it has none."""

    def __add__(self, other: Part) -> Part:
        return Part(
            self.forward + other.forward,
            self.backward + other.backward,
            self.weight + other.weight,
            self.saved_bytes + other.saved_bytes,
            self.modules + other.modules,
            self.tail + other.tail,
            self.experts or other.experts,
        )

    def accumulating(self, seconds: FloatColumn) -> Part:
        """The part when its weight gradients also take so long to add."""
        added = pass_seconds(len(seconds), elementwise=seconds)
        return replace(self, backward=self.backward + added, weight=self.weight + seconds)


@dataclass(frozen=True, slots=True)
class Shapes(Candidates):
    """Columns every part needs; one row per distinct block key."""

    tokens: FloatColumn
    """Tokens of one micro batch on one context-parallel rank."""
    residual_shards: FloatColumn
    """Ranks the residual stream is cut over: tp with sequence parallelism, else 1."""
    tp_exchange: FloatColumn
    """Seconds of one forward tensor-parallel exchange: all-reduce, or all-gather and
    reduce-scatter, with what they copy."""
    tp_regather: FloatColumn
    """Seconds of the all-gather that the weight gradient repeats under sequence parallelism."""
    tp_wire: FloatColumn
    """As `tp_exchange`, with what runs beside products."""
    tp_wire_again: FloatColumn
    """As `tp_regather`, with what runs beside products."""
    tp_exposed: FloatColumn
    """Share of scatters, and of reductions, that nothing hides."""
    gather_exposed: FloatColumn
    """Share of gathers that nothing hides."""
    added_bytes: FloatColumn
    """Bytes moved to add the gradient of one weight to the accumulated one."""
    table_added_bytes: int
    """As above of the token table, where products add theirs in place."""

    @property
    def size(self) -> int:
        """Rows."""
        return len(self.table)

    @property
    def eager(self) -> float:
        """Bytes moved by elementwise kernels over those of fused ones.

        Source: `eager_elementwise`, of layers with a gated MLP; PLAIN_EAGER of others.
        """
        if self.traits.kernels.elementwise != "eager":
            return 1.0
        more = self.machine.constants.eager_elementwise - 1
        return 1 + more * (1.0 if self.job.model.gated_mlp else PLAIN_EAGER)

    @property
    def storage(self) -> int:
        """Bytes of one activation."""
        return self.job.training.storage_bytes

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one weight gradient as its product writes it."""
        return product_bytes(self.job, self.traits)

    def exposed_exchange(self, products: ForwardBackward) -> ForwardBackward:
        """Seconds of the exchanges of half a layer that its products leave, in both passes.

        Source: `traffic_left`; of frozen weights no product of a gradient runs backward.
        """
        zero, back = np.zeros(self.size), products.backward
        back = back if self.job.model.trained is None else back - products.weight
        return ForwardBackward(
            traffic_left(self.tp_exchange, self.tp_wire, products.forward),
            traffic_left(
                self.tp_exchange + self.tp_regather, self.tp_wire + self.tp_wire_again, back
            ),
            zero,
        )

    def accumulation_seconds(self, weights: FloatColumn) -> FloatColumn:
        """Adding the gradients of so many weights. Source: `added_bytes`, streamed."""
        return elementwise_seconds(self.machine, self.added_bytes * weights)

    def bias_seconds(self, columns: FloatColumn, *, stated: bool) -> FloatColumn:
        """Gradients of the biases of products with so many columns on a rank.

        Each is its output's gradient summed over the tokens, which reads that once more. Fused
        kernels sum it inside a product; unfused layers of 2021 have biases where no unit gates.
        Source: derived; PyTorch `torch/csrc/autograd/FunctionsManual.cpp` and Megatron-LM
        `tensor_parallel/layers.py`, grad_bias; Transformer Engine, epilogue BGRADB.
        """
        legacy = self.traits.kernels.elementwise == "legacy" and not self.job.model.gated_mlp
        summed = self.traits.kernels.elementwise != "fused" and (stated or legacy)
        summed = summed and self.job.model.trained is None
        return elementwise_seconds(self.machine, summed * self.storage * self.tokens * columns)

    @property
    def keeps_cast_inputs(self) -> bool:
        """Do products keep their inputs in the low precision they multiply in?"""
        return self.job.training.casts and self.traits.footprint.low_precision != "cast"

    @property
    def input_bytes(self) -> float:
        """Bytes of one element of the input of a product, as it is kept."""
        return CAST_BYTES[self.job.training.precision] if self.keeps_cast_inputs else self.storage


def shapes(candidates: Candidates) -> Shapes:
    """Layouts with the columns that every part needs."""
    return Shapes(*candidates.shared, candidates.table, **_columns(candidates))


@remembered
def _columns(candidates: Candidates) -> dict[str, Any]:
    """Fields of `Shapes`.

    Source: Korthikanti et al., arXiv:2205.05198, section 4.2.2: an all-reduce becomes an
    all-gather and a reduce-scatter of the same tensor under sequence parallelism. The gathered
    tensor is cast first where products run in low precision (Transformer Engine `_gather_along_
    first_dim` of quantized tensors). Copies: `Communication.reorders_sequences`; PyTorch
    `_functional_collectives.py`, torch.cat around collectives along another dimension than the
    first (tests/oracles/test_sequence_parallel.py), which overlapped kernels do without. Rows have
    scales only once they are whole in 16 bits, and their gather is fused with no product:
    `scales_rows`.
    """
    (job, machine, traits), table = candidates.shared, candidates.table
    one = np.ones(len(table), dtype=np.int64)
    tokens = table.micro_batch_size * job.training.seq_length / table.cp
    links = group(machine, table.tp, one)
    tensor = job.training.storage_bytes * tokens * job.model.hidden_size
    whole = scales_rows(candidates)
    gathered = tensor * gathered_share(candidates)
    gather = collective_seconds(machine, "all_gather", gathered, links)
    scatter = collective_seconds(machine, "reduce_scatter", tensor, links)
    reduce = collective_seconds(machine, "all_reduce", tensor, links)
    parallel = table.sequence_parallel == 1
    overlapped = parallel & traits.communication.overlaps_tensor_parallel
    exposed = np.where(overlapped, overlap_exposed(candidates), 1.0)
    gather_exposed = np.ones_like(exposed) if whole else exposed
    again = gather * (parallel & (not traits.footprint.keeps_gathered_inputs))
    copied = tensor * ~overlapped + gathered * (table.micro_batch_size > 1) * (whole | ~overlapped)
    copied = copied * (parallel & (table.tp > 1)) * traits.communication.reorders_sequences
    copies = elementwise_seconds(machine, 2.0 * copied)
    return {
        "tokens": tokens,
        "residual_shards": np.where(parallel, table.tp, 1).astype(np.float64),
        "tp_exchange": np.where(parallel, gather * gather_exposed + scatter * exposed, reduce)
        + copies,
        "tp_regather": again * gather_exposed * machine.constants.regather_exposed,
        "tp_wire": np.where(parallel, gather + scatter, reduce) + copies,
        "tp_wire_again": again,
        "tp_exposed": exposed,
        "gather_exposed": gather_exposed,
        "added_bytes": added_bytes(candidates),
        "table_added_bytes": table_added_bytes(job, traits),
    }


def scales_rows(candidates: Candidates) -> bool:
    """Do products in fp8 have scales of rows?

    Source: pytorch/torchtitan@b5bcd76c `components/quantization/float8.md`, all communication is in
    high precision; pytorch/pytorch issue 149990, such gathers are not fused with a product.
    """
    return candidates.linear.recipe != "tensorwise"


def gathered_share(candidates: Candidates) -> float:
    """Bytes of an element as sequence parallelism gathers it over those it is stored in.

    Source: `shapes`.
    """
    if scales_rows(candidates):
        return 1.0
    return candidates.machine.linear.element_bytes / candidates.machine.storage_bytes


def overlap_exposed(candidates: Candidates) -> float:
    """Share of the traffic left beside products. Source: the constants."""
    constants = candidates.machine.constants
    if candidates.traits.communication.overlap_method == "async_tp":
        return constants.async_tp_exposed
    return constants.tp_overlap_exposed


def traffic_left(
    exposed: FloatColumn, wire: FloatColumn, products: FloatColumn | float
) -> FloatColumn:
    """Seconds of traffic that products beside it leave, of `wire` seconds on any link.

    `exposed` is what stays however long the products are: the share of the last chunk, and of what
    slows the products, as fitted inside a node. Between nodes the traffic outlasts the products,
    and what outlasts them is left.
    Source: derived; what runs beside P seconds of products ends at the earliest with the later of
    both, so at least wire - P is added. Wang et al., Domino, arXiv:2409.15241, section 3: the bound
    is a step without communication.
    """
    return np.maximum(exposed, wire - products)


PLAIN_EAGER = 0.6
"""What single kernels move more where MLPs have no gate, over where they have one.

Source: derived; kernels beyond fused ones over these: of RMSNorms in fp32 two each, a rotation
three and a gate one, 8 on 6; of LayerNorms, which are one kernel between two casts, 4 on 5.
"""
REFERENCE_DUTY = 0.75
"""Share of a pass in matrix products at which the sustained speeds of the catalog hold.

Source: a dense layer without tensor parallelism, where most of them were fitted."""
FASTEST, SLOWEST = 0.7, 1.2
"""Bounds of the factor: clocks neither rise above burst nor fall without end. Source: `sustained`
speeds of the catalog, 0.65 to 0.95 of burst."""


def by_its_library(candidates: Candidates, seconds: PassSeconds) -> PassSeconds:
    """A pass with its products as fast as the runtime's library of the GPU's vendor runs them.

    The catalog's curves are those of kernels chosen by timing. Source: `untuned_on_amd`;
    `Kernels.tuned_products`; products that were measured are what they are.
    """
    machine = candidates.machine
    known = candidates.traits.kernels.tuned_products or machine.linear.residuals is not None
    if known or not machine.architecture.startswith("cdna"):
        return seconds
    return replace(seconds, gemm=seconds.gemm / machine.constants.untuned_on_amd)


def under_power_limit(machine: Machine, part: Part, run: Part, sync_seconds: float) -> Part:
    """A part of a layer with its products at the clock that its duty allows where it takes `run`.

    `sync_seconds` are idle in every forward pass, twice that backward. Waiting for launches is not
    counted: a shorter wait must not end in slower products.
    """
    forward = clock_factor(machine, run.forward, sync_seconds)
    backward = clock_factor(machine, run.backward, 2 * sync_seconds)
    return replace(
        part,
        forward=_slowed(part.forward, forward),
        backward=_slowed(part.backward, backward),
        weight=part.weight * backward,
        tail=_slowed(part.tail, forward),
    )


def clock_factor(machine: Machine, seconds: PassSeconds, idle: float) -> FloatColumn:
    """Seconds of products at the duty of this pass over those at the reference duty.

    Dynamic power grows as duty times frequency cubed, so that at a fixed power limit frequency
    falls as duty to the power of a third, less where other parts draw power.
    Measured products ran in bursts too short for the power limit, so none is faster than that.
    Source: with power ~ duty f^3 held constant, f ~ duty^(-1/3) and seconds ~ duty^(1/3); the
    exponent that fits is `power_exponent` of `Constants`.
    """
    duty = (seconds.gemm + seconds.attention) / (seconds.total + idle)
    factor = (duty / REFERENCE_DUTY) ** machine.constants.power_exponent
    bursts = 0.0 if machine.linear.residuals is None else machine.shares.products.level
    fastest = FASTEST ** (1 - bursts)
    return np.asarray(np.minimum(np.maximum(factor, fastest), SLOWEST))


def _slowed(seconds: PassSeconds, factor: FloatColumn) -> PassSeconds:
    return replace(seconds, gemm=seconds.gemm * factor, attention=seconds.attention * factor)
