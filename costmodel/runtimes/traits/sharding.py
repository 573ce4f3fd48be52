"""Gradients and how states are sharded, gathered and reduced among the replicas, in what pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import RuntimeOptions
from trainplan.costmodel.runtimes.traits.settings import stated_or


@dataclass(frozen=True, slots=True)
class Fetches:
    """Calls under ZeRO-3; those of a runtime that gathers and reduces whole layers."""

    weights: int = 1
    """Matrices of a dense layer that are gathered and reduced one by one."""
    gathered_params: float = inf
    """Parameters that wait until one call gathers them, where a matrix has fewer."""
    reduced_params: float = inf
    """As above, of gradients."""
    reuse_params: float = inf
    """Parameters of the modules between two uses of a weight from which on it is freed between
    them."""

    def calls(self, params: FloatColumn, waiting: float, weights: int) -> FloatColumn:
        """Calls for `params` parameters in `weights` matrices, `waiting` of them in one call.

        Source: derived; each call has a whole matrix at least, and the last one what is left.
        """
        return np.minimum(np.maximum(np.ceil(params / waiting), 1), weights)

    def freed(self, params: FloatColumn) -> FloatColumn:
        """Parameters of a layer that are freed between its recomputation and its backward pass.

        Source: derived; the first pass goes from the first weight to the last and the second one
        back, so between both uses of a weight lie twice the parameters behind it.
        """
        return np.maximum(0.0, params - self.reuse_params / 2)


WHOLE_LAYERS = Fetches()


@dataclass(frozen=True, slots=True)
class Gradients:
    """Weight gradients on one rank and on the wire."""

    accumulated_bytes: int
    """Bytes of one accumulated gradient."""
    message_bytes: int
    """Bytes of one gradient on the wire."""
    narrow: bool = False
    """Gradients may take fewer bytes than weights; else never."""
    added_separately: bool = False
    """Every weight gradient of a micro batch is a tensor of its own, whole on the rank, which is
    then added to the accumulated one; else its product adds it, or it is sharded first."""
    products_accumulate: bool = False
    """Products of weight gradients add to the accumulated ones in place; the gradient of the token
    table, which is none, is a tensor of its own that is added."""
    widened_by_pipeline: bool = False
    """Under a pipeline those of a job in bf16 are summed in fp32, whatever they are else."""
    kept_with_sums: bool = False
    """Where sums are wider than weights, the gradients of a micro batch wait whole, as wide as
    weights, for the next backward pass."""
    keeps_buckets: bool = False
    """Replicas that share nothing reduce gradients in buckets, which hold each a second time."""
    copied_for_step: bool = False
    """Around the optimizer step gradients are copied: flat, and in wider types (DeepSpeed)."""
    caches_dummies: bool = False
    """Keeps one buffer for each weight shape (Transformer Engine with fused accumulation)."""

    def with_options(self, options: RuntimeOptions) -> Gradients:
        """Those of a run that may state their type."""
        if options.gradient_dtype is None:
            return self
        size = BYTES_BF16 if options.gradient_dtype == "bf16" else BYTES_FP32
        return replace(self, accumulated_bytes=size, message_bytes=size)


@dataclass(frozen=True, slots=True)
class Sharding:
    """ZeRO and FSDP: what is sharded, when it moves and what hides it."""

    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages it executes."""
    version: Literal[0, 1, 2] = 0
    """Of PyTorch's FSDP, where a run may choose; 0: it may not."""
    in_groups: bool = False
    """HSDP: it shards over groups of the replicas where told to (`dp_replicate`)."""
    over_replicas: bool = False
    """HFSDP: under ZeRO-3 the copies of a shard may share out its optimizer."""
    by_state: bool = False
    """Weights, gradients and optimizer may be sharded over unlike numbers of ranks (`shard`)."""
    sums_copies_once: bool = False
    """HSDP sums gradients of the copies of a shard in the last backward pass of a step; else in
    every one."""
    zero_plus_plus: bool = False
    """ZeRO-3 may keep a second copy of the weights in smaller groups, `hpz`, and send weights and
    gradients in fewer bits."""
    by_matrix: bool = False
    """Neighbours among the replicas may cut every matrix and gather it for each use (`gtp`)."""
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
    gathers_separately: bool = False
    """Where `whole_stages` has no virtual stages to hide gathers behind, weights are gathered after
    the optimizer step, whatever `overlaps_parameters` says, unless a run states otherwise."""
    whole_under_pipeline: bool = False
    """Under pipeline parallelism FSDP keeps weights gathered and gradients whole between the micro
    batches of a step, which makes it ZeRO-1 but for the gradients: a virtual stage adds up its own
    from its first backward pass to its last, beside those that are sharded by then."""
    fetches: Fetches = WHOLE_LAYERS
    """In what pieces ZeRO-3 gathers weights and reduces their gradients."""
    overlaps_on_streams: bool = False
    """What it overlaps runs on streams of the device. A CPU has none: there each collective is
    waited for."""
    waits: bool = False
    """On the device of the job nothing runs beside its collectives, nor beside the copies into
    their buffers and out of them."""
    bucket_bytes: float | None = None
    """Gradients are reduced in buckets of about so many bytes as the backward pass makes them, and
    the last one has the token table; null: in buckets by which `first_bucket` was fitted."""

    bucket_elements: int = 0
    """Gradients of a bucket by itself, where a run may state how many; 0: it may not."""
    bucket_elements_a_rank: int = 0
    """At least so many for each rank that shares them."""
    stated_bucket_bytes: float | None = None
    """As a run states it; null: it states none."""

    def with_options(self, options: RuntimeOptions) -> Sharding:
        """That of a run that may state what is overlapped, and in what pieces.

        Megatron has no buckets where nothing runs beside the backward pass.
        Source: `costmodel.traffic.buckets`.
        """
        reduces, gathers = options.overlap_grad_reduce, options.overlap_param_gather
        overlaps = stated_or(reduces, self.overlaps_gradients)
        stated = self.bucket_elements and (overlaps or not self.whole_stages)
        return replace(
            self,
            stated_bucket_bytes=options.bucket_mb * 2**20 if stated and options.bucket_mb else None,
            overlaps_gradients=overlaps,
            overlaps_parameters=stated_or(gathers, self.overlaps_parameters),
            gathers_separately=self.gathers_separately and gathers is None,
            fetches=replace(self.fetches, reduced_params=1.0)
            if options.gradient_bits  # one tensor at a time
            else self.fetches,
        )

    def on_cpu(self) -> Sharding:
        """That on the cores of a machine without GPUs, whatever a run states."""
        if not self.overlaps_on_streams:
            return self
        return replace(self, waits=True, overlaps_gradients=False, overlaps_parameters=False)
