"""deepspeed: a `ds_config.json`, alone or named by `deepspeed train.py --deepspeed_config X`.

Source of the rules: deepspeedai/DeepSpeed at the commit of `planner.runtimes.deepspeed`, below
`deepspeed`: `runtime/config.py` (_set_batch_related_parameters, _batch_assertion),
`runtime/zero/config.py`, `runtime/zero/offload_config.py` and `runtime/engine.py`.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.job import FULL_WIDTH, Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.offload import (
    check_checkpoints,
    check_offload,
    offload_of,
)
from trainplan.planner.runtimes.deepspeed.tiles import SWITCHES
from trainplan.planner.runtimes.keys import Entry, Keys, Notes, Option
from trainplan.planner.runtimes.ranks import is_counted, ranks_of
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.runtimes.training_script.read import (
    ACCUMULATIONS,
    CHECKPOINTING,
    FP32,
    FULL,
    HF_MICRO,
    MICROS,
    batch_fits,
    cluster_of,
    model_of,
    note_layout,
    optimizer_of,
    sequence_of,
    text_of,
)
from trainplan.planner.runtimes.training_script.script import MIXED, Script, script_of
from trainplan.planner.shell import Launch, Word

OPTIONS = ("deepspeed_config", "deepspeed", "deepspeed_config_file")
"""Of scripts, of the Trainer of transformers, and of `accelerate launch`."""
OPTIMIZERS: Mapping[str, str] = {
    "adam": "adamw",
    **{word.lower(): name for name, word in RUNTIMES[engine.RUNTIME].optimizers},
}
"""Name of an optimizer, by the engine's word for it in small letters."""
MEGATRON = "pretrain_"
"""First letters of the programs of Megatron-DeepSpeed."""


def recognises(launch: Launch) -> bool:
    """By its starter, by an option of DeepSpeed, or as a JSON file alone."""
    if launch.alone:
        return launch.format == engine.RUNTIME
    return launch.starter == engine.RUNTIME or bool({*OPTIONS} & {*_options_of(launch)})


def _options_of(launch: Launch) -> Mapping[str, tuple[Word | None, Word]]:
    """Those of the script and of its starter."""
    words = (*launch.starter_arguments, *launch.arguments)
    return script_of(words).options


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout of a launch, as far as its JSON and its arguments say them."""
    notes = Notes(problems=list(launch.problems), strict=request.strict)
    job, layout = _read(notes, launch, request)
    return Reading(
        engine.RUNTIME, engine.COMMIT, job, layout, tuple(notes.fields), tuple(notes.problems)
    )


def _read(notes: Notes, launch: Launch, request: Request) -> tuple[Job | None, Layout | None]:
    if PurePosixPath(launch.program.text).name.startswith(MEGATRON):
        says = (
            "arguments of Megatron-DeepSpeed are not read: give its DeepSpeed configuration alone, "
            "with --model and --cluster, where it has neither tensor nor pipeline parallelism"
        )
        notes.problem("megatron_deepspeed", "unread", says, launch.program.place)
        return None, None
    keys = _keys(notes, launch, request)
    if keys is None:
        return None, None
    script, starter = script_of(launch.arguments), script_of(launch.starter_arguments).options
    filled = {name: starter[name] for name in (MIXED,) if name in starter}
    script = script._replace(options={**filled, **script.options})
    return job_of(keys, script, launch, request, engine.RUNTIME)


def job_of(
    keys: Keys, script: Script, launch: Launch, request: Request, runtime: str
) -> tuple[Job | None, Layout | None]:
    """What keys of the engine and arguments of a script say, for a runtime that has this engine."""
    notes = keys.notes
    engine.check_keys(keys)
    counted = is_counted(launch) or request.cluster is not None
    degrees = _degrees(keys, ranks_of(launch, request), counted=counted)
    model, length = model_of(notes, request, script, SWITCHES), sequence_of(notes, request, script)
    if degrees is None or model is None or length is None:
        return None, None
    batch = _batch(keys, script, degrees, request, all_stated=counted)
    if batch is None or not batch_fits(notes, batch.whole, length):
        return None, None
    cluster = cluster_of(notes, launch, request, degrees.ranks)
    if cluster is None:
        return None, None
    layout = _layout(keys, script, degrees, batch)
    check_offload(keys, layout, model)
    precision = _precision(keys, script)
    job = Job(
        model=model,
        training=TrainingSpec.model_validate(
            {
                "seq_length": length,
                "global_batch_size": batch.whole,
                "precision": precision,
                "optimizer": _optimizer(keys, script),
                "state_precision": _states(keys, precision),
            }
        ),
        cluster=cluster,
        runtime=runtime,
        options=_options(keys, layout, precision, model.hidden_size),
    )
    return job, layout


def _keys(notes: Notes, launch: Launch, request: Request) -> Keys | None:
    """Keys of the JSON; null, with a problem: there is none to read."""
    path = launch.program if launch.alone else _named(launch)
    if path is None:
        says = "the launch names no configuration of DeepSpeed, or its script has it: name a JSON"
        notes.problem("no_config", "unread", says, launch.program.place)
        return None
    text = text_of(notes, path, request)
    return None if text is None else engine.keys_of(notes, text, path.text)


def _named(launch: Launch) -> Word | None:
    options = _options_of(launch)
    values = (options[name][0] for name in OPTIONS if name in options)
    return next((value for value in values if value is not None), None)


class Degrees(NamedTuple):
    """Ranks along every dimension."""

    tp: int
    sp: int
    dp: int

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.tp * self.sp * self.dp


def _degrees(keys: Keys, ranks: int | None, *, counted: bool) -> Degrees | None:
    """Null: they do not fill the ranks, or it cannot be known; `counted`: are all ranks stated?"""
    tp, sp = max(1, keys.of(engine.TP)), keys.of(engine.SP)
    if ranks is None:
        whole, each, steps = map(keys.count, (engine.BATCH, engine.MICRO, engine.STEPS))
        if whole and each and steps and whole % (each * steps) == 0:
            ranks = whole // (each * steps) * sp  # the runtime counts the ranks of AutoTP here
        else:
            says = "the number of ranks is not stated: give it with --cluster"
            keys.notes.problem("world_size", "unread", says)
            return None
    if ranks % (tp * sp):
        says = f"autotp_size {tp} * sequence_parallel_size {sp} must divide the {ranks} ranks"
        keys.stops(
            "world_size", f"{says}: change one", engine.TP if tp > 1 else engine.SP, stated=counted
        )
        return None
    return Degrees(tp, sp, ranks // (tp * sp))


class Batch(NamedTuple):
    """Sequences."""

    micro: int
    steps: int
    whole: int
    """Of a step, over all replicas."""


def _batch(
    keys: Keys, script: Script, degrees: Degrees, request: Request, *, all_stated: bool
) -> Batch | None:
    """The triad, of which the runtime fills in what is missing; null: it stops."""
    counted = degrees.ranks // degrees.sp
    whole = keys.count(engine.BATCH)
    micro = _from_script(keys, script, engine.MICRO, MICROS, HF_MICRO)
    steps = _from_script(keys, script, engine.STEPS, ACCUMULATIONS, 1)
    if whole is None and micro is None:
        says = f"neither {engine.BATCH} nor {engine.MICRO} is given, or the script has it: give one"
        keys.problem("batch_size", "unread", says)
        return None
    if micro is None:
        assert whole is not None
        micro = whole // counted // (steps or 1)
        steps = steps or 1
    elif steps is None:
        steps = whole // micro // counted if whole else 1
    product = micro * steps * counted
    if not product or (whole is not None and whole != product):
        says = (
            f"{engine.BATCH} = {whole} is not {engine.MICRO} {micro} * {engine.STEPS} {steps} * "
            f"{counted} ranks: change one, or leave one of the three out"
        )
        # ranks that are cut by a degree which is not stated would leave fewer replicas
        cut = bool(whole and product and product % whole == 0) and degrees.ranks == degrees.dp
        every = all_stated and not cut
        keys.stops("micro_batch_divides_batch", says, engine.BATCH, engine.MICRO, stated=every)
        return None
    for key, names, used in ((engine.MICRO, MICROS, micro), (engine.STEPS, ACCUMULATIONS, steps)):
        entry = script.number(Notes(), *names)
        if entry is not None and entry.origin == "stated" and entry.value != used:
            says = f"{entry.written} of the command is not used, {key} is {used}: let both agree"
            keys.problem("script_differs", "unread", says, key)
    whole = micro * steps * degrees.dp
    if request.global_batch_size not in (None, whole):
        says = f"a step has {whole} sequences, not {request.global_batch_size}"
        keys.problem("asked_batch", "ignored", f"{says}: leave --global-batch-size out")
    keys.notes.note("training.global_batch_size", keys.entry(whole, engine.BATCH, engine.MICRO))
    return Batch(micro, steps, whole)


def _from_script(
    keys: Keys, script: Script, key: Option[int], arguments: tuple[str, ...], default: int
) -> int | None:
    """A number of the triad; `auto` is what the Trainer of transformers has."""
    if not keys.open(key):
        return keys.count(key)
    entry = script.number(keys.notes, *arguments)
    if entry is not None:
        assert isinstance(entry.value, int)
        return entry.value
    says = f'{key} = "auto" is filled in by the Trainer, taken as its default {default}: write it'
    keys.problem("auto_value", "unread", says, key)
    return default


def _precision(keys: Keys, script: Script) -> str:
    on = [name for name in engine.ENABLED if _switch(keys, script, name)]
    if len(on) == 2:
        says = "bf16 and fp16 are both enabled: enable one"
        keys.problem("two_precisions", "illegal", says, engine.ENABLED["fp16"])
    entry = keys.entry(on[0], engine.ENABLED[on[0]]) if on else FP32
    for name in () if on else engine.ENABLED:  # Accelerate fills in what the JSON does not have
        own = None if keys.has(engine.ENABLED[name]) else script.enabled(name)
        entry = own._replace(value=name) if own and own.value else entry
    keys.notes.note("training.precision", entry)
    return str(entry.value)


def _states(keys: Keys, precision: str) -> str:
    """All in bf16, or as the engine keeps them: masters and moments are in bf16 together.

    Source: deepspeedai/DeepSpeed runtime/config.py, _do_error_check: moments only with masters.
    """
    masters, moments = keys.of(engine.MASTERS), keys.of(engine.MOMENTS)
    if masters != moments or (masters and precision != "bf16"):
        says = (
            f"{engine.MASTERS} and {engine.MOMENTS} are priced together, in bf16 alone: priced "
            "without; set both or none"
        )
        if moments and not masters:
            keys.stops("narrow_states", says, engine.MASTERS, engine.MOMENTS)
        else:
            keys.problem("narrow_states", "unmodelled", says, engine.MASTERS)
    found = "bf16" if masters and moments and precision == "bf16" else "o0"
    keys.notes.note("training.state_precision", keys.entry(found, engine.MASTERS, engine.MOMENTS))
    return found


def _switch(keys: Keys, script: Script, name: str) -> bool:
    """`auto` is what an argument of the script says."""
    if keys.open(engine.ENABLED[name]) and (entry := script.enabled(name)) is not None:
        return bool(entry.value)
    others = [one for one in map(script.enabled, engine.ENABLED) if one and one.value]
    if keys.open(engine.ENABLED[name]) and others:  # a script has one of both
        return False
    return keys.of(engine.ENABLED[name])


def _layout(keys: Keys, script: Script, degrees: Degrees, batch: Batch) -> Layout:
    stage = keys.of(engine.STAGE)
    recompute = check_checkpoints(keys, script)
    tiles = {name: script.switch(flag.removeprefix("--")) for name, flag in SWITCHES.items()}
    layout = Layout.model_validate(
        {
            "tp": degrees.tp,
            "cp": degrees.sp,
            "dp": degrees.dp,
            "zero_stage": stage,
            "dp_replicate": _groups(keys, stage, degrees),
            "hpz": _second_copy(keys, stage, degrees),
            "micro_batch_size": batch.micro,
            "offload": offload_of(keys, stage, script),
            **{name: bool(one and one.value) for name, one in tiles.items()},
            **(FULL if recompute and recompute.value else {}),
        }
    )
    filled = script.number(keys.notes, *MICROS) if keys.open(engine.MICRO) else None
    entries = {
        "tp": keys.entry(None, engine.TP),
        "cp": keys.entry(None, engine.SP),
        "dp": Entry(None, "derived", "ranks / (tensor and sequence parallel ranks)"),
        "zero_stage": keys.entry(None, engine.STAGE),
        "dp_replicate": keys.entry(None, engine.MICS),
        "hpz": keys.entry(None, engine.HPZ),
        "micro_batch_size": filled or keys.entry(None, engine.MICRO, engine.BATCH),
        "offload": keys.entry(None, engine.RATIO, engine.DEVICE[engine.OPTIMIZER_STATES]),
        **{name: one for name, one in tiles.items() if one is not None},
        "recompute": recompute or Entry(None, "default", f"--{CHECKPOINTING}"),
    }
    note_layout(keys.notes, layout, entries)
    return layout


def _groups(keys: Keys, stage: int, degrees: Degrees) -> int:
    """Groups of neighbours among all ranks that share the states each (MiCS).

    Source: runtime/zero/mics_utils.py, _generate_mics_config and create_mics_comm_groups;
    runtime/zero/mics.py, _hierarchical_all_gather_params.
    """
    size = keys.of(engine.MICS)
    if stage != 3 or size < 1:
        return 1
    if degrees.ranks % size:
        says = f"{engine.MICS} = {size} must divide the {degrees.ranks} ranks: change it"
        keys.stops("replicas_divide_dp", says, engine.MICS)
        return 1
    if keys.of(engine.BY_NODE):
        says = f"{engine.BY_NODE}: weights gathered between nodes first are priced in one gather"
        keys.problem("not_priced", "unmodelled", says, engine.BY_NODE)
    copies = degrees.ranks // size
    if degrees.dp % copies:
        says = f"{engine.MICS} = {size} parts sequence ranks: priced over all ranks; raise it"
        keys.problem("not_priced", "unmodelled", says, engine.MICS)
        return 1
    return copies


def _second_copy(keys: Keys, stage: int, degrees: Degrees) -> int:
    """Ranks that share it; as many as share the first copy, or more, have none of their own.

    Source: runtime/zero/partition_parameters.py, _convert_to_deepspeed_param; utils/groups.py,
    _create_zero_param_parallel_group.
    """
    size = keys.of(engine.HPZ)
    if stage != 3 or size < 2:
        return 1
    if degrees.ranks % min(size, degrees.ranks):
        says = f"{engine.HPZ} = {size} must divide the {degrees.ranks} ranks: change it"
        keys.stops("second_copy_is_shared_by_fewer", says, engine.HPZ)
        return 1
    return size if size < degrees.dp * degrees.sp else 1


def _options(keys: Keys, layout: Layout, precision: str, hidden: int) -> RuntimeOptions:
    """Settings that differ from what the cost model takes of the runtime."""
    options: dict[str, object] = {}
    overlap = keys.of(engine.OVERLAP, layout.zero_stage == 3)
    if not overlap or layout.zero_stage == 0:
        options["overlap_grad_reduce"] = False
    if keys.of(engine.TP_OVERLAP) and layout.tp > 1:
        options["overlap_tp_comm"] = True
    for (name, key), bits in zip(engine.QUANTISED.items(), BITS, strict=True):
        if keys.of(key) and layout.zero_stage == 3:
            options[name] = bits
    gradients = keys.of(engine.GRADIENTS)
    if gradients in ("fp32", "bf16"):
        options["gradient_dtype"] = gradients
    _check_messages(keys, layout.cp, gradients, precision)
    if (size := _bucket(keys, hidden)) != engine.USUAL_BUCKET and layout.zero_stage:
        wide = gradients == "fp32" or precision in FULL_WIDTH
        options["bucket_mb"] = size * (BYTES_FP32 if wide else BYTES_BF16) / 2**20
    for name, value in options.items():
        keys.notes.note(f"options.{name}", keys.entry(value, OF_OPTIONS[name]))
    return RuntimeOptions.model_validate(options)


BITS = (8, 4)
"""Of weights and of gradients. Source: runtime/zero/partition_parameters.py, CUDAQuantizer, and
runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce."""


def _bucket(keys: Keys, hidden: int) -> int:
    """Gradients of a bucket; the Trainer fills in as many as a square matrix of the model has.

    Source: huggingface/transformers @v5.24.0 `integrations/deepspeed.py`, trainer_config_finalize.
    """
    return hidden**2 if keys.open(engine.BUCKET) else keys.of(engine.BUCKET) or engine.USUAL_BUCKET


OF_OPTIONS: Mapping[str, Option[bool] | Option[str] | Option[int]] = {
    "bucket_mb": engine.BUCKET,
    "overlap_grad_reduce": engine.OVERLAP,
    "overlap_tp_comm": engine.TP_OVERLAP,
    "gradient_dtype": engine.GRADIENTS,
    **engine.QUANTISED,
}


def _optimizer(keys: Keys, script: Script) -> str:
    """The optimizer of the file, or of the script where the file names none.

    Source: runtime/config.py, get_optimizer_name, which takes names in any case.
    """
    word = keys.of(engine.OPTIMIZER)
    if not keys.has(engine.OPTIMIZER) or word == "auto":
        own = optimizer_of(keys.notes, script, OPTIMIZERS.values())
        if own is not None:
            keys.notes.note("training.optimizer", own)
            return str(own.value)
    name = OPTIMIZERS.get(word.lower(), "adamw")
    if word.lower() not in OPTIMIZERS and word != "auto":
        keys.problem(
            "optimizer", "unmodelled", f"optimizer {word} is priced as AdamW", engine.OPTIMIZER
        )
    keys.notes.note("training.optimizer", keys.entry(name, engine.OPTIMIZER))
    return name


def _check_messages(keys: Keys, cp: int, gradients: str, precision: str) -> None:
    """Gradients travel as they are kept? Where sequences are cut the engine has another key."""
    kept, key, messages = gradients, engine.MESSAGES, keys.of(engine.MESSAGES)
    if cp > 1:
        kept = gradients or {"tf32": "fp32"}.get(precision, precision)
        key, messages = engine.SEQUENCE_MESSAGES, keys.of(engine.SEQUENCE_MESSAGES)
    if messages != kept:
        says = (
            f"gradients kept in {kept or 'their own type'} travel as "
            f"{messages or 'the weights'}, which is priced as kept"
        )
        keys.problem("message_type", "unmodelled", f"{says}: set {key} to the same", key)


DEEPSPEED = Reader(engine.RUNTIME, recognises, read)
