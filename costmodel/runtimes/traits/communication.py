"""What ranks exchange inside a layer: over tensor, context and expert parallelism."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.job import ContextExchange, Dispatcher, RuntimeOptions
from trainplan.costmodel.runtimes.traits.settings import stated_or


@dataclass(frozen=True, slots=True)
class Communication:
    """Traffic of tensor and context parallelism."""

    overlaps_tensor_parallel: bool = False
    """Gathers and scatters of sequence parallelism run beside matrix products, in part."""
    overlap_method: Literal["user_buffers", "async_tp"] = "user_buffers"
    """Products that send their chunks themselves, or products cut in chunks between copies of
    their own (torch.distributed symmetric memory)."""
    reorders_sequences: bool = False
    """The sequence is the second dimension, behind the batch: sequence parallelism copies what it
    scatters, and what it gathers where a micro batch has several sequences."""
    gathers_shared_heads: bool = False
    """Where tensor ranks outnumber key-value heads, the joint projection of queries, keys and
    values is cut evenly all the same, and its output gathered."""
    context_exchange: ContextExchange = "p2p"
    """Keys and values travel a ring, heads are exchanged for sequence, or keys and values are
    gathered."""
    heads_in_ring: bool = False
    """Some context ranks may exchange heads inside the ring of the others (`cp_heads`)."""
    gathers_query_heads: bool = False
    """Gathered keys and values have as many heads as the queries, and the gradients of both go
    round a ring in fp32 (torch.distributed); else they go as they are."""
    gathers_logits: bool = False
    """Tensor ranks gather the logits that each makes a part of, and take the loss of all of them;
    else each takes that of its own part."""
    context_by_sequence: bool = False
    """Each sequence may be cut over as many context ranks as it needs."""

    def with_options(self, options: RuntimeOptions) -> Communication:
        """That of a run that may state an overlap and an exchange."""
        overlap = options.overlap_tp_comm
        return replace(
            self,
            overlaps_tensor_parallel=stated_or(overlap, self.overlaps_tensor_parallel),
            context_exchange=stated_or(options.cp_comm_type, self.context_exchange),
        )


@dataclass(frozen=True, slots=True)
class Experts:
    """Dispatch of tokens to experts and back."""

    SENDS_ONCE: ClassVar[Collection[Dispatcher]] = ("deepep", "hybridep", "ncclep")
    """Dispatchers that send a token once to each rank that needs it."""
    overlaps: bool = False
    """The expert all-to-all runs beside compute, in part."""
    overlaps_shared: bool = False
    """It runs beside the shared experts, in part."""
    chunks: int = 1
    """Parts of a rank's tokens that are sent, multiplied and brought back one behind the other."""
    gathers_on_own_lane: bool = False
    """Gathers over `etp` run beside the all-to-all of other chunks."""
    delays_weights: bool = False
    """Weight gradients of a layer run behind what sends the gradient of its input."""
    dispatcher: Dispatcher = "alltoall"
    """Inside one scale-up domain."""
    dispatcher_across: Dispatcher = "alltoall"
    """Where expert groups span several."""
    routing_weight_bytes: int = BYTES_BF16
    """Bytes of the weight of a routed row where a plain all-to-all carries it, and of an element of
    what an all-gather returns."""
    narrow: tuple[tuple[str, Dispatcher], ...] = ()
    """Formats of fewer bits that tokens may travel in, each with the dispatcher that has it."""
    starts_by_rank: bool = False
    """An exchange between nodes starts later the more ranks it joins; else as those of measured
    runs, which join few."""

    @property
    def sends_once_across(self) -> bool:
        """Does a token go once to each rank that needs it, where groups span several domains?"""
        return self.dispatcher_across in self.SENDS_ONCE

    def with_options(self, options: RuntimeOptions) -> Experts:
        """Those of a run that may state a dispatcher, and an overlap."""
        return replace(
            self,
            overlaps=stated_or(options.overlap_moe_a2a, self.overlaps),
            overlaps_shared=stated_or(options.overlap_shared_experts, self.overlaps_shared),
            chunks=stated_or(options.moe_chunks, self.chunks),
            delays_weights=stated_or(options.delay_wgrad, self.delays_weights),
            dispatcher=stated_or(options.moe_dispatcher, self.dispatcher),
            dispatcher_across=stated_or(options.moe_dispatcher, self.dispatcher_across),
        )
