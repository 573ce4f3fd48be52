"""Files of axolotl by its own schema, then the variables that it sets, read by Accelerate.

Needs AXOLOTL_PATH, DEEPSPEED_PATH and ACCELERATE_PATH. Not run: the model, data, the engine, the
arguments of the Trainer that it makes of the file. Stand-ins: the GPU; packages that it imports.
"""

from pathlib import Path

import stand_ins
import under_trainers
import yaml
from judge import judge

stand_ins.checkout("AXOLOTL_PATH", "axolotl", "src")
stand_ins.packages("numba")
under_trainers.gpus()

from axolotl.integrations.base import PluginManager
from axolotl.utils import trainer
from axolotl.utils.config import validate_config
from axolotl.utils.dict import DictDefault
from transformers import TrainingArguments

GPU = {"bf16": True, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90", "fp8": True}
SAME = (
    "gradient_accumulation_steps", "learning_rate", "weight_decay", "max_steps", "max_grad_norm",
    "bf16", "fp16",
)  # fmt: skip
"""Keys that the arguments of the Trainer have as well."""


def accept(launch):
    written = yaml.safe_load(Path(launch["words"][2]).read_text("utf-8"))
    for plugin in written.get("plugins", ()):  # which bring keys
        PluginManager.get_instance().register(plugin)
    config = validate_config(DictDefault(written), GPU, {"torch_version": "2.14.0"})
    if unknown := {*written} - {*config}:
        raise ValueError(f"no keys of the schema: {unknown}")
    if config.fsdp_config:
        trainer.setup_fsdp_envs(config)
    trainer.setup_parallelism_envs(config)
    betas = {name: config[name] for name in ("adam_beta1", "adam_beta2") if config[name]}
    arguments = TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=config.micro_batch_size,
        deepspeed=config.deepspeed.to_dict() if config.deepspeed else None,
        **{name: config[name] for name in SAME},
        **betas,
    )
    return under_trainers.understood(launch, arguments) | {
        "recompute": "full" if config.gradient_checkpointing else "none",
        "seq_length": config.sequence_len,
        "rank": config.lora_r if config.adapter else 0,
        "bits": 4 if config.load_in_4bit else 16,
    }


if __name__ == "__main__":
    judge(accept)
