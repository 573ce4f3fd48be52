"""What arguments of transformers' Trainer say of a layout, with its own check of DeepSpeed's JSON.

Needs DEEPSPEED_PATH and ACCELERATE_PATH where a launch uses them.
"""

import os
import types

import stand_ins

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", DISABLE_VERSION_CHECK="1")
stand_ins.checkout("DEEPSPEED_PATH", "deepspeed")
stand_ins.checkout("ACCELERATE_PATH", "accelerate", "src")
stand_ins.quiet()

import deepspeed
import torch
import transformers.integrations.deepspeed
import transformers.training_args
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from deepspeed.runtime import config as configs
from transformers.utils import import_utils

MODEL = types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=4096))


def gpus():
    """GPUs, their formats and their processes are there; none is started."""
    for module in (import_utils, transformers.training_args):
        module.is_torch_bf16_gpu_available = lambda: True
        module.is_torch_tf32_available = lambda: True
    transformers.training_args.TrainingArguments._setup_devices = property(_devices)


def _devices(arguments):
    arguments._n_gpu = 1
    arguments.distributed_state = types.SimpleNamespace(
        num_processes=int(os.environ["WORLD_SIZE"]),
        process_index=0,
        local_process_index=0,
        is_main_process=True,
        is_local_main_process=True,
        distributed_type=DistributedType.MULTI_GPU,
    )
    return torch.device("cpu")


def understood(launch, arguments):
    """Batch, degrees and ZeRO stage; a section of DeepSpeed is held against the arguments."""
    ranks = launch["ranks"]
    micro, steps = arguments.per_device_train_batch_size, arguments.gradient_accumulation_steps
    found = {"micro_batch_size": micro, "micro_batches": steps}
    section = getattr(arguments, "hf_deepspeed_config", None)
    return found | (_sections(section, ranks, arguments) if section else _mesh(ranks))


def _sections(section, ranks, arguments):
    """Filled in and checked by the Trainer, then taken by the engine."""
    section.trainer_config_finalize(arguments, MODEL, arguments.max_steps)
    config = section.config
    tp = config.get("tensor_parallel", {}).get("autotp_size", 1)
    deepspeed.init_distributed = lambda *_, **__: None
    configs.dist = types.SimpleNamespace(
        get_rank=lambda *_: 0, get_world_size=lambda *_: ranks, is_initialized=lambda: True
    )
    engine = configs.DeepSpeedConfig(config)
    optimizer, weights = engine.zero_config.offload_optimizer, engine.zero_config.offload_param
    return {
        "tp": tp,
        "dp": ranks // tp,
        "zero_stage": int(engine.zero_config.stage),
        "offload": optimizer.ratio if optimizer else 0.0,
        "parameters": getattr(weights.device, "value", weights.device) if weights else "none",
    }


def _mesh(ranks):
    """Degrees that variables of Accelerate say."""
    if os.environ.get("ACCELERATE_USE_FSDP") != "true":
        return {"tp": 1, "cp": 1, "dp": ranks, "zero_stage": 0}
    plugin = FullyShardedDataParallelPlugin()
    if plugin.fsdp_version == 1:
        return {"dp": ranks}
    degrees = ParallelismConfig()
    degrees._validate_accelerator(
        types.SimpleNamespace(
            multi_device=True,
            num_processes=ranks,
            is_fsdp2=True,
            is_main_process=True,
            distributed_type=DistributedType.FSDP,
        )
    )
    return {
        "tp": degrees.tp_size,
        "cp": degrees.cp_size,
        "dp": degrees.dp_replicate_size * degrees.dp_shard_size,
        "dp_replicate": degrees.dp_replicate_size,
        "zero_stage": 3 if plugin.reshard_after_forward else 2,
    }
