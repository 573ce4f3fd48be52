"""accelerate: its YAML, alone or named by `accelerate launch`, or the variables set for torchrun.

Source of the rules: huggingface/accelerate at the commit of `planner.runtimes.accelerate`, below
`src/accelerate`: `parallelism_config.py`, `utils/dataclasses.py` (FullyShardedDataParallelPlugin)
and `accelerator.py`.
"""

from dataclasses import replace
from typing import Any, NamedTuple

from trainplan.costmodel.architecture import ModelSpec, Trained
from trainplan.costmodel.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.runtimes.accelerate import keys as mesh
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.read import DEEPSPEED, job_of
from trainplan.planner.runtimes.keys import Entry, Keys, Notes, Option
from trainplan.planner.runtimes.ranks import is_counted, ranks_of
from trainplan.planner.runtimes.reading import Origin, Reader, Reading, Request
from trainplan.planner.runtimes.training_script.read import (
    ACCUMULATED,
    ACCUMULATIONS,
    CHECKPOINTINGS,
    FP32,
    FULL,
    LIGER,
    MICRO,
    MICROS,
    batch_fits,
    cluster_of,
    model_of,
    note_layout,
    optimizer_of,
    sequence_of,
)
from trainplan.planner.runtimes.training_script.script import PRECISIONS, Script, script_of
from trainplan.planner.shell import COMMAND_LINE, Launch, Verdict, Word

RUNTIME_FILE = "accelerate launch"
"""Where keys stand that options of it set."""
OF_ENGINE: tuple[tuple[Option[Any], Option[Any]], ...] = (
    (engine.STAGE, mesh.STAGE),
    (engine.STEPS, mesh.STEPS),
    *((engine.ENABLED[one], mesh.PRECISION) for one in engine.ENABLED),
)
"""Keys of the engine, and those of Accelerate that say them."""
SYNC = "GradientAccumulationPlugin(sync_each_batch=True)"
"""Shards gradients after every micro batch, as priced; else they are accumulated whole. Source:
`accelerator.py`, no_sync, set_requires_gradient_sync."""
STAGES = {"FULL_SHARD": 3, "1": 3, "SHARD_GRAD_OP": 2, "2": 2, "HYBRID_SHARD": 3, "4": 3,
          "HYBRID_SHARD_ZERO2": 2, "5": 2, "NO_SHARD": 2, "3": 2}  # fmt: skip
"""Of FSDP1. Source: utils/constants.py, FSDP_SHARDING_STRATEGY."""


def recognises(launch: Launch) -> bool:
    """By its starter, by the variables it sets, or as a YAML alone."""
    if launch.alone:
        return launch.format == mesh.RUNTIME
    return launch.starter == mesh.RUNTIME or mesh.SWITCHES[0] in launch.environment


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout of a launch, as far as its keys and its arguments say them.

    Under DeepSpeed these are what that engine takes.
    """
    notes = Notes(problems=list(launch.problems), strict=request.strict)
    keys, script = mesh.keys_of(notes, launch, request), script_of(launch.arguments)
    of = (mesh.RUNTIME, mesh.COMMIT)
    if keys is None:
        job, layout = None, None
    elif keys.of(mesh.KIND) == "DEEPSPEED":
        counted = _counted(launch, keys)
        if keys.has(mesh.ENGINE_FILE):
            return DEEPSPEED.read(_with_file(counted, keys), request)
        of = (engine.RUNTIME, engine.COMMIT)
        made = engine.engine_keys(notes, _engine(keys, script), RUNTIME_FILE)
        for own, written in OF_ENGINE:
            entry = keys.entries.get(written.name, Entry(None, "default", own.name))
            if own.name in made.entries:
                made.entries[own.name] = entry._replace(value=made.entries[own.name].value)
        job, layout = job_of(made, script, counted, request, engine.RUNTIME)
    else:
        job, layout = _read(keys, script, launch, request)
    return Reading(*of, job, layout, tuple(notes.fields), tuple(notes.problems))


def _counted(launch: Launch, keys: Keys) -> Launch:
    """The launch with the counts that its YAML states."""
    counts = (keys.entries.get(one.name) for one in (mesh.RANKS, mesh.NODES))
    ranks, nodes = (one and Word(str(one.value), COMMAND_LINE) for one in counts)
    return replace(launch, ranks=launch.ranks or ranks, nodes=launch.nodes or nodes)


def _with_file(launch: Launch, keys: Keys) -> Launch:
    """The launch with the option that its YAML stands for.

    Source: commands/launch.py, _validate_launch_command, deepspeed_config_file.
    """
    file = keys.entries[mesh.ENGINE_FILE.name]
    texts = ["--deepspeed_config_file", str(file.value)]
    if keys.has(mesh.PRECISION):
        texts += ["--mixed_precision", str(keys.of(mesh.PRECISION))]
    words = (Word(text, COMMAND_LINE) for text in texts)
    starter_arguments = (*launch.starter_arguments, *words)
    return replace(launch, starter=mesh.RUNTIME, starter_arguments=starter_arguments)


def _engine(keys: Keys, script: Script) -> dict[str, object]:
    """The configuration that the plugin hands to the engine.

    Source: utils/dataclasses.py, DeepSpeedPlugin; what a script has goes before, since the Trainer
    of transformers stops where both state another number.
    """
    steps, own = keys.of(mesh.STEPS), script.number(keys.notes, *ACCUMULATIONS)
    if own is not None and steps not in ("auto", str(own.value)):
        says = (
            f"gradient_accumulation_steps is {steps[:20]} in Accelerate's configuration and "
            f"{own.value} in the script, at which the Trainer of transformers stops: priced with "
            "the script's"
        )
        keys.problem("two_accumulations", "unread", says, mesh.STEPS)
    if own is None and steps == "auto":
        own = Entry(1, "default")
    if keys.of(mesh.PRECISION).lower() == "fp8":
        precision = _precision(keys)
    else:
        precision = keys.of(mesh.PRECISION).lower()
    offload = {
        name: {
            "device": keys.of(device),
            **({"nvme_path": keys.of(mesh.FOLDERS[name])} if keys.of(device) == "nvme" else {}),
        }
        for name, device in mesh.DEVICES.items()
        if keys.of(device) != "none"
    }
    enabled: dict[str, object] = (
        {precision: {"enabled": True}}
        if precision in engine.ENABLED
        else {name: {"enabled": "auto"} for name in engine.ENABLED if name in script.options}
    )
    return {
        **dict.fromkeys(map(str, (engine.BATCH, engine.MICRO)), "auto"),
        str(engine.STEPS): own.value if own else int(steps) if steps.isdecimal() else steps,
        **({str(engine.SP): keys.of(mesh.SP)} if keys.of(mesh.SP) > 1 else {}),
        engine.ZERO: {"stage": keys.of(mesh.STAGE), **offload},
        **enabled,
    }


def _read(
    keys: Keys, script: Script, launch: Launch, request: Request
) -> tuple[Job | None, Layout | None]:
    notes = keys.notes
    ranks = keys.of(mesh.RANKS) if keys.has(mesh.RANKS) else None
    kind = _kind(keys, ranks)
    if kind is None:
        return None, None
    counted = keys.has(mesh.RANKS) or is_counted(launch) or request.cluster is not None
    degrees = _degrees(keys, ranks or ranks_of(launch, request), counted=counted)
    model, length = model_of(notes, request, script), sequence_of(notes, request, script)
    _check_kind(keys, kind, model.trained if model else None)
    if degrees is None or model is None or length is None:
        return None, None
    batch = _batch(notes, script, degrees, request)
    if batch is None or not batch_fits(notes, batch[1], length):
        return None, None
    cluster = cluster_of(notes, launch, request, degrees.ranks)
    if cluster is None:
        return None, None
    optimizer = optimizer_of(notes, script, dict(RUNTIMES[mesh.RUNTIME].optimizers))
    if optimizer is not None:
        notes.note("training.optimizer", optimizer)
    figures = {
        "seq_length": length,
        "global_batch_size": batch[1],
        "optimizer": optimizer.value if optimizer else "adamw",
        **_formats(keys, script, model),
    }
    job = Job(
        model=model,
        training=TrainingSpec.model_validate(figures),
        cluster=cluster,
        runtime=mesh.RUNTIME,
        options=_options(keys, degrees, script, model),
    )
    return job, _layout(keys, script, degrees, batch[0], model)


def _kind(keys: Keys, ranks: int | None) -> str | None:
    """FSDP, or what is close to it; else a problem."""
    kind = keys.of(mesh.KIND).replace("False", "NO")  # YAML: NO is false
    if kind == "NO" and ranks == 1:
        kind = "MULTI_GPU"
    if kind in ("FSDP", "MULTI_GPU"):
        return kind
    says = (
        f"distributed_type {kind[:40]!r} is not read: use FSDP, DEEPSPEED or MULTI_GPU"
        if keys.has(mesh.KIND)
        else "distributed_type is not stated: write FSDP, DEEPSPEED or MULTI_GPU"
    )
    keys.problem("distributed_type", "unread", says, mesh.KIND)
    return None


def _check_kind(keys: Keys, kind: str, trained: Trained | None) -> None:
    if kind == "MULTI_GPU" and not (trained and trained.adapts):
        says = "replicas of DistributedDataParallel are not priced: priced as FSDP2, weights kept"
        keys.problem("distributed_type", "unmodelled", says, mesh.KIND)
    elif kind == "FSDP" and keys.of(mesh.VERSION) == 1:
        if any(key.startswith(f"{mesh.PARALLEL}.") for key in keys.entries):
            says = "parallelism_config needs fsdp_version 2: set it"
            keys.stops("parallelism_needs_fsdp2", says, mesh.VERSION)
        if not (trained and trained.quantised):
            says = "FSDP1 (fsdp_version 1, the default) is priced as FSDP2: set fsdp_version 2"
            keys.problem("fsdp_version", "unmodelled", says, mesh.VERSION)
    _check_fsdp(keys)


def _check_fsdp(keys: Keys) -> None:
    new = keys.of(mesh.VERSION) == 2
    checks: tuple[tuple[bool, str, Verdict, str, Option[Any]], ...] = (
        (
            keys.of(mesh.OFFLOADS),
            "offload_params",
            "unmodelled",
            "weights and their states on the host are not priced: the price is without",
            mesh.OFFLOADS,
        ),
        (
            keys.of(mesh.PARTS),
            "activation_checkpointing_parts",
            "unmodelled",
            "fsdp_activation_checkpointing recomputes the parts of a layer one by one and keeps "
            "the input of each, priced as whole layers: use gradient_checkpointing of the model",
            mesh.PARTS,
        ),
        (
            new and keys.of(mesh.SAVES) == "LOCAL_STATE_DICT",
            "state_dict_type",
            "illegal",
            "FSDP2 has no LOCAL_STATE_DICT: use SHARDED_STATE_DICT",
            mesh.SAVES,
        ),
        (
            new and keys.has(mesh.STRATEGY),
            "sharding_strategy",
            "ignored",
            "FSDP2 reads fsdp_reshard_after_forward instead of fsdp_sharding_strategy: delete it",
            mesh.STRATEGY,
        ),
        (
            new and keys.of(mesh.WRAPS).upper() == "NO_WRAP",
            "no_wrap",
            "unmodelled",
            "without fsdp_auto_wrap_policy layers are no units of their own and are gathered at "
            "once, which is not priced: set TRANSFORMER_BASED_WRAP",
            mesh.WRAPS,
        ),
    )
    for wrong, cause, verdict, says, key in checks:
        if wrong:
            keys.problem(cause, verdict, says, key)


class Degrees(NamedTuple):
    """Ranks along every dimension."""

    replicate: int
    shard: int
    tp: int
    cp: int

    @property
    def dp(self) -> int:
        """Replicas."""
        return self.replicate * self.shard

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.dp * self.tp * self.cp


def _degrees(keys: Keys, ranks: int | None, *, counted: bool) -> Degrees | None:
    """Degrees that fill the ranks; null: the runtime stops, or it cannot be known.

    `counted`: are all ranks stated?
    """
    if keys.of(mesh.SP) > 1:
        says = "sequence parallelism of Accelerate needs DeepSpeed: use cp_size, or DeepSpeed"
        keys.problem("sequence_parallel_backend", "illegal", says, mesh.SP)
        return None
    degrees = Degrees(*(keys.of(key) for key in (mesh.REPLICATE, mesh.SHARD, mesh.TP, mesh.CP)))
    if degrees.ranks == 1:
        if ranks is None:
            says = "the number of ranks is not stated: give num_processes or --cluster"
            keys.problem("world_size", "unread", says)
            return None
        return Degrees(1, ranks, 1, 1)
    if ranks is not None and degrees.ranks != ranks:
        says = (
            f"dp_replicate {degrees.replicate} * dp_shard {degrees.shard} * tp {degrees.tp} * cp "
            f"{degrees.cp} is not the {ranks} ranks: change one"
        )
        sizes = (mesh.SHARD, mesh.REPLICATE, mesh.TP, mesh.CP)
        keys.stops(
            "world_size", says, *(sizes if ranks % degrees.ranks == 0 else ()), stated=counted
        )
        return None
    return degrees


def _batch(
    notes: Notes, script: Script, degrees: Degrees, request: Request
) -> tuple[int, int] | None:
    """Sequences of a micro batch and of a step; null: they do not go together."""
    micro = script.number(notes, *MICROS) or Entry(1, "assumed", f"--{MICRO}")
    steps = script.number(notes, *ACCUMULATIONS)
    assert isinstance(micro.value, int)
    at_once = micro.value * degrees.dp
    whole, given = request.global_batch_size, steps.value if steps else None
    if whole is None:
        whole = at_once * (given if isinstance(given, int) else 1)
    if whole % at_once or (given is not None and whole != at_once * int(str(given))):
        says = (
            f"{whole} sequences of a step are not {micro.value} of a micro batch * {degrees.dp} "
            f"replicas * {'some' if given is None else given} accumulated: change one"
        )
        accumulates = steps is not None and steps.origin == "stated"
        stated = micro.origin == "stated" and (accumulates or whole % at_once)
        verdict: Verdict = "illegal" if stated else "unread"
        notes.problem("micro_batch_divides_batch", verdict, says, micro.place)
        return None
    if whole > at_once:
        notes.note("training.sync_each_batch", Entry(value=True, origin="assumed", written=SYNC))
    notes.note("layout.micro_batch_size", micro)
    known = request.global_batch_size is None and steps is not None
    origin: Origin = "derived" if known and micro.origin == "stated" else "assumed"
    notes.note("training.global_batch_size", Entry(whole, origin, f"--{ACCUMULATED}"))
    return micro.value, whole


def _formats(keys: Keys, script: Script, model: ModelSpec) -> dict[str, str]:
    """Of products, and of states where they are all in bf16.

    Adapters that a trainer makes in fp32 are not what loaded weights are. FSDP casts trained
    weights to fp32 under mixed precision, whatever they are loaded in. Source:
    huggingface/accelerate utils/fsdp_utils.py, fsdp2_prepare_model. Arguments of a script go before
    the configuration: huggingface/transformers training_args.py, mixed_precision_dtype.
    """
    stated = keys.of(mesh.PRECISION).lower()
    wide = _wide(script, model) is not None
    narrow = [name for name in mesh.NARROW if _is_bf16(script, name) and not wide]
    on = [(one, own) for one in PRECISIONS if (own := script.enabled(one)) and own.value]
    if len(on) > 1:
        keys.notes.problem(
            "mixed_precision", "illegal", "leave --fp16 or --bf16 out", on[1][1].place
        )
    if on and stated != "fp8":
        stated = on[0][0]
    casts = keys.of(mesh.KIND) == "FSDP" and stated not in ("no", "false", "fp32")
    if narrow and not casts and stated not in ("fp16", "fp8"):
        _, word = script.options[narrow[0]]
        entry = Entry("bf16", "stated", word.text, word.place)
        keys.notes.note("training.precision", entry)
        keys.notes.note("training.state_precision", entry)
        return {"precision": "bf16", "state_precision": "bf16"}
    if on and stated != "fp8":
        keys.notes.note("training.precision", on[0][1]._replace(value=stated))
        return {"precision": stated}
    return {"precision": _precision(keys)}


def _wide(script: Script, model: ModelSpec) -> Entry | None:
    """What makes adapters in fp32; null: there are none, or they have the type of the weights."""
    stated = script.switch(mesh.WIDE) if model.trained and model.trained.adapts else None
    return stated if stated is not None and stated.value else None


def _is_bf16(script: Script, name: str) -> bool:
    """Does an argument load weights in bf16: by its value, or as the switch `PURE`?"""
    value, _ = script.options.get(name, (None, None))
    if name == mesh.PURE:
        return bool((switched := script.switch(name)) and switched.value)
    return value is not None and value.text.removeprefix("torch.") in ("bfloat16", "bf16")


def _precision(keys: Keys) -> str:
    precision = keys.of(mesh.PRECISION).lower()
    if precision in ("no", "false", "fp32"):  # YAML: no is false
        keys.notes.note("training.precision", FP32)
        return str(FP32.value)
    if precision == "fp8":
        says = "fp8 of Accelerate depends on a recipe of the script: priced as bf16"
        keys.problem("fp8", "unmodelled", says, mesh.PRECISION)
        precision = "bf16"
    elif precision not in ("bf16", "fp16"):
        says = f"mixed_precision {precision[:40]!r}: use no, bf16, fp16 or fp8"
        keys.problem("mixed_precision", "illegal", says, mesh.PRECISION)
        precision = "bf16"
    keys.notes.note("training.precision", keys.entry(precision, mesh.PRECISION))
    return precision


def _options(keys: Keys, degrees: Degrees, script: Script, model: ModelSpec) -> RuntimeOptions:
    """Settings that differ from what the cost model takes of the runtime."""
    options: dict[str, object] = {}
    if (wide := _wide(script, model)) is not None:
        options["adapter_dtype"] = "fp32"
        keys.notes.note("options.adapter_dtype", wide._replace(value="fp32"))
    compiled = script.switch("torch_compile")
    if keys.of(mesh.BACKEND).lower() not in ("no", "eager", "false"):
        compiled = keys.entry(True, mesh.BACKEND)  # noqa: FBT003
    if compiled is not None and compiled.value:
        options["compile"] = True
        keys.notes.note("options.compile", compiled)
    if keys.of(mesh.KIND) == "FSDP" and keys.of(mesh.VERSION) == 1:
        options["fsdp_version"] = 1
        keys.notes.note("options.fsdp_version", keys.entry(1, mesh.VERSION))
    value, word = script.options.get(mesh.OPTIM, (None, None))
    if value is not None and word is not None and value.text == mesh.LISTS:
        options["fused_optimizer"] = False
        entry = Entry(value=False, origin="stated", written=word.text, place=word.place)
        keys.notes.note("options.fused_optimizer", entry)
    if (liger := script.switch(*LIGER)) is not None and liger.value:
        options["liger"] = "0.6"
        keys.notes.note("options.liger", liger._replace(value="0.6"))
    strategy = keys.of(mesh.EXCHANGE)
    names = {written: ours for ours, written in mesh.STRATEGIES.items()}
    if degrees.cp > 1 and strategy not in names:
        says = f"cp_comm_strategy {strategy[:40]!r}: use {' or '.join(names)}"
        keys.problem("cp_comm_strategy", "illegal", says, mesh.EXCHANGE)
    elif degrees.cp > 1 and strategy != mesh.EXCHANGE.default:
        options["cp_comm_type"] = names[strategy]
        keys.notes.note("options.cp_comm_type", keys.entry(names[strategy], mesh.EXCHANGE))
    return RuntimeOptions.model_validate(options)


def _stage(keys: Keys, model: ModelSpec) -> int:
    """ZeRO stage of a policy of FSDP2, or of a strategy of FSDP1; replicas are of adapters."""
    if keys.of(mesh.KIND) != "FSDP":
        return 0 if model.trained and model.trained.adapts else 2
    if keys.of(mesh.VERSION) == 2:
        return 3 if keys.of(mesh.RESHARDS) else 2
    strategy = keys.of(mesh.STRATEGY, keys.of(mesh.POLICY)).upper()
    if "HYBRID" in strategy or strategy in ("4", "5"):
        says = f"{strategy} shards over a node, priced over all ranks: set dp_replicate with FSDP2"
        keys.problem("hybrid_shard", "unmodelled", says, mesh.STRATEGY)
    return STAGES.get(strategy, 3)


def _layout(keys: Keys, script: Script, degrees: Degrees, micro: int, model: ModelSpec) -> Layout:
    recompute, liger = script.switch(*CHECKPOINTINGS), script.switch(*LIGER)
    full = (recompute is not None and recompute.value) or keys.of(mesh.PARTS)
    layout = Layout.model_validate(
        {
            "tp": degrees.tp,
            "cp": degrees.cp,
            "dp": degrees.dp,
            "dp_replicate": degrees.replicate,
            "zero_stage": _stage(keys, model),
            "micro_batch_size": micro,
            "tiled_loss": bool(liger and liger.value),
            **(FULL if full else {}),
        }
    )
    entries = {
        "tp": keys.entry(None, mesh.TP),
        "cp": keys.entry(None, mesh.CP),
        "dp": keys.entry(None, mesh.SHARD, mesh.REPLICATE),
        "dp_replicate": keys.entry(None, mesh.REPLICATE),
        "zero_stage": keys.entry(None, mesh.POLICY, mesh.STRATEGY),
        "recompute": recompute or keys.entry(None, mesh.PARTS),
        **({"tiled_loss": liger} if liger else {}),
    }
    note_layout(keys.notes, layout, entries)
    return layout


ACCELERATE = Reader(mesh.RUNTIME, recognises, read)
