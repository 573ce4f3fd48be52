"""Launches of DeepSpeed by its own configuration: the JSON, its sections, the triad of batches.

Needs DEEPSPEED_PATH. Not run: the engine, which needs the model, its kernels, memory.
"""

import os
import types

import stand_ins
from judge import judge

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0")
stand_ins.checkout("DEEPSPEED_PATH", "deepspeed")
stand_ins.quiet()

from deepspeed.runtime import config as configs
from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config
from deepspeed.runtime.zero.mics_utils import _generate_mics_config


def accept(launch):
    configs.dist = types.SimpleNamespace(
        get_rank=lambda *_: 0,
        get_world_size=lambda *_: launch["ranks"],
        is_initialized=lambda: True,
    )
    words = launch["words"]
    file = words[words.index("--deepspeed_config") + 1]
    config = configs.DeepSpeedConfig(load_ds_config(file))  # as initialize() does
    # AutoTP is set up later: its ranks count as replicas so far
    tp = config.tensor_parallel_config.autotp_size or 1
    optimizer, weights = config.zero_config.offload_optimizer, config.zero_config.offload_param
    return {
        "tp": tp,
        "dp": int(config.world_size) // tp,
        "micro_batch_size": config.train_micro_batch_size_per_gpu,
        "micro_batches": config.gradient_accumulation_steps,
        "zero_stage": int(config.zero_config.stage),
        "dp_replicate": groups(config.mics_shard_size, launch["ranks"]),
        "hpz": config.zero_config.zero_hpz_partition_size,
        "weight_bits": 8 if config.zero_config.zero_quantized_weights else None,
        "gradient_bits": 4 if config.zero_config.zero_quantized_gradients else None,
        "bucket_mb": bucket_mb(config.zero_config),
        "offload": optimizer.ratio if optimizer else 0.0,
        "tier": place(optimizer),
        "parameters": place(weights),
        "checkpoints": float(config.activation_checkpointing_config.cpu_checkpointing),
    }


def bucket_mb(zero):
    """MiB of gradients of 16 bits that are reduced together, where it is not its own 500 M."""
    if zero.reduce_bucket_size == zero.allgather_bucket_size == 500_000_000:
        return None
    return min(zero.reduce_bucket_size, zero.allgather_bucket_size) * 2 / 2**20


def groups(size, ranks):
    """Copies of all states, by MiCS, which is off below 1."""
    return len(_generate_mics_config(ranks, 8, size)["shard_groups"]) if size > 0 else 1


def place(section):
    """Where a section keeps what it moves; drives have a folder."""
    device = "none" if section is None else getattr(section.device, "value", section.device)
    if device == "nvme" and str(section.nvme_path) != "nvme_folder":
        raise ValueError(f"nvme_path is {section.nvme_path}")
    return device


if __name__ == "__main__":
    judge(accept)
