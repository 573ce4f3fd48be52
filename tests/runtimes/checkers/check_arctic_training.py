"""Launches of ArcticTraining by its own classes of configuration, and DeepSpeed's over them.

Needs ARCTIC_TRAINING_PATH and DEEPSPEED_PATH. Not run: the trainer, which loads model and data.
Stand-ins: what is logged, adapters, kernels of attention, processes.
"""

import json
import os
import types
from pathlib import Path

import stand_ins
from judge import judge

os.environ.update(DS_ACCELERATOR="cpu", DS_BUILD_OPS="0", WANDB_MODE="disabled")
stand_ins.checkout("DEEPSPEED_PATH", "deepspeed")
stand_ins.checkout("ARCTIC_TRAINING_PATH", "arctic_training")
stand_ins.quiet()
stand_ins.packages("datasets", "devtools", "flash_attn", "jsonlines", "peft", "tabulate", "wandb")

import deepspeed
from arctic_training.config.trainer import get_config
from deepspeed.runtime import config as configs
from deepspeed.runtime.sequence_parallel import parallel_state_sp

SHAPE = {"model_type": "llama", "max_position_embeddings": 4096, "hidden_size": 64}
"""Of a model that stands for the user's: the configuration asks for little of it."""


def accept(launch):
    ranks = launch["ranks"]
    deepspeed.init_distributed = lambda *_, **__: None
    configs.dist = parallel_state_sp.dist = types.SimpleNamespace(
        get_rank=lambda *_: 0,
        get_world_size=lambda *_: ranks,
        is_initialized=lambda: True,
        new_group=list,
    )
    os.chdir(launch["folder"])
    Path("model").mkdir(exist_ok=True)
    Path("model", "config.json").write_text(json.dumps(SHAPE), "utf-8")
    words = launch["words"]
    config = get_config(Path(words[words.index("--config") + 1]))
    if config.sequence_parallel_size > 1:  # as the trainer does
        parallel_state_sp.initialize_sequence_parallel(config.sequence_parallel_size)
    engine = configs.DeepSpeedConfig(config.deepspeed)
    optimizer, weights = engine.zero_config.offload_optimizer, engine.zero_config.offload_param
    (source,) = config.data.sources
    if (config.model.name_or_path, source.kwargs["data_files"]) != ("model", "data_files"):
        raise ValueError("the model or the data is not what the user says")
    if (config.optimizer.type == "cpu_adam") != (optimizer is not None):
        raise ValueError(f"the optimizer is {config.optimizer.type}")
    return {
        "cp": config.sequence_parallel_size,
        "dp": ranks // config.sequence_parallel_size,
        "micro_batch_size": config.micro_batch_size,
        "micro_batches": config.gradient_accumulation_steps,
        "zero_stage": int(engine.zero_config.stage),
        "recompute": "none" if config.model.disable_activation_checkpoint else "full",
        "offload": optimizer.ratio if optimizer else 0.0,
        "parameters": getattr(weights.device, "value", weights.device) if weights else "none",
        "checkpoints": float(config.activation_checkpoint_cpu_offload),
        "tiled_mlp": config.tiled_mlp_compute,
    }


if __name__ == "__main__":
    judge(accept)
