"""Keys of a config to a job and a layout, under the rules of the runtime.

Sources of the rules: torchtitan/config/configs.py, trainer.py and distributed/fsdp.py.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.job import Job, Precision, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout, OffloadSpec, Schedule
from trainplan.costmodel.runtimes import FILLED, RUNTIMES
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.spec import LARGEST_SIZE
from trainplan.planner.runtimes.keys import Name
from trainplan.planner.runtimes.python_source import Made
from trainplan.planner.runtimes.ranks import Machines, is_counted, machines_of, ranks_of
from trainplan.planner.runtimes.reading import Request
from trainplan.planner.runtimes.torchtitan import keys as key
from trainplan.planner.runtimes.torchtitan.read.checks import check_features, check_ranks
from trainplan.planner.runtimes.torchtitan.read.config import Config, shown
from trainplan.planner.runtimes.torchtitan.read.degrees import (
    RANKS,
    Degrees,
    filled,
    parsed_degrees,
)
from trainplan.planner.runtimes.torchtitan.read.islands import joined, outer_of, states_links
from trainplan.planner.runtimes.torchtitan.read.model import DISPATCHERS, ReadModel
from trainplan.planner.runtimes.torchtitan.read.pipeline import (
    by_table,
    evenly_or,
    schedule_of,
    stages_of,
)
from trainplan.planner.shell import Launch

LOSS_CHUNKS = RUNTIMES["torchtitan"].tiling.loss_chunks
WITH_WEIGHTS = OffloadSpec(optimizer=1.0, parameters="cpu")
"""Source: torchtitan/distributed/fsdp.py, CPUOffloadPolicy."""


class Batch(NamedTuple):
    """Sequences instead of tokens."""

    seq_length: int
    micro: int
    whole: int
    microbatches: int
    """In one pipeline flush, or accumulated where there is none."""


def batch_of(config: Config, degrees: Degrees, islands: int) -> Batch | None:
    """The batch of all islands; null: the runtime stops, or it has no whole sequences."""
    tokens, length = config.degree(key.TOKENS), config.degree(key.LENGTH)
    in_pipe = config.degree(key.IN_PIPE) if degrees.pp > 1 else 1
    at_once = tokens * in_pipe * degrees.dp * islands
    step = config.degree(key.STEP)
    step = at_once if step == -1 else step
    if step % at_once:
        says = (
            f"{step} tokens a step are no multiple of the {at_once} of one accumulation "
            "(tokens of a micro batch * num_pp_microbatches * data parallel ranks): change one"
        )
        config.stops("micro_batch_divides_batch", says, key.STEP, key.TOKENS, key.SHARD, *RANKS)
        return None
    if tokens % length or step // length > LARGEST_SIZE or length > LARGEST_SIZE:
        says = (
            f"{tokens} tokens of a micro batch are no whole number of sequences of {length}, which "
            "torchtitan packs and a plan does not price: make them a multiple"
        )
        config.problem("packed_sequences", "unmodelled", says, key.TOKENS)
        return None
    if degrees.pp > 1 and step > at_once:
        says = (
            f"the pipeline is filled and drained {step // at_once} times a step: raise "
            "num_pp_microbatches by as much; it is priced as filled once"
        )
        config.problem("accumulates_pipelines", "unmodelled", says, key.IN_PIPE)
    return Batch(length, tokens // length, step // length, step // (tokens * degrees.dp * islands))


def options_of(config: Config, degrees: Degrees, read: ReadModel) -> RuntimeOptions:
    """Settings that differ from what the cost model takes of torchtitan."""
    values: dict[str, object] = {}
    components = config.of(key.COMPONENTS) if config.of(key.COMPILE) else []
    if "model" not in components:
        values["compile"] = False
    if ("model" in components) != ("loss" in components):
        values["cross_entropy"] = "jit" if "loss" in components else "unfused"
    if config.of(key.ASYNC_TP):
        values["overlap_tp_comm"] = True
    if not config.of(key.NO_GRAPHS):
        values["cuda_graph"] = "full_iteration"
    if read.dispatcher not in tuple(DISPATCHERS):  # may be of any type
        says = f"the dispatcher {read.dispatcher!r} is not priced: it is taken as an all-to-all"
        config.problem("moe_dispatcher", "unmodelled", says)
    elif DISPATCHERS[read.dispatcher]:
        values["moe_dispatcher"] = DISPATCHERS[read.dispatcher]
    recipes = RUNTIMES["torchtitan"].fp8_recipes
    if read.fp8_recipe in recipes:
        values["fp8_recipe"] = read.fp8_recipe
    elif read.fp8_recipe is not None:
        says = f"recipe_name = {read.fp8_recipe!r}: use {', '.join(recipes)}"
        config.problem("fp8_recipe", "illegal", says, key.MODEL)
    keys: dict[str, Name] = {
        "compile": key.COMPILE, "cross_entropy": key.COMPONENTS, "overlap_tp_comm": key.ASYNC_TP,
        "cuda_graph": key.NO_GRAPHS, "moe_dispatcher": key.MODEL, "fp8_recipe": key.MODEL,
    }  # fmt: skip
    for name, value in values.items():
        config.note(f"options.{name}", value, keys[name])
    return RuntimeOptions.model_validate(values)


def zero_stage_of(config: Config, degrees: Degrees) -> int:
    """What the sharding of FSDP2 is under a policy, with a pipeline or without."""
    policy = config.of(key.POLICY)
    if policy not in ("default", "always", "never"):
        says = f"{key.POLICY} = {policy!r}: use default, always or never"
        config.problem("reshard_policy", "illegal", says, key.POLICY)
    if degrees.shard * degrees.cp == 1:
        return 0
    if degrees.pp == 1:
        return 2 if policy == "never" else 3
    if policy == "always":
        says = "weights are gathered anew for every micro batch of a pipeline, which is not priced"
        config.problem("reshard_policy", "unmodelled", f"{says}: leave the policy out", key.POLICY)
    return 1


def recompute_of(config: Config, layers_of_stage: int | None) -> dict[str, object]:
    """Fields of a layout; `layers_of_stage` is null where stages differ."""
    made = config.checkpointing()
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
    config.problem("activation_checkpoint", "unmodelled", says, key.CHECKPOINT)
    return {}


def chunks_of(config: Config) -> int:
    """Chunks of the loss, by its class."""
    entry = config.entries.get(key.LOSS)
    made = entry.value if entry else None
    if not isinstance(made, Made) or "ChunkedLossWrapper" not in made.name:
        return 1
    chunks, known = made.named.get("num_chunks", LOSS_CHUNKS), LOSS_CHUNKS
    if chunks not in (1, known):
        says = f"num_chunks = {shown(chunks)} of the loss is priced as {known}"
        config.problem("loss_chunks", "unmodelled", says, key.LOSS)
    return 1 if chunks == 1 else known


def job_of(
    config: Config, launch: Launch, request: Request, read: ReadModel
) -> tuple[Job | None, Layout | None]:
    """The question and the answer that the launch is."""
    values = parsed_degrees(config)
    check_features(config, values, read.model)
    outer = outer_of(config)
    islands = (outer and outer.islands) or 1
    links = states_links(launch, request, outer)
    every = request.cluster
    if links:
        request = replace(request, cluster=None)
    world = ranks_of(launch, request)
    if world is None and links and every:
        world = every.num_gpus // islands
    own = request.cluster is not None and request.cluster.num_gpus == world
    degrees = filled(config, values, world, stated=own or is_counted(launch))
    if degrees is None:
        return None, None
    check_ranks(config, degrees, read.model)
    batch = batch_of(config, degrees, islands)
    if batch is None:
        return None, None
    ranks = degrees.dp * degrees.tp * degrees.cp * degrees.pp
    machines = Machines(every) if links else machines_of(launch, request, ranks)
    config.notes.fields += machines.fields
    config.notes.problems += machines.problems
    cluster = machines.cluster
    if cluster is None:
        return None, None
    precision = _precision(config, read)
    for name in (key.STORED, key.PRECISION):
        if config.of(name) not in ("bfloat16", "float32"):  # config/configs.py, Training
            config.problem("formats", "illegal", f"{name}: use bfloat16 or float32", name)
    narrow = config.of(key.STORED) == "bfloat16" and precision != "fp32"
    job = Job(
        model=read.model,
        training=TrainingSpec(
            seq_length=batch.seq_length,
            global_batch_size=batch.whole,
            precision=precision,
            state_precision="bf16" if narrow else "o0",
        ),
        cluster=cluster,
        runtime="torchtitan",
        options=options_of(config, degrees, read),
    )
    if outer:
        job = joined(config, job, outer, links=links)
    config.note("training.seq_length", batch.seq_length, key.LENGTH)
    config.note("training.global_batch_size", job.training.global_batch_size, key.STEP, key.TOKENS)
    config.note("training.precision", job.training.precision, key.PRECISION)
    config.note("training.state_precision", job.training.state_precision, key.STORED)
    return job, _layout(config, request, job, degrees, batch)


def _precision(config: Config, read: ReadModel) -> Precision:
    if read.precision:
        return read.precision
    return "fp32" if config.of(key.PRECISION) == "float32" else "bf16"


def _layout(
    config: Config, request: Request, job: Job, degrees: Degrees, batch: Batch
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
    values = {
        "tp": degrees.tp,
        "pp": degrees.pp,
        "vpp": len(stages) // degrees.pp if stages else 1,
        "cp": degrees.cp,
        "dp": degrees.dp,
        "ep": degrees.ep if job.model.moe else 1,
        "etp": degrees.tp if job.model.moe and degrees.ep == 1 else 1,
        "dp_replicate": 1 if degrees.shard * degrees.cp == 1 else degrees.replicate,
        "zero_stage": zero_stage_of(config, degrees),
        "sequence_parallel": degrees.tp > 1 and config.of(key.SEQUENCE),
        "micro_batch_size": batch.micro,
        "tiled_loss": chunks_of(config) > 1,
        "schedule": schedule,
        "stages": evenly_or(stages, layers) if stages else None,
        "offload": _offload(config, degrees),
        **recompute_of(config, each.pop() if len(each) == 1 else None),
    }
    layout = Layout.model_validate(values)
    _note_layout(config, layout)
    csv = config.entries.get(key.SCHEDULE_CSV.name)
    if degrees.pp > 1 and csv is not None and csv.value:
        return by_table(config, job, layout, request.text_of(str(csv.value)))
    _check_pipeline(config, layout)
    return layout


def _offload(config: Config, degrees: Degrees) -> OffloadSpec:
    """Weights, gradients and their optimizer, all or nothing."""
    if not config.of(key.OFFLOADS):
        return OffloadSpec()
    if degrees.pp > 1 or zero_stage_of(config, degrees) != 3:
        says = (
            "weights on the host are priced where they are sharded, freed between passes and not "
            "cut into stages: the price is without"
        )
        config.problem("cpu_offload", "unmodelled", says, key.OFFLOADS)
        return OffloadSpec()
    return WITH_WEIGHTS


def _check_pipeline(config: Config, layout: Layout) -> None:
    if layout.pp == 1:
        return
    count = config.degree(key.IN_PIPE)
    if layout.schedule in FILLED and count < layout.pp:
        says = f"{count} micro batches are fewer than the {layout.pp} stages: raise {key.IN_PIPE}"
        config.stops("pipeline_is_filled", says, key.IN_PIPE, key.PP)
    for rule in SCHEDULES[layout.schedule].rules:
        pp, vpp, number = np.array([layout.pp]), np.array([layout.vpp]), np.array([count])
        if rule.broken(pp, vpp, number)[0]:
            cause = f"{layout.schedule.replace('-', '_')}_shape"
            says = f"{layout.schedule}: {rule.message}"
            config.stops(cause, says, key.IN_PIPE, key.PP, key.MODULES)


def _note_layout(config: Config, layout: Layout) -> None:
    keys: dict[str, tuple[Name, ...]] = {
        "tp": (key.TP,), "pp": (key.PP,), "cp": (key.CP,), "ep": (key.EP,),
        "dp": (key.SHARD, key.REPLICATE), "dp_replicate": (key.REPLICATE,),
        "zero_stage": (key.POLICY,), "sequence_parallel": (key.SEQUENCE,),
        "micro_batch_size": (key.TOKENS,), "recompute": (key.CHECKPOINT,),
        "tiled_loss": (key.LOSS,),
        "schedule": (key.SCHEDULE,), "offload": (key.OFFLOADS,), "stages": (key.MODULES,),
    }  # fmt: skip
    for name, value in layout.model_dump(mode="json").items():
        config.note(f"layout.{name}", value, *keys.get(name, ()))
