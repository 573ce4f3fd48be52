"""deepspeed: ZeRO on Hugging Face models by the engine's JSON, 16-bit gradients, reduced beside.

Files are those of deepspeedai/DeepSpeed at edaa7221, below `deepspeed`. Buckets and calls are those
of Megatron-DeepSpeed's traits, which the same engine shards.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.copy_streams import OffloadPolicy, Place, deepspeed_offload_policy
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import FULL, LayoutTable, rule
from trainplan.costmodel.runtimes.adapters import quantised_weights_are_whole
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.fsdp import ALONE
from trainplan.costmodel.runtimes.hugging_face import ADAPTING, AUTOGRAD, KERNELS, RECOMPUTE, RULES
from trainplan.costmodel.runtimes.megatron_deepspeed import (
    FETCHES,
    REDUCE_BUCKET_ELEMENTS,
    sequence_ranks_alone,
    sequence_ranks_divide_heads,
)
from trainplan.costmodel.runtimes.traits import (
    Communication,
    Gradients,
    Host,
    Offloading,
    Sharding,
    Stated,
    Tiling,
)
from trainplan.costmodel.runtimes.traits.footprint import Footprint
from trainplan.costmodel.runtimes.traits.layers import OF_TRANSFORMERS


@rule(
    "zero_stage offload_optimizer",
    "offload_optimizer needs zero_stage 1 or more, and a ratio below 1 zero_stage 3: change one",
    "deepspeedai/DeepSpeed runtime/zero/config.py, offload_ratio_check",
    values=(1.0,),  # all of it, below stage 3
)
def engine_offloads_shards(job: Job, table: LayoutTable) -> BoolColumn:
    """Below stage 3 the whole optimizer waits on the host, or none of it."""
    share = table.offload_optimizer
    partial = (share > 0) & (share < 1) & (table.zero_stage < 3)
    return np.asarray(partial | ((share > 0) & (table.zero_stage == 0)))


@rule(
    "zero_stage",
    "states in bf16 need zero_stage 1 or more: raise it, or use state_precision o0",
    "deepspeedai/DeepSpeed runtime/config.py, _do_error_check: bf16_master_weights_and_grads",
)
def engine_shards_narrow_states(job: Job, table: LayoutTable) -> BoolColumn:
    """Optimizers that shard alone keep masters and moments in bf16."""
    return np.asarray((table.zero_stage == 0) & (job.training.state_precision == "bf16"))


@rule(
    "zero_stage offload_parameters offload_tier offload_optimizer",
    "offload.parameters, and states on drives, need zero_stage 3, and these the whole optimizer: "
    "change one",
    "deepspeedai/DeepSpeed runtime/zero/config.py, offload_param; runtime/zero/stage3.py, "
    "_configure_offloading (stage_1_and_2.py knows no drive)",
    values=(1.0,),
)
def engine_moves_shards(job: Job, table: LayoutTable) -> BoolColumn:
    """Weights are fetched one by one, and swapped, where they are sharded alone."""
    moves = (table.offload_parameters > 0) | (table.offload_tier > 0)
    partial = (table.offload_tier > 0) & (table.offload_optimizer < 1)
    return np.asarray((moves & (table.zero_stage != 3)) | partial)


@rule(
    "offload_checkpoints recompute",
    "offload.checkpoints keeps inputs of recomputed layers on the host: use recompute=full",
    "deepspeedai/DeepSpeed runtime/activation_checkpointing/checkpointing.py, cpu_checkpointing",
)
def checkpoints_are_recomputed(job: Job, table: LayoutTable) -> BoolColumn:
    """A checkpoint is the input of a layer that runs again."""
    return np.asarray((table.offload_checkpoints > 0) & (table.recompute != FULL))


@rule(
    "offload_optimizer",
    "the engine updates offloaded states with Adam or Lion alone: use one, or do not offload",
    "deepspeedai/DeepSpeed runtime/engine.py, zero_force_ds_cpu_optimizer",
    values=(1.0,),
)
def engine_updates_on_processors(job: Job, table: LayoutTable) -> BoolColumn:
    """Others have no update of its own for processors."""
    slow = job.training.optimizer.name not in ("adamw", "lion")
    return np.asarray((table.offload_optimizer > 0) & slow)


ZERO_PLUS_PLUS = (
    "deepspeedai/DeepSpeed runtime/zero/partition_parameters.py, _partition_param_sec; utils/"
    "groups.py, _create_zero_param_parallel_group; runtime/comm/coalesced_collectives.py"
)


@rule(
    "hpz tp zero_stage",
    "weight_bits and gradient_bits need zero_stage 3, and they and hpz tp 1: change one",
    ZERO_PLUS_PLUS,
)
def engine_groups_all_ranks(job: Job, table: LayoutTable) -> BoolColumn:
    """Groups are of neighbours among all ranks, whatever tensor ranks there are."""
    quantised = bool(job.options.weight_bits or job.options.gradient_bits)
    groups = (table.hpz > 1) | quantised
    return np.asarray((groups & (table.tp > 1)) | (quantised & (table.zero_stage != 3)))


@rule(
    "hpz offload_parameters",
    "hpz, weight_bits and gradient_bits are priced with all weights trained and on the GPU: leave "
    "them out with --train, a tower or offload.parameters",
    ZERO_PLUS_PLUS,
    values=(1.0,),
)
def engine_copies_weights_on_device(job: Job, table: LayoutTable) -> BoolColumn:
    """A second copy lies where the first does; frozen weights keep theirs over steps."""
    options, model = job.options, job.model
    any_of = (table.hpz > 1) | bool(options.weight_bits or options.gradient_bits)
    other = model.trained is not None or model.tower is not None
    return np.asarray(any_of & (other | (table.offload_parameters > 0)))


@rule(
    "zero_stage",
    "gradient_bits reads the bits of gradients as fp16, other numbers in bf16, and weight_bits is "
    "of weights in 16 bits: use --precision fp16, or leave them out",
    "deepspeedai/DeepSpeed csrc/quantization/pt_binding.cpp, ds_swizzle_quant: a cast to __half, "
    "which CUDAQuantizer.quantize alone converts to before",
)
def engine_quantises_halves(job: Job, table: LayoutTable) -> BoolColumn:
    """Gradients in bf16 would be taken for other numbers."""
    options, precision = job.options, job.training.precision
    gradients = options.gradient_bits and (precision != "fp16" or options.gradient_dtype)
    weights = options.weight_bits and precision not in ("fp16", "bf16")
    return np.full(len(table), bool(gradients or weights))


@rule(
    "zero_stage",
    "muon updates whole gradients, which gradient_bits scatters: leave it out, or use adamw",
    "deepspeedai/DeepSpeed runtime/zero/stage3.py, __init__: use_muon and all2all_process_group",
)
def engine_scatters_no_muon(job: Job, table: LayoutTable) -> BoolColumn:
    """The engine stops."""
    both = job.options.gradient_bits and job.training.optimizer.name == "muon"
    return np.full(len(table), bool(both))


@rule(
    "dp_replicate zero_stage tp hpz",
    "shards over groups of replicas (MiCS) need zero_stage=3, tp=1, hpz=1 and neither weight_bits "
    "nor gradient_bits: change these, or leave dp_replicate at 1",
    "deepspeedai/DeepSpeed runtime/engine.py, _return_mics_optimizer; runtime/zero/mics_utils.py, "
    "create_mics_comm_groups, whose groups are neighbours among all ranks",
)
def engine_groups_shards_of_weights(job: Job, table: LayoutTable) -> BoolColumn:
    """MiCS is an optimizer of its own, of stage 3 alone, that knows nothing of ZeRO++."""
    bits = bool(job.options.weight_bits or job.options.gradient_bits)
    other = (table.zero_stage != 3) | (table.tp > 1) | (table.hpz > 1) | bits
    return np.asarray((table.dp_replicate > 1) & other)


@rule(
    "dp_replicate offload_optimizer offload_parameters",
    "shards over groups of replicas (MiCS) are updated on the GPU: do not offload, or leave "
    "dp_replicate at 1",
    "deepspeedai/DeepSpeed runtime/zero/mics.py, allreduce_mics_shard_grads",
)
def engine_keeps_groups_on_device(job: Job, table: LayoutTable) -> BoolColumn:
    """Gradients of the copies are summed on the device."""
    moves = (table.offload_optimizer > 0) | (table.offload_parameters > 0)
    return np.asarray((table.dp_replicate > 1) & moves)


OF_GROUPS = (engine_groups_shards_of_weights, engine_keeps_groups_on_device)
"""Rules of MiCS."""


def offload_policy(stage: int, place: Place) -> OffloadPolicy:
    """As the exporter states it: overlap_comm, and reads and writes of drives beside updates."""
    return deepspeed_offload_policy(stage, overlap_comm=True, pipelined=place is Place.DRIVE)


DEEPSPEED = RuntimeTraits(
    name="deepspeed",
    version="0.19.6",
    kernels=KERNELS,
    layers=OF_TRANSFORMERS,
    host=Host(layer="legacy"),
    gradients=Gradients(
        accumulated_bytes=2,
        message_bytes=2,
        added_separately=True,
        copied_for_step=True,  # runtime/zero/stage_1_and_2.py, step, as in v0.6.2
    ),
    sharding=Sharding(
        zero_stages=(1, 2, 3),  # 0 would be DDP, which reduces after the backward pass
        overlaps_gradients=True,  # overlap_comm, which the exporter always states
        bucket_elements=REDUCE_BUCKET_ELEMENTS,
        # runtime/zero/stage_1_and_2.py: use_multi_rank_bucket_allreduce
        reduces_whole_gradients=True,
        in_groups=True,  # runtime/zero/mics.py: mics_shard_size
        sums_copies_once=True,  # allreduce_mics_shard_grads, at the boundary of accumulation
        zero_plus_plus=True,  # runtime/zero/config.py: zero_hpz_partition_size, zero_quantized_*
        # q, k, v, o, gate, up and down; runtime/zero/config.py has the defaults of the rest
        fetches=replace(FETCHES, weights=7),
    ),
    communication=Communication(context_exchange="a2a"),  # runtime/sequence_parallel/ulysses_sp.py
    pipeline=ALONE,
    recompute=RECOMPUTE,
    # runtime/engine.py, _configure_basic_optimizer; names it lacks are those of torch.optim
    optimizers=(("adamw", "AdamW"), ("lion", "Lion"), ("sgd", "SGD"), ("muon", "Muon")),
    # runtime/config.py: bf16_master_weights_and_grads and bf16_optimizer_states
    state_precisions=("o0", "bf16"),
    offloading=Offloading(  # runtime/zero/offload_config.py
        optimizer_step=0.001,  # ratio
        gradients=True,  # runtime/zero/stage_1_and_2.py and stage3.py, cpu_offload
        pins="flat",
        saves="whole",
        tiers=("cpu", "nvme"),
        parameters=(None, "cpu", "nvme"),
        # runtime/activation_checkpointing/checkpointing.py, cpu_checkpointing; ArcticTraining
        # `arctic_training/monkey_patches.py` for models of transformers
        checkpoints=(0.0, 1.0),
        offload_policy=offload_policy,
    ),
    # runtime/sequence_parallel/ulysses_sp.py, TiledMLP and TiledFusedLogitsLoss
    tiling=Tiling(mlp=True, loss=True),
    has_liger=True,  # a model of AutoLigerKernelForCausalLM, as any of transformers
    autograd=AUTOGRAD,
    # runtime/zero/stage3.py, _create_fp32_partitions: clones whatever the type
    footprint=Footprint(reduce_bucket_elements=REDUCE_BUCKET_ELEMENTS, updates_copies=True),
    rules=(
        *RULES,
        engine_offloads_shards,
        engine_moves_shards,
        engine_shards_narrow_states,
        checkpoints_are_recomputed,
        engine_updates_on_processors,
        engine_groups_all_ranks,
        engine_copies_weights_on_device,
        engine_quantises_halves,
        engine_scatters_no_muon,
        sequence_ranks_alone,
        sequence_ranks_divide_heads,
        *OF_GROUPS,
        quantised_weights_are_whole,
    ),
    adapting=ADAPTING,
    # overlap_comm and tp_overlap_comm; the latter overlaps sequence parallelism, which it lacks
    stated=(Stated("overlap_grad_reduce", value=False), Stated("overlap_tp_comm", value=True)),
)
