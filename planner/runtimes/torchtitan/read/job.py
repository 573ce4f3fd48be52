"""Keys of a config to a job and a layout, under the rules of the runtime.

Sources of the rules: torchtitan/config/configs.py, trainer.py and distributed/fsdp.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainplan.costmodel.job import LARGEST_SIZE, Job, Precision, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout, OffloadSpec, Schedule
from trainplan.costmodel.runtimes.torchtitan import TORCHTITAN
from trainplan.costmodel.runtimes.torchtitan_rules import FILLED
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.planner.runtimes.ranks import machines_of, ranks_of
from trainplan.planner.runtimes.reading import Asked
from trainplan.planner.runtimes.torchtitan.read.checks import check_beside, check_ranks
from trainplan.planner.runtimes.torchtitan.read.degrees import (
    CHECKPOINT,
    CP,
    EP,
    GRAPHS,
    IN_PIPE,
    LENGTH,
    PARALLEL,
    POLICY,
    PP,
    REPLICATE,
    SEQUENCE,
    SHARD,
    STEP,
    TOKENS,
    TP,
    Degrees,
    filled,
    told_degrees,
)
from trainplan.planner.runtimes.torchtitan.read.model import DISPATCHERS, ReadModel
from trainplan.planner.runtimes.torchtitan.read.pipeline import (
    by_table,
    evenly_or,
    schedule_of,
    stages_of,
)
from trainplan.planner.runtimes.torchtitan.read.source import Made
from trainplan.planner.runtimes.torchtitan.read.told import Config
from trainplan.planner.shell import Launch

OFFLOADS = "training.enable_cpu_offload"
WITH_WEIGHTS = OffloadSpec(optimizer=1.0, parameters="cpu")
"""Source: torchtitan/distributed/fsdp.py, CPUOffloadPolicy."""


class Batch(NamedTuple):
    """Sequences instead of tokens."""

    seq_length: int
    micro: int
    whole: int
    microbatches: int
    """In one pipeline flush, or accumulated where there is none."""


def batch_of(config: Config, degrees: Degrees) -> Batch | None:
    """The batch; null: the runtime stops, or it has no whole sequences."""
    tokens, length = config.count(TOKENS), config.count(LENGTH)
    in_pipe = config.count(IN_PIPE) if degrees.pp > 1 else 1
    at_once = tokens * in_pipe * degrees.dp
    step = config.count(STEP)
    step = at_once if step == -1 else step
    if step % at_once:
        says = (
            f"{step} tokens a step are no multiple of the {at_once} of one accumulation "
            "(tokens of a micro batch * num_pp_microbatches * data parallel ranks): change one"
        )
        config.problem("micro_batch_divides_batch", "illegal", says, STEP)
        return None
    if tokens % length or step // length > LARGEST_SIZE or length > LARGEST_SIZE:
        says = (
            f"{tokens} tokens of a micro batch are no whole number of sequences of {length}, which "
            "torchtitan packs and a plan does not price: make them a multiple"
        )
        config.problem("packed_sequences", "unmodelled", says, TOKENS)
        return None
    if degrees.pp > 1 and step > at_once:
        says = (
            f"the pipeline is filled and drained {step // at_once} times a step: raise "
            "num_pp_microbatches by as much; it is priced as filled once"
        )
        config.problem("accumulates_pipelines", "unmodelled", says, IN_PIPE)
    return Batch(length, tokens // length, step // length, step // (tokens * degrees.dp))


def options_of(config: Config, degrees: Degrees, read: ReadModel) -> RuntimeOptions:
    """Settings that differ from what the cost model takes of torchtitan."""
    told: dict[str, object] = {}
    components = config.of("compile.components", list) if config.of("compile.enable", bool) else []
    if "model" not in components:
        told["compile"] = False
    if "loss" in components:
        told["cross_entropy"] = "jit"
    if config.of("compile.enable_async_tensor_parallel", bool):
        told["overlap_tp_comm"] = True
    if not config.of(GRAPHS, bool):
        told["cuda_graph"] = "full_iteration"
    if read.dispatcher not in DISPATCHERS:
        says = f"the dispatcher {read.dispatcher!r} is not priced: it is taken as an all-to-all"
        config.problem("moe_dispatcher", "unmodelled", says)
    elif DISPATCHERS[read.dispatcher]:
        told["moe_dispatcher"] = DISPATCHERS[read.dispatcher]
    if read.fp8_recipe in TORCHTITAN.fp8_recipes:
        told["fp8_recipe"] = read.fp8_recipe
    elif read.fp8_recipe is not None:
        says = f"recipe_name = {read.fp8_recipe!r}: use {', '.join(TORCHTITAN.fp8_recipes)}"
        config.problem("fp8_recipe", "illegal", says, "model_spec")
    keys = {"compile": "compile.enable", "cross_entropy": "compile.components",
            "overlap_tp_comm": "compile.enable_async_tensor_parallel", "cuda_graph": GRAPHS,
            "moe_dispatcher": "model_spec", "fp8_recipe": "model_spec"}  # fmt: skip
    for name, value in told.items():
        config.note(f"options.{name}", value, keys[name])
    return RuntimeOptions.model_validate(told)


def zero_stage_of(config: Config, degrees: Degrees) -> int:
    """What the sharding of FSDP2 is under a policy, with a pipeline or without."""
    policy = config.of(POLICY, str)
    if policy not in ("default", "always", "never"):
        says = f"{POLICY} = {policy!r}: use default, always or never"
        config.problem("reshard_policy", "illegal", says, POLICY)
    if degrees.shard * degrees.cp == 1:
        return 0
    if degrees.pp == 1:
        return 2 if policy == "never" else 3
    if policy == "always":
        says = "weights are gathered anew for every micro batch of a pipeline, which is not priced"
        config.problem("reshard_policy", "unmodelled", f"{says}: leave the policy out", POLICY)
    return 1


def recompute_of(config: Config, layers_of_stage: int | None) -> dict[str, object]:
    """Fields of a layout; `layers_of_stage` is null where stages differ."""
    told = config.told.get(CHECKPOINT)
    made = told.value if told else Made("SelectiveAC.Config", 0)
    if made is None:
        return {}
    name = made.name if isinstance(made, Made) else ""
    full = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    if "SelectiveAC" in name:
        return {"recompute": "selective", "recompute_modules": ("torchtitan_selective_op",)}
    if "FullAC" in name:
        return full
    every = made.named.get("every") if isinstance(made, Made) else None
    if "EveryKth" in name and isinstance(every, int) and every > 0 and layers_of_stage:
        if every == 1:
            return full
        number = layers_of_stage // every
        return {**full, "recompute_method": "block", "recompute_num_layers": number}
    says = f"{name or 'the policy of activation checkpointing'} is not priced: taken as none"
    config.problem("activation_checkpoint", "unmodelled", says, CHECKPOINT)
    return {}


def job_of(
    config: Config, launch: Launch, asked: Asked, read: ReadModel
) -> tuple[Job | None, Layout | None]:
    """The question and the answer that the launch is."""
    told = told_degrees(config)
    check_beside(config, told, read.model)
    degrees = filled(config, told, ranks_of(launch, asked))
    if degrees is None:
        return None, None
    check_ranks(config, degrees, read.model)
    batch = batch_of(config, degrees)
    if batch is None:
        return None, None
    ranks = degrees.dp * degrees.tp * degrees.cp * degrees.pp
    machines = machines_of(launch, asked, ranks)
    config.fields += machines.fields
    config.problems += machines.problems
    cluster = machines.cluster
    if cluster is None:
        return None, None
    job = Job(
        model=read.model,
        training=TrainingSpec(
            seq_length=batch.seq_length,
            global_batch_size=batch.whole,
            precision=_precision(config, read),
        ),
        cluster=cluster,
        runtime="torchtitan",
        options=options_of(config, degrees, read),
    )
    config.note("training.seq_length", batch.seq_length, LENGTH)
    config.note("training.global_batch_size", batch.whole, STEP, TOKENS)
    config.note("training.precision", job.training.precision, "training.mixed_precision_param")
    return job, _layout(config, asked, job, degrees, batch)


def _precision(config: Config, read: ReadModel) -> Precision:
    if read.precision:
        return read.precision
    return "fp32" if config.of("training.mixed_precision_param", str) == "float32" else "bf16"


def _layout(
    config: Config, asked: Asked, job: Job, degrees: Degrees, batch: Batch
) -> Layout | None:
    layers = job.model.num_hidden_layers
    schedule: Schedule = "1f1b"
    stages = None
    if degrees.pp > 1:
        schedule = schedule_of(config)
        stages = stages_of(config, schedule, degrees.pp, layers)
        if stages is None:
            return None
    each = {stage.layers for stage in stages or ()} or {layers}
    told = {
        "tp": degrees.tp,
        "pp": degrees.pp,
        "vpp": len(stages) // degrees.pp if stages else 1,
        "cp": degrees.cp,
        "dp": degrees.dp,
        "ep": degrees.ep if job.model.moe else 1,
        "etp": degrees.tp if job.model.moe and degrees.ep == 1 else 1,
        "dp_replicate": 1 if degrees.shard * degrees.cp == 1 else degrees.replicate,
        "zero_stage": zero_stage_of(config, degrees),
        "sequence_parallel": degrees.tp > 1 and config.of(SEQUENCE, bool),
        "micro_batch_size": batch.micro,
        "schedule": schedule,
        "stages": evenly_or(stages, layers) if stages else None,
        "offload": _offload(config, degrees),
        **recompute_of(config, each.pop() if len(each) == 1 else None),
    }
    layout = Layout.model_validate(told)
    _note_layout(config, layout)
    csv = config.told.get(f"{PARALLEL}.pipeline_parallel_schedule_csv")
    if degrees.pp > 1 and csv is not None and csv.value:
        return by_table(config, job, layout, asked.text_of(str(csv.value)))
    _check_pipeline(config, layout)
    return layout


def _offload(config: Config, degrees: Degrees) -> OffloadSpec:
    """Weights, gradients and their optimizer, all or nothing."""
    if not config.of(OFFLOADS, bool):
        return OffloadSpec()
    if degrees.pp > 1 or zero_stage_of(config, degrees) != 3:
        says = (
            "weights on the host are priced where they are sharded, freed between passes and not "
            "cut into stages: the price is without"
        )
        config.problem("cpu_offload", "unmodelled", says, OFFLOADS)
        return OffloadSpec()
    return WITH_WEIGHTS


def _check_pipeline(config: Config, layout: Layout) -> None:
    if layout.pp == 1:
        return
    count = config.count(IN_PIPE)
    if layout.schedule in FILLED and count < layout.pp:
        says = f"{count} micro batches are fewer than the {layout.pp} stages: raise {IN_PIPE}"
        config.problem("pipeline_is_filled", "illegal", says, IN_PIPE)
    for rule in SCHEDULES[layout.schedule].rules:
        pp, vpp, number = np.array([layout.pp]), np.array([layout.vpp]), np.array([count])
        if rule.broken(pp, vpp, number)[0]:
            cause = f"{layout.schedule.replace('-', '_')}_shape"
            config.problem(cause, "illegal", f"{layout.schedule}: {rule.says}", IN_PIPE)


def _note_layout(config: Config, layout: Layout) -> None:
    keys = {
        "tp": (TP,), "pp": (PP,), "cp": (CP,), "ep": (EP,), "dp": (SHARD, REPLICATE),
        "dp_replicate": (REPLICATE,), "zero_stage": (POLICY,), "sequence_parallel": (SEQUENCE,),
        "micro_batch_size": (TOKENS,), "recompute": (CHECKPOINT,),
        "schedule": (f"{PARALLEL}.pipeline_parallel_schedule",),
        "offload": (OFFLOADS,),
        "stages": (f"{PARALLEL}.module_fqns_per_model_part",),
    }  # fmt: skip
    for name, value in layout.model_dump(mode="json").items():
        config.note(f"layout.{name}", value, *keys.get(name, ()))
