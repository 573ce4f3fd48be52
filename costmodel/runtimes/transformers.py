"""transformers: its Trainer, over FSDP2 of Accelerate, or over a model that is sharded as it loads.

Files are those of huggingface/transformers v5.24.0, below `src/transformers`. Tensor and expert
ranks are `DistributedConfig`'s (`distributed/configuration_utils.py`), whose weights are cut by the
plan of a model's configuration; context ranks, ZeRO-2 and checkpoints of the optimizer are those of
`TrainingArguments.fsdp_config` and `parallelism_config`. Both cast weights to bf16 as they gather
them and reduce gradients in fp32; replicas are those of DistributedDataParallel.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.optimizers import optimizer_of
from trainplan.costmodel.runtimes.accelerate import ACCELERATE, liger_tiles_the_loss
from trainplan.costmodel.runtimes.adapters import adapters_are_whole
from trainplan.costmodel.runtimes.hugging_face import (
    ADAPTING,
    configuration_has_no_pipeline,
    other_mixers_are_whole,
    plan_cuts_whole_heads,
)
from trainplan.costmodel.runtimes.torch_eager import BUCKET_BYTES
from trainplan.costmodel.runtimes.traits import Recipe

WITHOUT_TENSOR_PLAN = frozenset(
    (
        *("bitnet", "bloom", "blt", "ctrl", "dbrx", "falcon", "falcon_mamba", "gpt2", "gpt-sw3"),
        *("gpt_bigcode", "gpt_neo", "gpt_neox_japanese", "jetmoe", "mamba", "mamba2", "mllama"),
        *(
            "modernbert-decoder",
            "moshi",
            "mpt",
            "openai-gpt",
            "opt",
            "persimmon",
            "recurrent_gemma",
        ),
        *("rwkv", "stablelm", "xglm", "xlstm", "zamba", "zamba2", "zaya"),
    )
)
"""Decoders whose configuration has no `base_model_tp_plan`."""
WITH_EXPERT_PLAN = frozenset(
    (
        *("afmoe", "aria_text", "axk1", "axk2", "bailing_hybrid", "beam", "cohere2_moe"),
        *("deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "dots1", "dots3_note"),
        *("dots3_note_text", "ernie4_5_moe", "exaone_moe", "flex_olmo", "flint", "gemma4"),
        *("gemma4_text", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "gpt_oss", "granitemoe"),
        *("granitemoe_swa", "granitemoehybrid", "granitemoeshared", "hunyuan_v1_moe", "hy_v3"),
        *("hy_v4", "inkling2_loop_text", "inkling2_text", "inkling_text", "jamba", "kimi_linear"),
        *("kolibri1", "laguna", "lara_mini", "lfm2_moe", "mellum", "mimo_v2_flash", "minimax"),
        *("minimax_m2", "minimax_m3_vl_text", "mixtral", "nemotron_h", "olmoe", "phimoe"),
        *("qwen2_moe", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_moe", "qwen3_next", "qwen4_exp"),
        *("qwen4_exp_text", "sarvam_mla", "sarvam_moe", "solar_open", "zaya"),
    )
)
"""Families whose configuration has a `base_model_ep_plan`."""
SHARDED = ("adamw", "adamw8bit", "sgd")
"""Optimizers of torch and torchao, which update sharded tensors as any other."""


def loads_sharded(table: LayoutTable) -> BoolColumn:
    """Is a model cut by `DistributedConfig` as it loads?"""
    return np.asarray((table.tp > 1) | (table.ep > 1))


@rule(
    "zero_stage tp cp ep dp dp_replicate",
    "the Trainer shards with FSDP2 over several ranks, ZeRO-3 alone with tensor and "
    "expert ranks, or not: use zero_stage 2 or 3, 3 with tp or ep, or 0 with ep=cp=1",
    "transformers training_args.py, _process_fsdp_args; distributed/fsdp.py, "
    "apply_fully_sharded_data_parallelism (free_full_weight); accelerate parallelism_config.py",
)
def trainer_shards_one_way(job: Job, table: LayoutTable) -> BoolColumn:
    """A layer of a model that was loaded sharded frees its weights after each pass."""
    shards, stage = table.dp // table.dp_replicate * table.cp, table.zero_stage
    loaded, alone = loads_sharded(table), (stage == 0) & (table.cp * table.ep == 1)
    replicas = alone & ((table.tp == 1) | (table.dp == 1))
    sharded = (stage == 3) | ((stage == 2) & ~loaded)
    sharded = sharded & (shards > 1) & ((table.dp_replicate == 1) | (table.dp > table.dp_replicate))
    return np.asarray(~(replicas | sharded))


@rule(
    "cp tp ep",
    "context ranks are of parallelism_config, tensor and expert ranks of DistributedConfig: use "
    "tp=ep=1 with cp",
    "transformers trainer.py, _build_accelerator_args and _prepare_context_parallel_inputs",
)
def context_ranks_are_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """A model that is sharded as it loads has no dimension for them."""
    return np.asarray((table.cp > 1) & loads_sharded(table))


@rule(
    "tp ep etp dp dp_replicate",
    "experts are cut over tp where ep = 1, and else lie whole on ranks that share a copy of the "
    "weights: set etp to tp, or tp and etp to 1 and ep to a divisor of dp / dp_replicate",
    "transformers distributed/configuration_utils.py, _validate_mesh_config and efsdp_size; "
    "tokens that tensor ranks share out and gather (expert_parallel.py, AllToAllEP) have no price",
)
def experts_follow_plans(job: Job, table: LayoutTable) -> BoolColumn:
    """Source: `moe_tp_experts` of base_model_tp_plan, `ep_dispatch_experts` of the other plan."""
    cut = np.where(table.ep == 1, table.tp, 1)
    outside = (table.ep > 1) & ((table.tp > 1) | (table.dp // table.dp_replicate % table.ep != 0))
    return np.asarray(((table.etp != cut) & bool(job.model.moe)) | outside)


@rule(
    "tp ep",
    "transformers has no plan for it in the configuration of this model: use tp=1 and ep=1",
    "transformers models/*/configuration_*.py at v5.24.0: base_model_tp_plan, which leaves latent "
    "attention whole in deepseek_v3, and base_model_ep_plan",
)
def model_has_a_plan(job: Job, table: LayoutTable) -> BoolColumn:
    """from_pretrained refuses a degree without a plan."""
    kind = job.model.model_type
    uncut = kind in WITHOUT_TENSOR_PLAN or job.model.mla is not None
    whole = kind is not None and kind not in WITH_EXPERT_PLAN
    return np.asarray(((table.tp > 1) & uncut) | ((table.ep > 1) & whole))


@rule(
    "zero_stage",
    "weights in fp32 that no FSDP casts run under autocast, whose residuals in fp32 have no price: "
    "use zero_stage 2 or 3, or state_precision bf16",
    "accelerate accelerator.py, prepare_model: autocast; models/llama/modeling_llama.py, "
    "LlamaRMSNorm multiplies by weights in fp32",
)
def replicas_have_one_type(job: Job, table: LayoutTable) -> BoolColumn:
    """Optimizers of low rank keep all in bf16 by themselves; adapters stand beside bf16."""
    training, trained = job.training, job.model.trained
    narrow = training.state_precision == "bf16" or optimizer_of(training.optimizer).bare
    alike = narrow or training.storage_bytes > 2 or trained is not None
    return np.asarray((table.zero_stage == 0) & (not alike))


@rule(
    "zero_stage tp",
    "this optimizer has no update of sharded tensors: use zero_stage=0 and tp=1, or "
    f"--optimizer {', '.join(SHARDED[:-1])} or {SHARDED[-1]}",
    "bitsandbytes optim/lion.py, galore_torch adamw.py and apollo_torch apollo.py take plain "
    "tensors; transformers optimization.py, Adafactor: means of rows and columns, not checked",
)
def optimizer_takes_plain_tensors(job: Job, table: LayoutTable) -> BoolColumn:
    """Source: `SHARDED`."""
    plain = job.training.optimizer.name not in SHARDED
    return np.asarray(((table.zero_stage > 0) | (table.tp > 1)) & plain)


@rule(
    "zero_stage",
    "gradients of low rank are of linear layers, and the experts of transformers are none: use "
    "another optimizer",
    "transformers trainer_optimizer.py, _setup_low_rank_optimizer; integrations/moe.py",
)
def low_rank_is_of_linear_layers(job: Job, table: LayoutTable) -> BoolColumn:
    """Experts would be left to Adam."""
    low = optimizer_of(job.training.optimizer).bare and job.model.moe is not None
    return np.full(len(table), low)


@rule(
    "tp ep",
    "kernels of Liger and compiled models take no weights that DistributedConfig cut: leave liger "
    "and compile out, or use tp=ep=1",
    "not checked: DTensor in linkedin/Liger-Kernel, and torch.compile over its hooks",
)
def kernels_take_whole_weights(job: Job, table: LayoutTable) -> BoolColumn:
    """Either sees a tensor of many ranks."""
    stated = job.options.liger is not None or job.options.compile is True
    return np.asarray(loads_sharded(table) & stated)


@rule(
    "zero_stage",
    "the Trainer is planned in bf16, fp32 and tf32: use one of these precisions",
    "transformers training_args.py has no fp8; fp16 has a scaler, not checked over FSDP2",
)
def trains_in_bf16(job: Job, table: LayoutTable) -> BoolColumn:
    """The types that both ways of sharding cast to."""
    return np.full(len(table), job.training.precision not in ("bf16", "fp32", "tf32"))


def unsupported_feature(model: ModelSpec) -> str | None:
    """A tower is not loaded. Source: models/auto/modeling_auto.py, AutoModelForCausalLM."""
    return model.tower.called if model.tower else None


TRANSFORMERS = replace(
    ACCELERATE,
    name="transformers",
    version="5.24.0",
    kernels=replace(ACCELERATE.kernels, skips_ignored_tokens=False),  # all logits are computed
    # distributed/fsdp.py, _get_fsdp_policy_kwargs (reduce_dtype), and train.py alike;
    # accelerate utils/dataclasses.py: gradient_as_bucket_view is false
    gradients=replace(ACCELERATE.gradients, message_bytes=4, keeps_buckets=True),
    # training_args.py, ddp_bucket_cap_mb; by itself that of torch
    sharding=replace(ACCELERATE.sharding, version=0, bucket_elements=BUCKET_BYTES // 4),
    # modeling_layers.py, every_n_layers of activation_checkpointing_kwargs
    recompute=replace(ACCELERATE.recompute, layers="every_kth"),
    optimizers=(  # training_args.py, OptimizerNames
        ("adamw", "adamw_torch_fused"),
        ("adamw8bit", "adamw_torch_8bit"),
        ("adafactor", "adafactor"),
        ("lion", "lion_32bit"),
        ("sgd", "sgd"),
        ("galore", "galore_adamw"),
        ("galore8bit", "galore_adamw_8bit"),
        ("apollo", "apollo_adamw"),
        ("apollo-mini", "apollo_adamw"),
    ),
    rules=(
        trainer_shards_one_way,
        context_ranks_are_alone,
        experts_follow_plans,
        model_has_a_plan,
        replicas_have_one_type,
        optimizer_takes_plain_tensors,
        low_rank_is_of_linear_layers,
        kernels_take_whole_weights,
        trains_in_bf16,
        other_mixers_are_whole,
        configuration_has_no_pipeline,
        plan_cuts_whole_heads,
        adapters_are_whole,
        liger_tiles_the_loss,
    ),
    adapting=replace(ADAPTING, methods=("lora",), plain_replicas=True),
    trains_on_cpu=True,
    refuses=unsupported_feature,
    recipe=Recipe(),
)
