"""Megatron Core with Transformer Engine: the base of Megatron-LM, Megatron-Bridge and NeMo.

Files and lines are those of NVIDIA/Megatron-LM at the commit in `VERSION`: A is
megatron/training/arguments.py, TC megatron/core/transformer/transformer_config.py, S
megatron/core/pipeline_parallel/schedules.py, PS megatron/core/parallel_state.py, FSDP
megatron/core/distributed/fsdp/mcore_fsdp_adapter.py; TE is Transformer Engine.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.copy_streams import OffloadPolicy, Place, megatron_offload_policy
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import OFFLOAD_MODULES, RECOMPUTE_MODULES, SCHEDULE_NAMES
from trainplan.costmodel.layouts import UNIFORM, LayoutTable, num_microbatches, rule
from trainplan.costmodel.runtimes.base import MEGATRON_CORE as MEGATRON
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.executes import model_modules
from trainplan.costmodel.runtimes.megatron.context_rules import CONTEXT_RULES
from trainplan.costmodel.runtimes.megatron.dispatchers import DISPATCHER_RULES
from trainplan.costmodel.runtimes.megatron.features import LAYERS, unsupported_feature
from trainplan.costmodel.runtimes.megatron.offload import OFFLOAD_RULES, offloads
from trainplan.costmodel.runtimes.megatron.options import OPTION_RULES
from trainplan.costmodel.runtimes.megatron.settings import CORE_SETTINGS, CORE_STATED
from trainplan.costmodel.runtimes.megatron.state_rules import STATE_RULES
from trainplan.costmodel.runtimes.traits import (
    Communication,
    Experts,
    Gradients,
    Host,
    Kernels,
    Offloading,
    Pipeline,
    Recipe,
    Recompute,
    Sharding,
    splits_groups,
)
from trainplan.costmodel.runtimes.traits.footprint import Autograd, Footprint
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES


def plain(traits: RuntimeTraits) -> RuntimeTraits:
    """A runtime of Megatron Core as it is without them.

    Source: Megatron Core 0.16.1 `models/backends.py`, LocalSpecProvider; `transformer/mlp.py`, glu;
    `dot_product_attention.py`, repeat_interleave; PyTorch v2.13.0 `derivatives.yaml`: an RMSNorm
    keeps its input and what it scaled.
    """
    return replace(
        traits,
        kernels=replace(traits.kernels, attention="unfused", elementwise="eager"),
        footprint=replace(traits.footprint, repeats_key_values=True),
        autograd=Autograd(
            norm_fp32_copies=2,
            norm_statistics=True,
            activation_output=True,
            offset_branch=True,
            weighted_separately=True,
            rotated_copies=True,
        ),
    )


INTERLEAVED = SCHEDULE_NAMES.index("interleaved")
VERSION = "d98e8a64 (2026-08-22)"


def recompute_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """Every useful subset of the modules this model has.

    `moe` holds `moe_act` and `shared_experts`, so it is never joined with them; `layernorm` does
    nothing where the norm is fused into the product behind it (gpt_layer_specs.py), that is in
    dense layers without MLA. Source: TC, allowed values of `recompute_modules`.
    """
    present = model_modules(model)
    modules = [m for m in RECOMPUTE_MODULES if m in present]
    subsets = (s for n in range(1, len(modules) + 1) for s in combinations(modules, n))
    return tuple(s for s in subsets if "moe" not in s or not {"moe_act", "shared_experts"} & set(s))


@rule(
    "zero_stage pp",
    "zero_stage 2 and 3 run on Megatron-FSDP, whose device mesh has no pipeline: use pp=1",
    "FSDP:826, mesh (dp_cp ep tp)",
)
def fsdp_needs_one_pipeline_rank(job: Job, table: LayoutTable) -> BoolColumn:
    """Megatron-FSDP and pipeline parallelism exclude each other."""
    return np.asarray((table.zero_stage >= 2) & (table.pp > 1))


@rule(
    "etp",
    "experts with biases need etp=1",
    "Megatron-LM transformer_config.py, 'Bias in Moe is only supported when ETP==1'",
)
def expert_bias_needs_whole_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """Biases of experts are not cut."""
    biased = job.model.moe is not None and job.model.moe.expert_bias
    return np.asarray((table.etp > 1) & biased)


@rule(
    "tp",
    "tp must divide (num_attention_heads + 2 num_key_value_heads) * head_dim",
    "Megatron-LM core/transformer/attention.py:1689",
)
def tp_divides_qkv(job: Job, table: LayoutTable) -> BoolColumn:
    """The joint projection of queries, keys and values is cut evenly."""
    model = job.model
    width = (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
    return np.asarray((width % table.tp != 0) & (model.mla is None))


@rule(
    "recompute_num_layers recompute_method",
    "multi-token prediction needs recompute_num_layers=1 with the uniform method",
    "Megatron-LM core/transformer/multi_token_prediction.py:1621",
)
def mtp_recomputes_single_layers(job: Job, table: LayoutTable) -> BoolColumn:
    """An MTP module is one layer."""
    uniform = (table.recompute_method == UNIFORM) & (table.recompute_num_layers > 1)
    return np.asarray(uniform & (job.model.num_nextn_predict_layers > 0))


@rule(
    "tp sequence_parallel",
    "a mixture of experts with tp > 1 needs sequence_parallel",
    "Megatron-LM core/transformer/moe/moe_layer.py:636",
)
def experts_need_sequence_parallel(job: Job, table: LayoutTable) -> BoolColumn:
    """Tokens are cut over tp before they are dispatched."""
    return np.asarray((job.model.moe is not None) & (table.tp > 1) & (table.sequence_parallel == 0))


@rule(
    "tp cp micro_batch_size sequence_parallel",
    "fp8 products need multiples of 16 (mxfp8 and nvfp4: 32): fewer tensor or context ranks",
    "Transformer Engine user guide, FP8 GEMM dimensions",
)
def low_precision_alignment(job: Job, table: LayoutTable) -> BoolColumn:
    """Tokens of a rank and the cut hidden size must fill whole blocks."""
    block = {"fp8": 16, "mxfp8": 32, "nvfp4": 32}.get(job.training.precision, 1)
    shards = table.cp * np.where(table.sequence_parallel == 1, table.tp, 1)
    tokens = job.training.seq_length * table.micro_batch_size // shards
    return np.asarray((tokens % block != 0) | (job.model.hidden_size // table.tp % block != 0))


@rule(
    "schedule dp micro_batch_size pp",
    "the interleaved schedule needs micro batches >= pp in multiples of pp: "
    "lower micro_batch_size or dp, or use vpp=1",
    "Megatron-LM schedules.py:1161-1180, microbatch group size of a virtual stage",
)
def interleaved_needs_whole_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Interleaving walks groups of pp micro batches, unless others are stated."""
    partial = splits_groups(table.pp, num_microbatches(job, table))
    unstated = job.options.microbatch_group_size is None
    return np.asarray((table.schedule == INTERLEAVED) & partial & unstated)


@rule(
    "zero_stage offload_optimizer",
    "optimizer offload needs the distributed optimizer: use zero_stage=1",
    "Megatron-LM arguments.py:1884 and core/optimizer/__init__.py:1057 (precision-aware optimizer)",
)
def offload_needs_distributed_optimizer(job: Job, table: LayoutTable) -> BoolColumn:
    """Only the plain distributed optimizer offloads."""
    return np.asarray((table.offload_optimizer > 0) & (table.zero_stage != 1))


def offload_policy(stage: int, place: Place) -> OffloadPolicy:
    """Without --overlap-cpu-optimizer-d2h-h2d."""
    return megatron_offload_policy(overlap=False)


MEGATRON_CORE = RuntimeTraits(
    fp8_recipes=("tensorwise", "blockwise"),
    name="Megatron Core",
    family=MEGATRON,
    library="megatron-core",
    without_engine=plain,
    version=VERSION,
    kernels=Kernels(
        attention="flash",
        elementwise="fused",
        head_bytes_per_logit=HEAD_BYTES["unfused"],
        tuned_products=True,  # ROCm/TransformerEngine, TE_HIPBLASLT_TUNING_RUN_COUNT
        separate_operations=True,
        pads_vocabulary=True,
    ),
    host=Host(layer="fused"),
    gradients=Gradients(
        accumulated_bytes=4,  # A:1213, accumulate_allreduce_grads_in_fp32 under bf16
        message_bytes=4,
        products_accumulate=True,  # gradient_accumulation_fusion
        caches_dummies=True,
    ),
    sharding=Sharding(
        in_groups=True,  # --num-distributed-optimizer-instances
        # docs/user-guide/features/megatron_fsdp.md:455-463, --outer-dp-sharding-strategy
        over_replicas=True,
        sums_copies_once=True,
        overlaps_gradients=True,  # --overlap-grad-reduce
        bucket_elements=40_000_000,  # training.py:2179, resolve_ddp_bucket_size
        bucket_elements_a_rank=1_000_000,
        overlaps_parameters=True,  # --overlap-param-gather
        # training.py:2512 (no buckets), :4356, pipeline_parallel/schedules.py:1219, 1350 and 1454
        whole_stages=True,
    ),
    # --tp-comm-overlap needs user buffers: only where asked
    communication=Communication(
        gathers_shared_heads=True,  # transformer/attention.py:1851
        heads_in_ring=True,  # extensions/transformer_engine.py:2143, a2a+p2p
    ),
    # --overlap-moe-expert-parallel-comm: only where asked
    # --moe-router-dtype fp32; --moe-dispatch-fwd-dtype and --moe-combine-bwd-dtype
    experts=Experts(routing_weight_bytes=4, narrow=(("mxfp8", "ncclep"),)),
    pipeline=Pipeline(
        whole_groups=True,
        splits_freely=True,  # --pipeline-model-parallel-layout
    ),
    recompute=Recompute(subsets=recompute_subsets),
    offloading=Offloading(
        offload_policy=offload_policy,
        in_series=True,
        pins="tensors",
        saves="shards",
        workers=2,  # training/arguments.py:3319, --num-workers
        # --optimizer-offload-fraction: training/arguments.py:2922, any float; the parameters of a
        # rank go to the host one by one until they hold as much (cpu_offloading/hybrid_optimizer.py
        # :258), so no less does; a thousandth is what a plan prints and files hold
        optimizer_step=0.001,
        modules=OFFLOAD_MODULES,  # --fine-grained-activation-offloading
        choices=offloads,
    ),
    footprint=Footprint(
        weighted_experts=True,
        batch_first_attention=True,
        workspaces=2,  # PyTorch and Transformer Engine
    ),
    layers=LAYERS,
    optimizers=(  # training/arguments.py:2913, --optimizer
        ("adamw", "adam"),
        ("sgd", "sgd"),
        ("lion", "lion"),
        ("muon", "muon"),
        ("dist-muon", "muon"),  # :1727, with --use-distributed-optimizer; dist_muon is deprecated
        ("soap", "soap"),
    ),
    # patched by Azure/MS-AMP-Examples gpt3/Megatron-LM.patch, --msamp; its own flags store no
    # gradient in 8 bits
    state_precisions=("o0", "o1", "o2", "o3"),
    settings=CORE_SETTINGS,
    stated=CORE_STATED,
    rules=(
        *STATE_RULES,
        interleaved_needs_whole_groups,
        tp_divides_qkv,
        expert_bias_needs_whole_experts,
        *CONTEXT_RULES,
        fsdp_needs_one_pipeline_rank,
        experts_need_sequence_parallel,
        low_precision_alignment,
        offload_needs_distributed_optimizer,
        mtp_recomputes_single_layers,
        *OFFLOAD_RULES,
        *OPTION_RULES,
        *DISPATCHER_RULES,
    ),
    refuses=unsupported_feature,
    # PS, expert_tensor_parallel_size defaults to tp; moe_layer.py:636 asks for the other
    recipe=Recipe(cuts_experts=True, sequence_parallel="experts"),
)
