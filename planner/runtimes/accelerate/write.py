"""accelerate: its YAML, and the variables that `accelerate launch` makes of it.

`accelerate launch` is torchrun with variables set (`commands/launch.py`, multi_gpu_launcher), so
scripts set them and start torchrun as for every other runtime; the YAML says the same to
`accelerate launch --config_file`.

Source of every key, variable and rule: huggingface/accelerate, commit `COMMIT`, below
`src/accelerate`: `commands/config/config_args.py`, `commands/launch.py`, `utils/launch.py`,
`utils/dataclasses.py` and `parallelism_config.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import yaml

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.planner.runtimes.config import (
    Argument,
    ConfigFile,
    EnvironmentVariable,
    Exporter,
    LaunchConfig,
    one_line,
    option,
    summary,
    switch,
    with_traits,
)
from trainplan.planner.runtimes.training_script.trained import trained_file, trained_notes
from trainplan.planner.runtimes.training_script.write import (
    CHECKPOINTING,
    ENTRY,
    IN_SCRIPT,
    SCRIPT,
    accumulated,
    flat,
    notes,
    refuse,
)

COMMIT = "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83"
"""Accelerate commit whose keys are written (1.15.0.dev0)."""
CHECKED = (
    "20 plans were taken by this commit's own ParallelismConfig, "
    "FullyShardedDataParallelPlugin and launcher (torch 2.14, no GPU)"
)
FILE = "accelerate.yaml"
FSDP, PARALLEL, DYNAMO = "fsdp_config", "parallelism_config", "dynamo_config"
STRATEGIES: Mapping[str, str] = MappingProxyType({"all_gather": "allgather", "p2p": "alltoall"})
"""How keys and values travel. Source: torch `_attention.py`, _RotateMethod: an all-to-all that
permutes them round a ring."""
WRITTEN: dict[str, tuple[object, ...]] = {
    "attention": ("flash",),
    "compile": (True, False),
    "cuda_graph": ("none",),
    "overlap_grad_reduce": (True,),
    "overlap_param_gather": (True,),
    "moment_dtype": ("fp32",),
    "cp_comm_type": tuple(STRATEGIES),
}
VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "mixed_precision": "ACCELERATE_MIXED_PRECISION",
        f"{FSDP}.fsdp_version": "FSDP_VERSION",
        f"{FSDP}.fsdp_reshard_after_forward": "FSDP_RESHARD_AFTER_FORWARD",
        f"{FSDP}.fsdp_auto_wrap_policy": "FSDP_AUTO_WRAP_POLICY",
        f"{FSDP}.fsdp_offload_params": "FSDP_OFFLOAD_PARAMS",
        f"{FSDP}.fsdp_activation_checkpointing": "FSDP_ACTIVATION_CHECKPOINTING",
        f"{FSDP}.fsdp_cpu_ram_efficient_loading": "FSDP_CPU_RAM_EFFICIENT_LOADING",
        f"{FSDP}.fsdp_state_dict_type": "FSDP_STATE_DICT_TYPE",
        **{
            f"{PARALLEL}.parallelism_config_{name}": f"PARALLELISM_CONFIG_{name.upper()}"
            for name in ("dp_replicate_size", "dp_shard_size", "tp_size", "cp_size",
                         "cp_comm_strategy", "sp_size")
        },
        f"{DYNAMO}.dynamo_backend": "ACCELERATE_DYNAMO_BACKEND",
        f"{DYNAMO}.dynamo_use_regional_compilation": (
            "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION"
        ),
    }
)  # fmt: skip
"""Variable of a key. Source: utils/launch.py, prepare_multi_gpu_env."""
OPTIM = "--optim"
MICRO, ACCUMULATED = "--per_device_train_batch_size", "--gradient_accumulation_steps"
LENGTH = "--block_size"
SWITCHES = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_PARALLELISM_CONFIG")


@with_traits
def export_accelerate(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """The YAML of one layout.

    Raises:
        UnsupportedError: The layout or an option has no key.
    """
    refuse(job, layout, WRITTEN, traits)
    module = trained_file(job, layout, traits)
    config = _config(job, layout)
    keys = tuple(flat(config))
    return LaunchConfig(
        runtime="accelerate",
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=tuple(_environment(keys, sharded=layout.zero_stage > 0)),
        required_environment=(SCRIPT,),
        entry_point=ENTRY,
        arguments=tuple(_arguments(job, layout, traits)),
        notes=(*notes(job, layout), *_notes(job, layout), *trained_notes(job, layout, traits)),
        files=(ConfigFile(FILE, _text(job, layout, config)), *((module,) if module else ())),
        keys=keys,
        read_back=module is None,
    )


def _config(job: Job, layout: Layout) -> dict[str, object]:
    told: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP",
        "mixed_precision": {"tf32": "no"}.get(job.training.precision, job.training.precision),
        "num_machines": sum(group.num_nodes for group in job.cluster.groups),
        "num_processes": job.cluster.num_gpus,
    }
    if layout.zero_stage == 0:  # adapters alone
        told["distributed_type"] = "NO" if job.cluster.num_gpus == 1 else "MULTI_GPU"
    else:
        told |= _sharded(job, layout)
    if job.options.compile:
        told[DYNAMO] = {"dynamo_backend": "INDUCTOR", "dynamo_use_regional_compilation": True}
    return told


def _sharded(job: Job, layout: Layout) -> dict[str, object]:
    """FSDP2 and its mesh."""
    return {
        FSDP: {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": layout.zero_stage == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_offload_params": False,
            "fsdp_activation_checkpointing": False,
            "fsdp_cpu_ram_efficient_loading": True,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        },
        PARALLEL: _degrees(job, layout),
    }


def _degrees(job: Job, layout: Layout) -> dict[str, object]:
    told: dict[str, object] = {
        "parallelism_config_dp_replicate_size": layout.dp_replicate,
        "parallelism_config_dp_shard_size": layout.dp_shard,
        "parallelism_config_tp_size": layout.tp,
        "parallelism_config_cp_size": layout.cp,
    }
    if layout.cp > 1:
        strategy = STRATEGIES[job.options.cp_comm_type or "all_gather"]
        told["parallelism_config_cp_comm_strategy"] = strategy
    return told


def _text(job: Job, layout: Layout, config: Mapping[str, object]) -> str:
    head = (
        f"Written by `plan export` for accelerate {COMMIT}.",
        f"checked: {CHECKED}",
        *summary(job, layout),
        *_command(job),
    )
    lines = "".join(f"# {one_line(line)}\n" for line in head)
    return lines + yaml.safe_dump(config, sort_keys=False)


def _command(job: Job) -> Iterator[str]:
    yield f"start: accelerate launch --config_file {FILE} train.py ..."
    if len(job.cluster.groups) > 1 or job.cluster.groups[0].num_nodes > 1:
        yield "with --machine_rank, --main_process_ip and --main_process_port on every node"


def _environment(
    keys: tuple[tuple[str, str], ...], *, sharded: bool
) -> Iterator[EnvironmentVariable]:
    for name in SWITCHES if sharded else ():
        yield EnvironmentVariable(name, "true", f"as `accelerate launch` with {FILE}")
    for key, value in keys:
        if key in VARIABLES:
            yield EnvironmentVariable(VARIABLES[key], value, f"{key} of {FILE}")


def _arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    yield option("layout", MICRO, layout.micro_batch_size)
    yield option("layout", ACCUMULATED, accumulated(job, layout))
    yield option("data", LENGTH, job.training.seq_length)
    if job.training.optimizer.name != "adamw":
        yield option("optimizer", OPTIM, dict(traits.optimizers)[job.training.optimizer.name])
    if layout.recompute == "full":
        yield switch("recompute", CHECKPOINTING)


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    yield f"{FILE} says to `accelerate launch` what this script exports: change both"
    yield "the arguments are those of run_clm.py of transformers: train.py has to take them"
    if accumulated(job, layout) > 1 and layout.zero_stage:
        yield (
            "priced with GradientAccumulationPlugin(sync_each_batch=True); without it accumulated "
            "gradients stay whole on every rank"
        )
    if layout.recompute == "full" and layout.zero_stage:
        yield (
            "fsdp_activation_checkpointing stays off: it recomputes the parts of a layer one by "
            "one, and keeps the input of each"
        )
    if layout.tp > 1:
        yield 'train.py loads the model with tp_plan="auto" and the mesh of the Accelerator'
    if layout.cp > 1:
        yield "train.py runs each step inside accelerator.maybe_context_parallel(...)"


ACCELERATE = Exporter(
    runtime="accelerate",
    export=export_accelerate,
    packs=IN_SCRIPT,
    writes=frozenset(
        {
            "tp",
            "cp",
            "dp",
            "dp_replicate",
            "micro_batch_size",
            "zero_stage",
            "recompute",
            "recompute_method",  # uniform with 1 alone
            "recompute_num_layers",
        }
    ),
    optimizers=frozenset({"adamw", "adamw8bit"}),
    trains=frozenset({"lora", "qlora", "frozen"}),
    source_patterns=(
        "src/accelerate/commands/config/config_args.py",
        "src/accelerate/commands/launch.py",
    ),
    recorded_flags="accelerate/options.json",
    of_others=frozenset({OPTIM, MICRO, ACCUMULATED, LENGTH, CHECKPOINTING}),
    by_words=True,
)
