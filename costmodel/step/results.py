"""What a layout is expected to cost: seconds by term, bytes by rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from trainplan.costmodel.memory import RESERVE_FACTOR, MemoryTable
from trainplan.costmodel.uncertainty import FIT_CHANCE, Interval


@dataclass(frozen=True, slots=True)
class Terms:
    """Exposed seconds of one step on the busiest pipeline rank; they sum to the step time."""

    gemm: float
    """Matrix products of the layers and the head."""
    attention: float
    """Attention cores."""
    elementwise: float
    """Norms, activations, rotary positions, permutations, loss."""
    host: float
    """The GPU waits for kernel launches."""
    tp_comm: float
    """Tensor-parallel collectives."""
    cp_comm: float
    """Exposed part of the context-parallel exchange."""
    ep_comm: float
    """Expert all-to-alls, with the gathers over etp."""
    fsdp_comm: float
    """Gathers and reductions of sharded weights and gradients, per micro batch."""
    recompute: float
    """Forward work repeated in the backward pass."""
    bubble: float
    """The busiest rank waits for others, messages taken as instant."""
    p2p: float
    """What messages between stages add to that."""
    dp_comm: float
    """Exposed gradient reduction and parameter gather at the step's end."""
    optimizer: float
    """Zeroing, clipping, Adam, and casts of new weights to what products read."""
    offload: float
    """What optimizer state and activations in host memory add."""
    outer_comm: float
    """Its share of the exposed syncs of islands."""
    overhead: float
    """What no term explains: data loading, logging, stragglers."""


VALUES: Callable[[Terms], tuple[float, ...]] = attrgetter(*(field.name for field in fields(Terms)))
"""All terms in their order."""


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Peak bytes of one pipeline rank."""

    rank: int
    """Pipeline rank, from 0."""
    weights_bytes: float
    """Weights."""
    gradients_bytes: float
    """Accumulated gradients."""
    optimizer_bytes: float
    """fp32 weights and both Adam moments on the GPU."""
    activations_bytes: float
    """Activations of all micro batches in flight."""
    transients_bytes: float
    """Logits or gradients of one layer, weight-shaped buffers, what a pipeline receives into."""
    overheads_bytes: float
    """Context, communicators and what the allocator reserves beyond the peak."""
    cached_bytes: float = 0.0
    """What the allocator keeps in addition, and gives back before a run fails; in no sum here."""

    @classmethod
    def of_row(cls, table: MemoryTable, row: int, pp: int) -> tuple[RankMemory, ...]:
        """Every pipeline rank of a row whose ranks are kept separate."""
        allocated, reserved = table.allocated[:, row], table.reserved[:, row]
        return tuple(
            cls(
                rank=r,
                weights_bytes=float(table.weights[r, row]),
                gradients_bytes=float(table.gradients[r, row]),
                optimizer_bytes=float(table.optimizer[r, row]),
                activations_bytes=float(table.activations[r, row]),
                transients_bytes=float((table.transients + table.in_transit)[r, row]),
                overheads_bytes=float(reserved[r] - allocated[r] + table.outside_bytes[row]),
                cached_bytes=float(np.broadcast_to(table.cached, table.allocated.shape)[r, row]),
            )
            for r in range(pp)
        )

    def mixed(self, share: float, others: RankMemory | None) -> RankMemory:
        """So much of it, with the shares of others of the same rank."""
        before = astuple(others)[1:] if others else (0.0,) * (len(astuple(self)) - 1)
        sums = (share * mine + rest for mine, rest in zip(astuple(self)[1:], before, strict=True))
        return RankMemory(self.rank, *sums)

    @property
    def total_bytes(self) -> float:
        """What the process needs of the device."""
        return float(sum(astuple(self)[1:-1]))

    @property
    def allocated_bytes(self) -> float:
        """What the allocator hands out at the peak."""
        return self.total_bytes - self.overheads_bytes

    @property
    def reserved_bytes(self) -> float:
        """What the allocator takes from the device."""
        return self.allocated_bytes * RESERVE_FACTOR


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """What one node keeps off its GPUs, all of its ranks together."""

    host_bytes: float
    """Host memory of a node."""
    host_capacity_bytes: float | None
    """Null: not known, so not checked."""
    drive_bytes: float
    """Space on the drives of a node."""
    drive_capacity_bytes: float | None
    """Null: no drive is known."""
    drive_written_bytes: float = 0.0
    """In a step."""
    drive_life_s: float | None = None
    """Until the drives have taken what their maker warrants, training all the time; null: not
    written to, or not known."""

    @property
    def host_fits(self) -> bool:
        """Is the host memory enough, as far as it is known?"""
        return self.host_capacity_bytes is None or self.host_bytes <= self.host_capacity_bytes

    @property
    def drive_fits(self) -> bool:
        """Is the space on the drives enough?"""
        return self.drive_bytes <= (self.drive_capacity_bytes or 0.0)


NOTHING_AWAY = NodeMemory(0.0, None, 0.0, None)


@dataclass(frozen=True, slots=True)
class Memory:
    """Peak memory of a step."""

    peak_allocated_bytes: float
    """Fullest rank, as the allocator counts."""
    peak_reserved_bytes: float
    """Fullest rank, device memory the process takes: reserved, context and communicators."""
    capacity_bytes: float
    """Usable memory of one GPU."""
    fits: bool | None
    """GPUs, host and drives; null: not known, as an upper bound alone is above the GPU."""
    pipeline_ranks: tuple[RankMemory, ...]
    """Every pipeline rank."""
    host: NodeMemory = NOTHING_AWAY
    """What one node keeps off its GPUs."""
    fit_chance: float | None = None
    """Chance that the peak of the fullest rank is within the GPU; null: not known."""
    peak_in_loss: bool = False
    """The fullest rank is fullest in the loss, not in the backward pass of a layer."""

    @property
    def fullest(self) -> RankMemory:
        """Of the pipeline rank that needs most."""
        return max(self.pipeline_ranks, key=lambda rank: rank.total_bytes)

    @property
    def headroom_bytes(self) -> float:
        """What is left on the fullest rank."""
        return self.capacity_bytes - self.peak_reserved_bytes

    @property
    def is_doubtful(self) -> bool:
        """Does it not fit, or with less than the chance that a search takes?"""
        return not self.fits or (self.fit_chance or 1.0) < FIT_CHANCE

    def leaves(self, share: float) -> bool:
        """Is such a share of the memory of the fullest GPU free?"""
        return self.headroom_bytes >= share * self.capacity_bytes


@dataclass(frozen=True, slots=True)
class LaneUse:
    """What one lane does in a step that keeps something off the GPU, for the slowest rank."""

    lane: str
    """GPU, host to GPU, GPU to host, CPU, drive read, drive write."""
    busy_s: float
    """Seconds of its work, before what no term explains is added."""
    binding_s: float
    """Of these, those on the longest path: the step waits for them."""
    saved_if_twice_as_fast_s: float
    """Of the step, if this lane alone were twice as fast."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Who waits in the pipeline, from the start of the step to the end of its last pass."""

    busiest_rank: int
    """Pipeline rank with most work, from 0: `terms` are its seconds, and it waits for `bubble` and
    `p2p` together."""
    mean_s: float
    """Seconds that the mean pipeline rank waits, for others and their messages."""


@dataclass(frozen=True)
class Estimate:
    """All a layout is expected to cost."""

    step_time_s: float
    """Seconds of one optimizer step, schedule simulated."""
    lower_bound_s: float
    """The closed-form bound the search pruned with."""
    tokens_per_s_per_gpu: float
    """Tokens of a step over step time and GPUs."""
    tflops_per_gpu: float
    """Model TFLOP/s of one GPU: no recomputation counted, causal attention at half."""
    mfu: float
    """The same over the dense datasheet peak of the precision in use."""
    terms: Terms
    """Where the time goes."""
    memory: Memory
    """Peak memory."""
    uncertainty: Interval
    """Range of the step time."""
    lanes: tuple[LaneUse, ...] = field(default_factory=tuple)
    """Most binding first; empty where nothing is off the GPU, or moved in series."""
    idle: Idle | None = field(default_factory=lambda: None)
    """Who waits in the pipeline; null: an earlier version wrote the plan."""

    @property
    def local_step_s(self) -> float:
        """Seconds of a step without its share of the syncs of islands."""
        return self.step_time_s - self.terms.outer_comm

    @classmethod
    def lazy(
        cls, known: Mapping[str, float], later: Mapping[str, Callable[[Estimate], object]]
    ) -> Estimate:
        """One whose other fields are worked out, each once, when they are read."""
        one = object.__new__(cls)
        vars(one).update(known, _later=later)
        return one

    def __reduce__(self) -> tuple[type[Estimate], tuple[object, ...]]:
        """Stored with all its fields."""
        return Estimate, tuple(getattr(self, one.name) for one in fields(self))

    if not TYPE_CHECKING:  # a misspelt name stays an error

        def __getattr__(self, name: str) -> object:
            """A field that was not read before."""
            later = vars(self).get("_later", {})
            if name not in later:
                raise AttributeError(name)
            value = vars(self)[name] = later[name](self)
            return value
