"""Launches of the Trainer of transformers by its own classes, in the script that was exported.

The script reads its arguments (HfArgumentParser, TrainingArguments); the degrees are those of
ParallelismConfig and the plugin of Accelerate, or of DistributedConfig, whose plans are laid over
the modules of a model on the meta device. Needs TRANSFORMERS_PATH. Not run: weights, kernels.
"""

import importlib.util
import os
import sys
import types
from pathlib import Path

import stand_ins
from judge import judge

stand_ins.checkout("TRANSFORMERS_PATH", "transformers", "src")
stand_ins.quiet()

import torch
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoConfig, AutoModelForCausalLM, training_args
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import initialize_distributed_mesh
from transformers.trainer_optimizer import _parse_optim_args, _setup_low_rank_optimizer

FAMILIES = {"Mixtral": "mixtral", "Qwen3-30B-A3B": "qwen3_moe", "Qwen3": "qwen3"}
"""Family of a model, by a part of its name; else it is Llama's."""


def accept(launch):
    alone = launch["ranks"] == 1
    if not alone:
        torch.distributed.init_process_group(
            "fake", store=FakeStore(), rank=0, world_size=launch["ranks"]
        )
    torch.accelerator.is_available = lambda: True  # else the script is one for CPUs
    training_args.is_torch_tf32_available = lambda: True
    training_args.enable_tf32 = lambda on: None
    script, args, module = arguments(launch)
    model = of_family(script)
    if script.distributed_config:
        degrees = cut(script, launch, model)
    elif args.fsdp:
        degrees = sharded(module.mesh_of(script), args, launch)
    else:
        degrees = {"tp": 1, "cp": 1, "ep": 1, "dp": launch["ranks"], "zero_stage": 0}
    if args.optim_target_modules:
        degrees |= low_rank(args, model, alone=alone)
    model.activation_checkpointing_enable(
        every_n_layers=(args.activation_checkpointing_kwargs or {}).get("every_n_layers", 1)
    )
    product = degrees["tp"] * degrees["cp"] * degrees["dp"]
    if product != launch["ranks"]:
        raise ValueError(f"{product} ranks are planned, {launch['ranks']} started")
    return degrees | {
        "micro_batch_size": args.per_device_train_batch_size,
        "micro_batches": args.gradient_accumulation_steps,
        "recompute": "full" if args.activation_checkpointing else "none",
    }


def arguments(launch):
    """As the script reads them."""
    words = launch["words"]
    path = Path(launch["folder"]) / f"{words[1]}.py"
    spec = importlib.util.spec_from_file_location(words[1], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[words[1]] = module
    spec.loader.exec_module(module)
    if launch["ranks"] == 1:  # as its first lines do
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
    sys.argv = [str(path), *words[2:], "--use_cpu", "true"]
    script, args = module.arguments()
    return script, args, module


def of_family(script):
    """A model of eight layers of the family, without weights."""
    family = next((f for part, f in FAMILIES.items() if part in script.model_name_or_path), "llama")
    config = AutoConfig.for_model(family, num_hidden_layers=8)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def sharded(mesh, args, launch):
    plugin = FullyShardedDataParallelPlugin(**args.fsdp_plugin_args)
    mesh._validate_accelerator(
        types.SimpleNamespace(
            multi_device=True,
            num_processes=launch["ranks"],
            is_fsdp2=plugin.fsdp_version == 2,
            is_main_process=True,
            distributed_type=DistributedType.FSDP,
        )
    )
    return {
        "tp": mesh.tp_size,
        "cp": mesh.cp_size,
        "dp": mesh.dp_replicate_size * mesh.dp_shard_size,
        "dp_replicate": mesh.dp_replicate_size,
        "zero_stage": 3 if plugin.reshard_after_forward else 2,
    }


def cut(script, launch, model):
    degrees = DistributedConfig(**script.distributed_config)
    initialize_distributed_mesh(degrees)
    plans = dict(zip(("tp", "ep", "fsdp"), model._resolve_parallel_plans(degrees), strict=True))
    for name, size in (("tp", degrees.tp_size), ("ep", degrees.ep_size), ("fsdp", degrees.dp_size)):
        if (size > 1) != bool(plans[name]):
            raise ValueError(f"{name}_size is {size}, its plan has {len(plans[name])} entries")
    if set(plans["fsdp"].values()) - {"free_full_weight", "keep_full_weight"}:
        raise ValueError(f"ways of the plan: {set(plans['fsdp'].values())}")
    return {
        "tp": degrees.tp_size,
        "cp": 1,
        "ep": degrees.ep_size,
        "dp": degrees.dp_size,
        "dp_replicate": degrees.dp_replicate_size,
        "zero_stage": 3 if degrees.dp_size > 1 else 0,
    }


def low_rank(args, model, *, alone):
    """Matrices of layers, and no table; layer by layer one process alone."""
    settings = {name: str(value) for name, value in _parse_optim_args(args.optim_args).items()}
    if args.optim.endswith("layerwise"):
        if args.parallel_mode == training_args.ParallelMode.DISTRIBUTED or not alone:
            raise ValueError("layer by layer, and several processes")
        return {}
    _, kwargs = _setup_low_rank_optimizer(
        args, model, args.optim, {args.optim: object}, settings, {}
    )
    others, chosen = (group["params"] for group in kwargs["params"])
    tables = {model.get_input_embeddings().weight, model.get_output_embeddings().weight}
    if tables & set(chosen) or len(chosen) != 7 * len(model.model.layers):
        raise ValueError(f"{len(chosen)} matrices are projected, {len(others)} others are not")
    return {}


if __name__ == "__main__":
    judge(accept)
