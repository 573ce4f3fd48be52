"""What a runtime does that another does not, as named traits: read by rules and formulas alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from trainplan.costmodel.base.units import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import BoolColumn, IntColumn
from trainplan.costmodel.runtimes.autograd import FUSED_KERNELS, Autograd
from trainplan.costmodel.runtimes.fetches import WHOLE_LAYERS, Fetches
from trainplan.costmodel.runtimes.footprint import PLAIN, Footprint
from trainplan.costmodel.spec.layout import Schedule
from trainplan.costmodel.spec.model import ModelSpec
from trainplan.costmodel.spec.options import (
    Attention,
    ContextExchange,
    CrossEntropy,
    Dispatcher,
    Graph,
    RuntimeOptions,
)

AttentionKernel = Literal["flash", "flash2", "unfused"]
T = TypeVar("T")
Kernels = Literal["fused", "legacy", "eager"]
Host = Literal["fused", "legacy", "fsdp"]


def no_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """A runtime the search does not choose modules for."""
    return ()


class Offload(NamedTuple):
    """One choice of what waits on the host, with what is recomputed beside it."""

    modules: tuple[str, ...]
    recompute: tuple[str, ...] = ()


def no_offloads(model: ModelSpec) -> tuple[Offload, ...]:
    """A runtime that keeps no activations on the host, or not on the search's advice."""
    return ()


def nothing(model: ModelSpec) -> str | None:
    """A runtime that refuses no model."""
    return None


def splits_groups(pp: IntColumn | int, num_microbatches: IntColumn | int) -> BoolColumn:
    """Do the micro batches not fill groups of pp? Source: that of `whole_groups`' rule."""
    return np.asarray((num_microbatches < pp) | (num_microbatches % pp != 0))


@dataclass(frozen=True, slots=True)
class RuntimeTraits:
    """Behaviour of one training runtime, with the options a run sets or its defaults.

    What every runtime must say comes first; what few runtimes do is off unless they say so.
    """

    name: str
    version: str
    """Release or commit the traits were checked against."""

    attention: AttentionKernel
    """Fused and written for the GPU, FlashAttention-2, or unfused."""
    dropout: bool
    """Masks of attention (unfused) and residual dropout are kept."""
    kernels: Kernels
    """Elementwise kernels: fused, those of 2021 (fused in part), or one for each operation."""
    host: Host
    """Which fitted host time a layer takes."""
    gradient_bytes: int
    """Bytes of one accumulated gradient."""
    gradient_message_bytes: int
    """Bytes of one gradient on the wire."""
    head_bytes_per_logit: float
    """Peak bytes of logits, their fp32 copy and gradient, for each logit of the last stage."""

    cuda_graph: Graph = "none"
    """What is launched from a CUDA graph: nothing, attention and router, or the whole step."""
    selects: Literal["", "torchtitan_selective_op", "maxtext_save_qkv_proj"] = ""
    """What stands for its selective recomputation, which goes by operation; empty: modules do."""
    stops_recomputing_early: bool = False
    """Recomputation of a layer ends with the last tensor that its backward pass reads, so its last
    product does not run again; else the whole layer does."""
    scatters_messages: bool = False
    """Each tensor rank sends its slice to the next stage and the receivers gather it."""
    waits_for_messages: tuple[Schedule, ...] = ()
    """Schedules under which a rank computes nothing while it sends or receives an activation or its
    gradient."""
    adds_weight_gradients: bool = False
    """Every weight gradient of a micro batch is a tensor of its own, whole on the rank, which is
    then added to the accumulated one; else its product adds it, or it is sharded first."""
    products_accumulate: bool = False
    """Products of weight gradients add to the accumulated ones in place; the gradient of the token
    table, which is none, is a tensor of its own that is added."""
    overlaps_gradients: bool = False
    """Gradient reduction runs beside the backward pass."""
    overlaps_parameters: bool = False
    """The gather of updated weights runs beside the forward pass."""
    weight_message_bytes: float | None = None
    """Bytes of one gathered weight in the precision of a job; null: as stored."""
    reduces_whole_gradients: bool = False
    """ZeRO-1 and ZeRO-2 sum whole gradients on all ranks, each of which then takes its shard; else
    gradients are reduce-scattered."""
    gathers_every_pass: bool = False
    """ZeRO-2 frees weights after each backward pass and gathers them in each forward pass; else
    they are gathered once a step."""
    ends_at_root: bool = False
    """FSDP with a unit of its own for each layer alone: embedding and head lie in the root unit,
    which is gathered before all others, kept for the backward pass and reduced after all others."""
    whole_stages: bool = False
    """Under a pipeline, gradients of a virtual stage are reduced in one piece after its last
    backward pass, and its weights gathered in one piece before its first forward pass; only a first
    rank without virtual stages has buckets."""
    gathers_apart: bool = False
    """Where `whole_stages` has no virtual stages to hide gathers behind, weights are gathered after
    the optimizer step, whatever `overlaps_parameters` says, unless a run states otherwise."""
    overlaps_tensor_parallel: bool = False
    """Gathers and scatters of sequence parallelism run beside matrix products, in part."""
    reorders_sequences: bool = False
    """The sequence is the second dimension, behind the batch: sequence parallelism copies what it
    scatters, and what it gathers where a micro batch has several sequences."""
    gathers_shared_heads: bool = False
    """Where tensor ranks outnumber key-value heads, the joint projection of queries, keys and
    values is cut evenly all the same, and its output gathered."""
    overlaps_experts: bool = False
    """The expert all-to-all runs beside compute, in part."""
    context_exchange: ContextExchange = "p2p"
    """Keys and values travel a ring, heads are exchanged for sequence, or keys and values are
    gathered."""
    gathers_query_heads: bool = False
    """Gathered keys and values have as many heads as the queries, and the gradients of both go
    round a ring in fp32 (torch.distributed); else they go as they are."""
    moe_dispatcher: Dispatcher = "alltoall"
    """Inside one scale-up domain."""
    moe_dispatcher_across: Dispatcher = "alltoall"
    """Where expert groups span several."""
    graphs_hybridep: bool = False
    """HybridEP needs no host synchronisation: the whole step is one CUDA graph and the dispatch
    runs beside compute, unless a run states otherwise."""
    whole_under_pipeline: bool = False
    """Under pipeline parallelism FSDP keeps weights gathered and gradients whole between the micro
    batches of a step, which makes it ZeRO-1 but for the gradients: a virtual stage adds up its own
    from its first backward pass to its last, beside those that are sharded by then."""
    caches_dummy_weight_gradients: bool = False
    """Keeps one buffer for each weight shape (Transformer Engine with fused accumulation)."""
    separate_operations: bool = False
    """Biases of experts, clamped units and rotations with scaled cosines are torch operations of
    their own, each a pass over memory (costmodel/blocks/operations.py)."""
    routing_weight_bytes: int = BYTES_BF16
    """Bytes of the weight of a routed row where a plain all-to-all carries it."""
    schedules: tuple[Schedule, ...] = ("1f1b", "interleaved")
    """Schedules it executes."""
    pipelines: bool = True
    """Cuts layers among pipeline ranks at all."""
    whole_groups: bool = False
    """Interleaves groups of exactly pp micro batches."""
    splits_freely: bool = False
    """An option says how many layers each virtual stage holds."""
    recomputes_layers: Literal["any", "some", "every_kth", "all"] = "any"
    """Layers that full recomputation may cover: any by Megatron's methods, or, each by itself, some
    number of them, every k-th one of a rank, or all."""
    recomputes_by_stage: bool = False
    """Stages may recompute different numbers of layers."""
    unsynchronised: tuple[Schedule, ...] = ()
    """Schedules under which a rank starts its next step without waiting for the others: the norm
    of the gradients is checked after the optimizer step, and the step undone if need be."""
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages it executes."""
    switches: tuple[str, ...] = ()
    """Options that a run may set to be faster, NAME=VALUE: what each buys can be asked."""
    offload_fractions: tuple[float, ...] = (0.0,)
    """Optimizer offload fractions the search tries."""
    recompute_subsets: Callable[[ModelSpec], tuple[tuple[str, ...], ...]] = no_subsets
    """Module sets that selective recomputation may drop in this model."""
    offload_modules: tuple[str, ...] = ()
    """Modules whose activations it can keep on the host."""
    offloads: Callable[[ModelSpec], tuple[Offload, ...]] = no_offloads
    """What the search tries to keep there in this model."""
    rules: tuple[Rule, ...] = ()
    refuses: Callable[[ModelSpec], str | None] = nothing
    """What of a model no option of the runtime expresses, as a noun phrase; null: nothing."""
    autograd: Autograd = FUSED_KERNELS
    """What the graph of operations keeps and makes beyond that of fused kernels."""
    fetches: Fetches = WHOLE_LAYERS
    """In what pieces ZeRO-3 gathers weights and reduces their gradients."""
    footprint: Footprint = PLAIN
    """Bytes that this runtime keeps and another does not."""

    def executes(self, schedule: str, pp: int, num_microbatches: int) -> bool:
        """Does it run a pipeline of this shape under the schedule, unless a model forbids it?"""
        grouped = self.whole_groups and schedule == "interleaved"
        refused = grouped and bool(splits_groups(pp, num_microbatches))
        return schedule in self.schedules and (self.pipelines or pp == 1) and not refused

    def with_options(self, options: RuntimeOptions) -> RuntimeTraits:
        """The traits of a run that sets some options."""
        compiled, gradient = options.compile, options.gradient_dtype
        sync_free = self.graphs_hybridep and options.moe_dispatcher == "hybridep"
        graph: Graph = "full_iteration" if sync_free else self.cuda_graph
        stated_eager = options.cuda_graph not in (None, "full_iteration")
        beside = self.overlaps_experts or (sync_free and not stated_eager)
        size = BYTES_BF16 if gradient == "bf16" else BYTES_FP32
        loss = options.cross_entropy
        return replace(
            self,
            attention=attention_with(self.attention, options.attention),
            dropout=_or(options.dropout, self.dropout),
            kernels=self.kernels if compiled is None else "fused" if compiled else "eager",
            cuda_graph=_or(options.cuda_graph, graph),
            overlaps_gradients=_or(options.overlap_grad_reduce, self.overlaps_gradients),
            overlaps_parameters=_or(options.overlap_param_gather, self.overlaps_parameters),
            gathers_apart=self.gathers_apart and options.overlap_param_gather is None,
            overlaps_tensor_parallel=_or(options.overlap_tp_comm, self.overlaps_tensor_parallel),
            context_exchange=_or(options.cp_comm_type, self.context_exchange),
            overlaps_experts=_or(options.overlap_moe_a2a, beside),
            moe_dispatcher=_or(options.moe_dispatcher, self.moe_dispatcher),
            moe_dispatcher_across=_or(options.moe_dispatcher, self.moe_dispatcher_across),
            head_bytes_per_logit=HEAD_BYTES[loss] if loss else self.head_bytes_per_logit,
            gradient_bytes=size if gradient else self.gradient_bytes,
            gradient_message_bytes=size if gradient else self.gradient_message_bytes,
            footprint=_footprint(self.footprint, options),
        )


HEAD_BYTES: dict[CrossEntropy, float] = {"unfused": 6.0, "jit": 12.0, "fused": 4.0}
"""Peak bytes per logit by kernel of the loss, logits in 16 bits.

Source: derived: Megatron-LM `vocab_parallel_cross_entropy.py` works in place on one fp32 copy (4)
beside the logits, then beside their gradient (2); fused, logits and gradient (2 + 2). The kernel
that `jit` compiles keeps two fp32 copies: 10.0 and 14.1 in four continuous-integration runs.
"""
EAGER_HEAD_BYTES = 12.0
"""As above for `torch.nn.functional.cross_entropy` on fp32 logits, without a compiler.

Source: derived: the log-softmax it keeps, its gradient, and that of the logits, 4 bytes each.
"""


def _footprint(default: Footprint, options: RuntimeOptions) -> Footprint:
    moment = {None: default.moment_bytes, "bf16": BYTES_BF16, "fp32": BYTES_FP32}
    return replace(
        default,
        moment_bytes=moment[options.moment_dtype],
        offloaded_layers=_or(options.offload_activation_layers, default.offloaded_layers),
    )


def _or(stated: T | None, default: T) -> T:
    return default if stated is None else stated


def attention_with(default: AttentionKernel, stated: Attention | None) -> AttentionKernel:
    """The attention core of a run that states one, or none."""
    if stated == "unfused":
        return "unfused"
    return "flash" if stated == "flash" and default == "unfused" else default
