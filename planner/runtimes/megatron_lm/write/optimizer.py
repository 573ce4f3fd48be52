"""Options for where optimizer state, gradients, weights and activations live."""

from collections.abc import Iterator

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import Argument, option
from trainplan.planner.runtimes.megatron_lm import keys

FSDP_STRATEGY = {2: "optim_grads", 3: "optim_grads_params"}
"""Sharding strategy of Megatron-FSDP for each ZeRO stage beyond the distributed optimizer's."""


def optimizer_arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    """Sharding over data parallelism, offload and overlap of its communication."""
    if layout.zero_stage >= 1:
        yield keys.DISTRIBUTED()
    if layout.zero_stage in FSDP_STRATEGY:
        yield from _fsdp_arguments(job, layout)
    yield from _replica_arguments(layout)
    if traits.sharding.overlaps_gradients:
        yield keys.GRADIENT_OVERLAP()
        if size := traits.bucket_elements(job):
            yield keys.BUCKET(size)
    apart = traits.sharding.gathers_separately and _gathers_in_turn(layout)
    if layout.zero_stage >= 1 and traits.sharding.overlaps_parameters and not apart:
        yield keys.GATHER_OVERLAP()
    yield from _offload_arguments(layout)
    yield from activation_offload_arguments(layout)


def _gathers_in_turn(layout: Layout) -> bool:
    """Would each pipeline rank gather, if beside passes, once the first micro batch has come?

    All at once, after the optimizer step, is faster.
    Source: `traffic.data_parallel.gather_overlap`.
    """
    return layout.pp > 1 and layout.vpp == 1


def _fsdp_arguments(job: Job, layout: Layout) -> Iterator[Argument]:
    if layout.pp > 1:
        raise UnsupportedError(
            f"Megatron-FSDP (zero_stage = {layout.zero_stage}) lays its groups over all ranks and "
            f"runs without a pipeline only, and pp = {layout.pp}; use pp = 1 or zero_stage = 1"
        )
    yield keys.FSDP()
    yield keys.FSDP_STRATEGY(FSDP_STRATEGY[layout.zero_stage])
    yield keys.ON_META()
    yield keys.CHECKPOINTS("fsdp_dtensor")
    # Else gradients have the type of the weights (arguments.py:3691), and fewer bytes than priced.
    yield keys.FSDP_GRADIENTS(job.options.gradient_dtype or "fp32")


def _replica_arguments(layout: Layout) -> Iterator[Argument]:
    if layout.dp_replicate == 1:
        return
    if layout.zero_stage == 0:
        raise UnsupportedError(
            f"dp_replicate = {layout.dp_replicate} sets over how many copies sharded states are "
            "repeated, and zero_stage = 0 shards nothing; set dp_replicate to 1"
        )
    yield keys.REPLICAS(layout.dp_replicate)
    if layout.replicas_share_optimizer:
        yield keys.OUTER_STRATEGY("optim")


def activation_offload_arguments(layout: Layout) -> Iterator[Argument]:
    """Modules whose activations wait on the host.

    The size lets slices of a few ranks leave, too; with one copy of a module in flight no more
    activations are on the device than the plan has counted.
    Source: Megatron-LM `fine_grained_activation_offload.py`, `_drain_offload_pending` and
    `tensor_need_offloading_checker`.
    """
    if not layout.offload_modules:
        return
    yield keys.OFFLOADS()
    yield keys.OFFLOADED_MODULES(*layout.offload_modules)
    yield option("optimizer", "--min-offloaded-tensor-size", SMALLEST_OFFLOADED)
    yield keys.IN_FLIGHT(1)


SMALLEST_OFFLOADED = 65_536
"""Elements of a tensor below which it stays on the device. Source: assumed; copies of 128 KiB
still run at most of the speed of the link."""


def _offload_arguments(layout: Layout) -> Iterator[Argument]:
    if not layout.offload.optimizer:
        return
    if layout.zero_stage != 1:
        raise UnsupportedError(
            "megatron-lm offloads the state of its distributed optimizer, which is zero_stage = 1; "
            f"the layout has zero_stage = {layout.zero_stage}: change it, or do not offload"
        )
    yield keys.PRECISION_AWARE()
    yield keys.CPU_OPTIMIZER()
    yield keys.CPU_FRACTION(layout.offload.optimizer)
    yield keys.CPU_OVERLAP()
