"""As `test_a_line_less`, of training scripts and trainers: their commands and all their files."""

import json
import re

import pytest
import yaml

from tests.grids import some_cases
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.presets.presets import preset, preset_named
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.shell import launches_of_script

LLAMA = "meta-llama/Llama-3.1-8B"
OPEN = dict.fromkeys(
    ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), "auto"
)
DRIVE = {"device": "nvme", "nvme_path": "/x", "pin_memory": True}
PIPED = {**DRIVE, "buffer_count": 12, "pipeline_read": True, "pipeline_write": True}
TUNED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8, "bf16": True}
JSONS = {
    "auto.json": {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
        "bf16": {"enabled": "auto"}, **OPEN,
    },
    "whole.json": {
        "zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8,
    },
    "drives.json": {
        "zero_optimization": {
            "stage": 3, "offload_optimizer": PIPED,
            "offload_param": {**DRIVE, "buffer_size": 600_000_000, "max_in_cpu": 0},
        },
        "bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 2,
    },
    "narrow.json": {
        "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True, "bf16_master_weights_and_grads": True,
                 "bf16_optimizer_states": True},
    },
    "fsdp.json": {"version": 2, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
}  # fmt: skip
MACHINES = {"compute_environment": "LOCAL_MACHINE", "num_machines": 2, "num_processes": 16}
YAMLS = {
    "mesh.yaml": {
        **MACHINES, "distributed_type": "FSDP", "mixed_precision": "bf16",
        "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                        "fsdp_state_dict_type": "SHARDED_STATE_DICT"},
        "parallelism_config": {f"parallelism_config_{name}_size": size for name, size in
                               (("dp_shard", 4), ("tp", 2), ("dp_replicate", 2))},
    },
    "engine.yaml": {
        **MACHINES, "distributed_type": "DEEPSPEED", "mixed_precision": "bf16",
        "deepspeed_config": {"zero_stage": 3, "gradient_accumulation_steps": 8,
                             "offload_optimizer_device": "nvme",
                             "offload_optimizer_nvme_path": "/x"},
    },
    "named.yaml": {
        **MACHINES, "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"deepspeed_config_file": "auto.json"},
    },
    "sft.yaml": {
        "model_name_or_path": LLAMA, "stage": "sft", "finetuning_type": "lora", "lora_rank": 16,
        "deepspeed": "auto.json", "cutoff_len": 4096, **TUNED,
    },
    "axolotl.yaml": {
        "base_model": LLAMA, "adapter": "qlora", "load_in_4bit": True, "lora_r": 16,
        "sequence_len": 4096, "micro_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True,
        "fsdp_version": 2, "fsdp_config": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
        "dp_shard_size": 4, "tensor_parallel_size": 2,
    },
    "recipe.yaml": {
        "model_name_or_path": LLAMA, "max_length": 2048, "use_peft": True, "load_in_4bit": True,
        "lora_target_modules": ["q_proj", "k_proj"], **TUNED,
    },
}  # fmt: skip
FILES = {
    **{name: json.dumps(one, indent=1) for name, one in JSONS.items()},
    **{name: yaml.safe_dump(one, sort_keys=False) for name, one in YAMLS.items()},
}
SCRIPT = f"""train.py
--model_name_or_path {LLAMA}
--bf16 True
--per_device_train_batch_size 2
--gradient_accumulation_steps 8
--model_max_length 4096
--use_peft
--lora_r 16"""
COMMANDS = (
    f"deepspeed\n--num_gpus 16\n{SCRIPT}\n--deepspeed auto.json",
    *(
        f"torchrun\n--nnodes 2\n--nproc_per_node 8\n{SCRIPT}\n--deepspeed {name}"
        for name in ("whole.json", "drives.json", "narrow.json")
    ),
    *(
        f"accelerate launch\n--config_file {name}\n{SCRIPT}"
        for name in ("mesh.yaml", "engine.yaml", "named.yaml")
    ),
    f"accelerate launch\n--num_processes 8\n--use_deepspeed\n--zero_stage 3\n{SCRIPT}",
    f"accelerate launch\n--num_processes 8\n--use_fsdp\n--fsdp_version 2\n{SCRIPT}",
    f"torchrun\n--nproc_per_node 8\n{SCRIPT}\n--fsdp full_shard\n--fsdp_config fsdp.json",
    "NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train sft.yaml",
    "accelerate launch\n--num_processes 8\n-m axolotl.cli.train\naxolotl.yaml",
    "trl sft\n--config recipe.yaml\n--num_processes 8\n--accelerate_config fsdp2",
    "accelerate launch\n--config_file engine.yaml\nsft.py\n--config recipe.yaml",
    "deepspeed\n--num_gpus 8\n--module openrlhf.cli.train_sft\n--zero_stage 3\n"
    f"--pretrain {LLAMA}\n"
    "--micro_train_batch_size 2\n--train_batch_size 64\n--max_len 4096",
)


def named(text):
    return preset(name) if (name := preset_named(text)) else None


class Opened(dict):
    """Files, and which of them were read."""

    def __init__(self, files):
        super().__init__(files)
        self.names = {}

    def get(self, name):
        if name in self:
            self.names[name] = None
        return super().get(name)


def reading(lines, files):
    """Null: there is no launch, or nobody reads it."""
    try:
        launch = launches_of_script(" \\\n  ".join(lines), "x.sh", {})[0]
        reader = next(one for one in READERS if one.recognises(launch))
        return reader.read(launch, Request(text_of=files.get, model_of=named))
    except (PlanError, StopIteration):
        return None


def shorter(lines):
    for at, line in enumerate(lines):
        yield line, [*lines[:at], *lines[at + 1 :]]


def less(lines, names):
    """The launch and its files of these names without each line, and what that line said."""
    for line, rest in shorter(lines):
        yield line, rest, FILES
    for name in names:
        for line, rest in shorter(FILES[name].splitlines()):
            left = re.sub(r",(\s*[}\]])", r"\1", "\n".join(rest))
            yield f"{name}: {line}", lines, {**FILES, name: left}


@pytest.mark.parametrize("command", some_cases(COMMANDS, 8))
def test_a_line_less_of_a_script(command):
    lines = command.splitlines()
    opened = Opened(FILES)
    assert reading(lines, opened).legal is True
    for line, rest, files in less(lines, opened.names):
        one = reading(rest, files)
        wrong = [p for p in one.problems if p.verdict == "illegal"] if one else []
        assert not wrong, (line, wrong)
