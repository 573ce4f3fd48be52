"""Megatron-DeepSpeed: the unfused layers of 2021, 16-bit gradients, nothing overlapped.

Messages between stages neither: `runtime/pipe/p2p.py` knows no asynchronous send, so the stream of
both ranks waits until one has gone through, and the receivers gather its slices before they go on
(`runtime/utils.py`, PartitionedTensor.full).

Weight gradients are left to autograd, which adds them: products of 2021 are plain linear layers,
and later ones have the fused accumulation commented out (`megatron/core/tensor_parallel/layers.py`,
backward, at f4157bea). The first of a step is assigned: the engines drop `.grad` after each.

Source: microsoft/Megatron-DeepSpeed `megatron/model/transformer.py` and DeepSpeed
`runtime/pipe/engine.py` (`_exec_reduce_grads` after the last backward pass, gradients in the
precision of the model).
"""

import numpy as np

from trainplan.costmodel.base import GIB
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import BLOCK, LayoutTable, Rule, rule
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.traits import (
    Communication,
    Gradients,
    Host,
    Kernels,
    Pipeline,
    Recipe,
    Setting,
    Sharding,
)
from trainplan.costmodel.runtimes.traits.footprint import Autograd, Footprint
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES
from trainplan.costmodel.runtimes.traits.sharding import Fetches


@rule(
    "zero_stage pp",
    "DeepSpeed refuses ZeRO-2 and ZeRO-3 under pipeline parallelism: use zero_stage <= 1 or pp=1",
    "microsoft/DeepSpeed runtime/pipe/engine.py, PipelineEngine.__init__",
)
def pipeline_engine_shards_no_gradients(job: Job, table: LayoutTable) -> BoolColumn:
    """Gradients are accumulated whole over the micro batches of a step."""
    return np.asarray((table.zero_stage >= 2) & (table.pp > 1))


@rule(
    "pp recompute_method",
    "DeepSpeed's pipeline recomputes all layers in groups: use the method uniform, or pp=1",
    "microsoft/Megatron-DeepSpeed megatron/model/gpt_model.py, GPTModelPipe.__init__",
)
def pipeline_engine_recomputes_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Its activation_checkpoint_interval cuts all layers of a stage."""
    return np.asarray((table.recompute_method == BLOCK) & (table.pp > 1))


@rule(
    "tp pp cp",
    "DeepSpeed's sequence parallelism (cp > 1) goes with data parallelism only: use tp=pp=1",
    "deepspeedai/Megatron-DeepSpeed megatron/core/parallel_state.py, initialize_model_parallel",
)
def sequence_ranks_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """Its groups are laid out beside data parallelism only."""
    return np.asarray((table.cp > 1) & (table.tp * table.pp > 1))


@rule(
    "tp cp",
    "context ranks exchange heads: tp * cp must divide num_attention_heads",
    "microsoft/Megatron-DeepSpeed megatron/model/transformer.py, ParallelAttention: "
    "DistributedAttention",
)
def sequence_ranks_divide_heads(job: Job, table: LayoutTable) -> BoolColumn:
    """Each rank gets whole heads."""
    uneven = job.model.num_attention_heads % (table.tp * table.cp) != 0
    return np.asarray((table.cp > 1) & uneven)


@rule(
    "pp zero_stage",
    "overlap_grad_reduce is overlap_comm of ZeRO, and the pipeline reduces after the last backward "
    "pass: use pp=1 and zero_stage 1 to 3, or leave the option out",
    "microsoft/DeepSpeed runtime/zero/stage_1_and_2.py and stage3.py, overlap_comm; "
    "runtime/pipe/engine.py, _exec_reduce_grads",
)
def buckets_overlap_without_stages(job: Job, table: LayoutTable) -> BoolColumn:
    """Hooks of ZeRO reduce a bucket as soon as it is full."""
    outside = (table.pp > 1) | (table.zero_stage == 0)
    return np.asarray(outside & (job.options.overlap_grad_reduce is True))


def _of_buckets(job: Job) -> tuple[Rule, ...]:
    return (buckets_overlap_without_stages,)


DEVICE_OVERHEAD_BYTES = 4.0 * GIB
"""Context, libraries and the communicators of all process groups.

Source: fitted on the 18 runs of examples/accuracy/runs.jsonl that print whole-device memory, in
steps of 0.25 GiB: mean, median and squared error are least at 4, with copies of gradients for their
reduction counted (`step_copy_bytes`) at 3.75 or 4; of BLOOM's runs nothing went into it.
"""

REDUCE_BUCKET_ELEMENTS = 500_000_000
"""Elements of the buffer gradients are reduced from, in the precision of the model.

Source: deepspeedai/DeepSpeed `runtime/zero/config.py`, defaults of reduce_bucket_size and
contiguous_gradients; `runtime/zero/stage_1_and_2.py`, backward, and `stage3.py`,
ipg_bucket_flat_buffer; `runtime/engine.py` turns it off in stage 1.
"""

FETCHES = Fetches(
    weights=4,  # query_key_value, dense, dense_h_to_4h, dense_4h_to_h; the others are never freed
    gathered_params=5e7,  # stage3_prefetch_bucket_size
    reduced_params=5e8,  # reduce_bucket_size
    reuse_params=1e9,  # stage3_max_reuse_distance
)
"""Weights go one by one, and a large one once more between recomputation and backward pass.

Source: DeepSpeed v0.12.0 `runtime/zero/partitioned_param_coordinator.py`, fetch_sub_module and
__params_to_release (hooks of every module run in recomputation too), and defaults of
`runtime/zero/config.py`; v0.3.15 `runtime/zero/stage3.py` alike.
"""

MEGATRON_DEEPSPEED = RuntimeTraits(
    name="megatron-deepspeed",
    family="Megatron of 2021",
    version="2023",
    kernels=Kernels(
        attention="unfused",
        elementwise="legacy",
        head_bytes_per_logit=HEAD_BYTES["unfused"],
        pads_vocabulary=True,
        dropout=True,  # arguments.py: --attention-dropout and --hidden-dropout 0.1
    ),
    host=Host(layer="legacy"),
    gradients=Gradients(
        accumulated_bytes=2,
        message_bytes=2,
        added_separately=True,
        widened_by_pipeline=True,  # runtime/pipe/engine.py, _bf16_reduce_grads
        # DeepSpeed v0.6.2 (the first with it) to v0.13.2 runtime/bf16_optimizer.py,
        # update_hp_grads: added to fp32 sums behind a backward pass, dropped before the next one
        # (runtime/pipe/engine.py, _exec_backward_pass); from v0.13.3 on that is
        # bf16.immediate_grad_update=false, the default
        kept_with_sums=True,
        copied_for_step=True,
    ),
    sharding=Sharding(
        # runtime/zero/stage_1_and_2.py, use_multi_rank_bucket_allreduce (0.12.4; before, each shard
        # was reduced to its owner), and runtime/pipe/engine.py, _bf16_reduce_grads
        reduces_whole_gradients=True,
        fetches=FETCHES,
    ),
    # --ds-sequence-parallel-size: DeepSpeed's DistributedAttention
    communication=Communication(context_exchange="a2a"),
    pipeline=Pipeline(
        schedules=("1f1b",),  # runtime/pipe/schedule.py, TrainSchedule
        scatters_messages=True,
        waits_for_messages=("1f1b",),
    ),
    # megatron/model/transformer.py, ParallelMLP: relu and swiglu are torch operations
    autograd=Autograd(activation_output=True),
    optimizers=(("adamw", "adam"), ("sgd", "sgd")),  # arguments.py:940, --optimizer
    footprint=Footprint(
        repeats_key_values=True,  # megatron/model/transformer.py, repeat_kv
        reduce_bucket_elements=REDUCE_BUCKET_ELEMENTS,
        outside_bytes=DEVICE_OVERHEAD_BYTES,
    ),
    rules=(
        pipeline_engine_shards_no_gradients,
        pipeline_engine_recomputes_groups,
        sequence_ranks_alone,
        sequence_ranks_divide_heads,
        buckets_overlap_without_stages,
    ),
    settings=(
        Setting(
            "overlap_grad_reduce",
            value=True,
            source="zero_optimization.overlap_comm",
            rules=_of_buckets,
        ),
    ),
    # kept bytes of all 18 such runs: 60 and 130 kB a token and layer, no masks
    recipe=Recipe(fp32_dropout=False),
)
