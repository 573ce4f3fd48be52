"""accelerate: its YAML, and the variables that `accelerate launch` makes of it.

`accelerate launch` is torchrun with variables set (`commands/launch.py`, multi_gpu_launcher), so
scripts set them and start torchrun as for every other runtime; the YAML says the same to
`accelerate launch --config_file`.

Source of every key, variable and rule: huggingface/accelerate, commit `mesh.COMMIT`, below
`src/accelerate`: `commands/config/config_args.py`, `commands/launch.py`, `utils/launch.py`,
`utils/dataclasses.py` and `parallelism_config.py`.
"""

from collections.abc import Iterator, Mapping

import yaml

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import (
    Argument,
    ConfigFile,
    EnvironmentVariable,
    LaunchConfig,
    one_line,
    option,
    summary,
    switch,
)
from trainplan.planner.runtimes.accelerate import keys as mesh
from trainplan.planner.runtimes.exporter import Exporter, with_traits
from trainplan.planner.runtimes.keys import Written, flat, nested
from trainplan.planner.runtimes.training_script.read import ACCUMULATED, MICRO
from trainplan.planner.runtimes.training_script.trained import trained_file, trained_notes
from trainplan.planner.runtimes.training_script.write import (
    CHECKPOINTING,
    ENTRY,
    IN_SCRIPT,
    LENGTH,
    MODEL,
    SCRIPT,
    WRITES,
    accumulated,
    data_arguments,
    notes,
    refuse,
)

CHECKED = (
    "20 plans were taken by this commit's own ParallelismConfig, "
    "FullyShardedDataParallelPlugin and launcher (torch 2.14, no GPU)"
)
FILE = "accelerate.yaml"
WRITTEN: dict[str, tuple[object, ...]] = {
    "attention": ("flash",),
    "compile": (True, False),
    "cuda_graph": ("none",),
    "overlap_grad_reduce": (True,),
    "overlap_param_gather": (True,),
    "moment_dtype": ("fp32",),
    "fused_optimizer": (True, False),
    "fsdp_version": (1, 2),
    "adapter_dtype": ("fp32", "bf16"),
    "cp_comm_type": tuple(mesh.STRATEGIES),
    "liger": ("0.6",),
}
STRATEGIES = {3: "FULL_SHARD", 2: "SHARD_GRAD_OP"}
"""Of FSDP1, by ZeRO stage."""
OPTIM, LISTS = f"--{mesh.OPTIM}", mesh.LISTS


@with_traits
def export_accelerate(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """The YAML of one layout.

    Raises:
        UnsupportedError: The layout or an option has no key.
    """
    refuse(job, layout, WRITTEN, traits)
    module = trained_file(job, layout, traits)
    config = nested(_keys(job, layout, traits))
    keys = tuple(flat(config))
    return LaunchConfig(
        runtime=mesh.RUNTIME,
        runtime_version=mesh.COMMIT,
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


def _keys(job: Job, layout: Layout, traits: RuntimeTraits) -> Written:
    sharded, precision = layout.zero_stage > 0, job.training.precision
    plain = "NO" if job.cluster.num_gpus == 1 else "MULTI_GPU"  # adapters alone
    return {
        mesh.PLACE: mesh.LOCAL,
        mesh.KIND: "FSDP" if sharded else plain,
        mesh.PRECISION: "no" if precision == "tf32" or _is_narrow(job) else precision,
        mesh.NODES: job.cluster.num_nodes,
        mesh.RANKS: job.cluster.num_gpus,
        **(_sharded(job, layout, traits.sharding.version) if sharded else {}),
        mesh.BACKEND: "INDUCTOR" if job.options.compile else None,
        mesh.REGIONAL: True if job.options.compile else None,
    }


def _is_narrow(job: Job) -> bool:
    """Is every state in bf16? Then nothing is cast, and the script loads weights so."""
    return job.training.state_precision == "bf16"


def _sharded(job: Job, layout: Layout, version: int) -> Written:
    """FSDP2 and its mesh, or FSDP1, which has none and names its strategy."""
    flat = version == 1
    return {
        mesh.VERSION: version,
        mesh.STRATEGY: STRATEGIES[layout.zero_stage] if flat else None,
        mesh.RESHARDS: None if flat else layout.zero_stage == 3,
        mesh.ORIGINAL: False if flat else None,
        mesh.WRAPS: "TRANSFORMER_BASED_WRAP",
        mesh.OFFLOADS: False,
        mesh.PARTS: False,
        mesh.LOADS: True,
        mesh.SAVES: "SHARDED_STATE_DICT",
        mesh.REPLICATE: None if flat else layout.dp_replicate,
        mesh.SHARD: None if flat else layout.dp_shard,
        mesh.TP: None if flat else layout.tp,
        mesh.CP: None if flat else layout.cp,
        mesh.EXCHANGE: mesh.STRATEGIES[job.options.cp_comm_type or "all_gather"]
        if layout.cp > 1
        else None,
    }


def _text(job: Job, layout: Layout, config: Mapping[str, object]) -> str:
    head = (
        f"Written by `plan export` for accelerate {mesh.COMMIT}.",
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
    for name in mesh.SWITCHES if sharded else ():
        yield EnvironmentVariable(name, "true", f"as `accelerate launch` with {FILE}")
    for key, value in keys:
        if key in mesh.VARIABLES:
            yield EnvironmentVariable(mesh.VARIABLES[key], value, f"{key} of {FILE}")


def _arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[Argument]:
    yield option("layout", f"--{MICRO}", layout.micro_batch_size)
    yield option("layout", f"--{ACCUMULATED}", accumulated(job, layout))
    yield from data_arguments(job)
    name, lists = job.training.optimizer.name, job.options.fused_optimizer is False
    if name != "adamw" or lists:
        yield option("optimizer", OPTIM, LISTS if lists else dict(traits.optimizers)[name])
    if _is_narrow(job):
        yield option("precision", f"--{mesh.STORED}", "bfloat16")
    if layout.recompute == "full":
        yield switch("recompute", CHECKPOINTING)
    if layout.tiled_loss:
        yield switch("model", f"--{mesh.LIGER}")


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    yield f"{FILE} repeats for `accelerate launch` what this script exports: change both"
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
    runtime=mesh.RUNTIME,
    export=export_accelerate,
    packs=IN_SCRIPT,
    writes=WRITES | {"cp", "dp_replicate", "tiled_loss"},
    optimizers=frozenset({"adamw", "adamw8bit"}),
    states=frozenset({"o0", "bf16"}),
    trains=frozenset({"lora", "qlora", "frozen"}),
    source_patterns=(
        "src/accelerate/commands/config/config_args.py",
        "src/accelerate/commands/launch.py",
    ),
    recorded_flags=mesh.RECORDED,
    of_others=frozenset(
        {
            *(f"--{name}" for name in (MICRO, ACCUMULATED, mesh.STORED, mesh.LIGER)),
            *(OPTIM, CHECKPOINTING, MODEL, LENGTH),
        }
    ),
    by_words=True,
)
