"""Launches of Accelerate by its own classes, and its launcher's reading of the YAML beside them.

Needs ACCELERATE_PATH. Not run: the model, its wrapping, kernels, memory.
"""

import os
import types
from pathlib import Path

import stand_ins
from judge import judge

stand_ins.checkout("ACCELERATE_PATH", "accelerate", "src")
stand_ins.quiet()

from accelerate.commands import launch as launcher
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_multi_gpu_env

READ = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")


def accept(launch):
    stated = {name: text for name, text in launch["environment"].items() if name.startswith(READ)}
    degrees, plugin = ParallelismConfig(), FullyShardedDataParallelPlugin()
    degrees._validate_accelerator(
        types.SimpleNamespace(
            multi_device=True,
            num_processes=launch["ranks"],
            is_fsdp2=plugin.fsdp_version == 2,
            is_main_process=True,
            distributed_type=DistributedType.FSDP,
        )
    )
    for name in stated:
        del os.environ[name]
    written = {name: text for name, text in _of_yaml(launch).items() if name.startswith(READ)}
    differs = {
        name: (stated[name], written.get(name))
        for name in stated
        if stated[name].lower() != written.get(name, "").lower()  # truth is read in any case
    }
    if differs:
        raise ValueError(f"the script and the YAML differ: {differs}")
    return {
        "tp": degrees.tp_size,
        "cp": degrees.cp_size,
        "dp": degrees.dp_replicate_size * degrees.dp_shard_size,
        "dp_replicate": degrees.dp_replicate_size,
        "zero_stage": 3 if plugin.reshard_after_forward else 2,
    }


def _of_yaml(launch) -> dict[str, str]:
    """Variables that `accelerate launch` sets for this YAML."""
    (file,) = Path(launch["folder"]).glob("*.yaml")
    words = ["--machine_rank", "0", "--main_process_ip", "localhost", "--main_process_port", "0"]
    args = launcher.launch_command_parser().parse_args(["--config_file", str(file), *words, "x.py"])
    args, _, _ = launcher._validate_launch_command(args)
    if args.num_processes != launch["ranks"]:
        raise ValueError(
            f"the YAML starts {args.num_processes} ranks, the script {launch['ranks']}"
        )
    return prepare_multi_gpu_env(args)


if __name__ == "__main__":
    judge(accept)
