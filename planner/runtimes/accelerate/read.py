"""accelerate: its YAML, alone or named by `accelerate launch`, or the variables set for torchrun.

Source of the rules: huggingface/accelerate at the commit of `planner.runtimes.accelerate`, below
`src/accelerate`: `parallelism_config.py`, `utils/dataclasses.py` (FullyShardedDataParallelPlugin)
and `accelerator.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from trainplan.costmodel.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.accelerate.read_checks import kind_is_read
from trainplan.planner.runtimes.accelerate.read_keys import (
    BACKEND,
    CP,
    ENGINE_FILE,
    EXCHANGE,
    PARTS,
    POLICY,
    PRECISION,
    REPLICATE,
    RUNTIME,
    SHARD,
    SP,
    STRATEGY,
    TP,
    VERSION,
    Keys,
    keys_of,
)
from trainplan.planner.runtimes.accelerate.write import COMMIT, STRATEGIES, SWITCHES
from trainplan.planner.runtimes.deepspeed.read import DEEPSPEED
from trainplan.planner.runtimes.ranks import ranks_of
from trainplan.planner.runtimes.reading import Asked, Origin, Reader, Reading
from trainplan.planner.runtimes.training_script.read import (
    ACCUMULATED,
    CHECKPOINTING,
    FP32,
    FULL,
    MICRO,
    Notes,
    Said,
    Script,
    batch_fits,
    cluster_of,
    model_of,
    note_layout,
    script_of,
    sequence_of,
)
from trainplan.planner.shell import COMMAND_LINE, Launch, Word

SYNC = "GradientAccumulationPlugin(sync_each_batch=True)"
"""Shards gradients after every micro batch, as priced; else they are accumulated whole. Source:
`accelerator.py`, no_sync, set_requires_gradient_sync."""
STAGES = {"FULL_SHARD": 3, "1": 3, "SHARD_GRAD_OP": 2, "2": 2, "HYBRID_SHARD": 3, "4": 3,
          "HYBRID_SHARD_ZERO2": 2, "5": 2}  # fmt: skip
"""Of FSDP1. Source: utils/constants.py, FSDP_SHARDING_STRATEGY."""


def recognises(launch: Launch) -> bool:
    """By its starter, by the variables it sets, or as a YAML alone."""
    if launch.starter == "file":
        return launch.program.text.lower().endswith((".yaml", ".yml"))
    return launch.starter == RUNTIME or SWITCHES[0] in launch.environment


def read(launch: Launch, asked: Asked) -> Reading:
    """The job and the layout of a launch, as far as its keys and its arguments say them.

    Where its YAML names a JSON of DeepSpeed, these are what that engine takes.
    """
    notes = Notes(problems=list(launch.problems))
    if (engine := _engine(launch, asked)) is not None:
        return DEEPSPEED.read(engine, asked)
    job, layout = _read(notes, launch, asked)
    return Reading(RUNTIME, COMMIT, job, layout, tuple(notes.fields), tuple(notes.problems))


def _engine(launch: Launch, asked: Asked) -> Launch | None:
    """The launch with the options of `accelerate launch` that its YAML stands for.

    Source: commands/launch.py, _validate_launch_command, deepspeed_config_file.
    """
    keys = keys_of(Notes(), launch, asked)
    if keys is None or ENGINE_FILE not in keys.told:
        return None
    file = keys.told[ENGINE_FILE]
    words = (Word("--deepspeed_config_file", COMMAND_LINE), Word(str(file.value), COMMAND_LINE))
    counts = (keys.told.get("num_processes"), keys.told.get("num_machines"))
    ranks, nodes = (one and Word(str(one.value), COMMAND_LINE) for one in counts)
    return replace(
        launch,
        starter="accelerate",
        starter_arguments=(*launch.starter_arguments, *words),
        ranks=launch.ranks or ranks,
        nodes=launch.nodes or nodes,
    )


def _read(notes: Notes, launch: Launch, asked: Asked) -> tuple[Job | None, Layout | None]:
    keys, script = keys_of(notes, launch, asked), script_of(launch.arguments)
    if keys is None or not kind_is_read(keys):
        return None, None
    ranks = keys.count("num_processes", 1) if "num_processes" in keys.told else None
    degrees = _degrees(keys, ranks or ranks_of(launch, asked))
    model, length = model_of(notes, asked), sequence_of(notes, asked, script)
    if degrees is None or model is None or length is None:
        return None, None
    batch = _batch(notes, script, degrees, asked)
    if batch is None or not batch_fits(notes, batch[1], length):
        return None, None
    cluster = cluster_of(notes, launch, asked, degrees.ranks)
    if cluster is None:
        return None, None
    job = Job(
        model=model,
        training=TrainingSpec.model_validate(
            {
                "seq_length": length,
                "global_batch_size": batch[1],
                "precision": _precision(keys),
            }
        ),
        cluster=cluster,
        runtime=RUNTIME,
        options=_options(keys, degrees),
    )
    return job, _layout(keys, script, degrees, batch[0])


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


def _degrees(keys: Keys, ranks: int | None) -> Degrees | None:
    """Degrees that fill the ranks; null: the runtime stops, or it cannot be known."""
    if keys.count(SP, 1) > 1:
        says = "sequence parallelism of Accelerate needs DeepSpeed: use cp_size, or DeepSpeed"
        keys.problem("sequence_parallel_backend", "illegal", says, SP)
        return None
    degrees = Degrees(*(keys.count(key, 1) for key in (REPLICATE, SHARD, TP, CP)))
    if degrees.ranks == 1:
        if ranks is None:
            says = "the number of ranks is not told: give num_processes or --cluster"
            keys.problem("world_size", "unread", says)
            return None
        return Degrees(1, ranks, 1, 1)
    if ranks is not None and degrees.ranks != ranks:
        says = (
            f"dp_replicate {degrees.replicate} * dp_shard {degrees.shard} * tp {degrees.tp} * cp "
            f"{degrees.cp} is not the {ranks} ranks: change one"
        )
        keys.problem("world_size", "illegal", says, SHARD)
        return None
    return degrees


def _batch(notes: Notes, script: Script, degrees: Degrees, asked: Asked) -> tuple[int, int] | None:
    """Sequences of a micro batch and of a step; null: they do not go together."""
    micro = script.number(notes, MICRO) or Said(1, "assumed", f"--{MICRO}")
    steps = script.number(notes, ACCUMULATED)
    assert isinstance(micro.value, int)
    at_once = micro.value * degrees.dp
    whole, given = asked.global_batch_size, steps.value if steps else None
    if whole is None:
        whole = at_once * (given if isinstance(given, int) else 1)
    if whole % at_once or (given is not None and whole != at_once * int(str(given))):
        says = (
            f"{whole} sequences of a step are not {micro.value} of a micro batch * {degrees.dp} "
            f"replicas * {'some' if given is None else given} accumulated: change one"
        )
        notes.problem("micro_batch_divides_batch", "illegal", says, micro.place)
        return None
    if whole > at_once:
        notes.note("training.sync_each_batch", Said(value=True, origin="assumed", written=SYNC))
    notes.note("layout.micro_batch_size", micro)
    known = asked.global_batch_size is None and steps is not None
    origin: Origin = "derived" if known and micro.origin == "stated" else "assumed"
    notes.note("training.global_batch_size", Said(whole, origin, f"--{ACCUMULATED}"))
    return micro.value, whole


def _precision(keys: Keys) -> str:
    told = keys.text(PRECISION, "no").lower()
    if told in ("no", "false", "fp32"):  # YAML: no is false
        keys.notes.note("training.precision", FP32)
        return str(FP32.value)
    precision = told
    if precision == "fp8":
        says = "fp8 of Accelerate depends on a recipe of the script: priced as bf16"
        keys.problem("fp8", "unmodelled", says, PRECISION)
        precision = "bf16"
    elif precision not in ("bf16", "fp16"):
        says = f"mixed_precision {told[:40]!r}: use no, bf16, fp16 or fp8"
        keys.problem("mixed_precision", "illegal", says, PRECISION)
        precision = "bf16"
    keys.notes.note("training.precision", keys.said(precision, PRECISION))
    return precision


def _options(keys: Keys, degrees: Degrees) -> RuntimeOptions:
    """Settings that differ from what the cost model takes of the runtime."""
    told: dict[str, object] = {}
    if keys.text(BACKEND, "no").lower() not in ("no", "eager", "false"):
        told["compile"] = True
        keys.notes.note("options.compile", keys.said(told["compile"], BACKEND))
    strategy = keys.text(EXCHANGE, "allgather")
    names = {written: ours for ours, written in STRATEGIES.items()}
    if degrees.cp > 1 and strategy not in names:
        says = f"cp_comm_strategy {strategy[:40]!r}: use {' or '.join(names)}"
        keys.problem("cp_comm_strategy", "illegal", says, EXCHANGE)
    elif degrees.cp > 1 and strategy != "allgather":
        told["cp_comm_type"] = names[strategy]
        keys.notes.note("options.cp_comm_type", keys.said(names[strategy], EXCHANGE))
    return RuntimeOptions.model_validate(told)


def _stage(keys: Keys) -> int:
    """ZeRO stage of a policy of FSDP2, or of a strategy of FSDP1."""
    if keys.text("distributed_type", "NO") == "MULTI_GPU":
        return 2
    if keys.count(VERSION, 1) == 2:
        return 3 if keys.flag(POLICY, default=True) else 2
    strategy = keys.text(STRATEGY, keys.text(POLICY, "FULL_SHARD")).upper()
    return STAGES.get(strategy, 3)


def _layout(keys: Keys, script: Script, degrees: Degrees, micro: int) -> Layout:
    recompute = script.switch(CHECKPOINTING)
    full = (recompute is not None and recompute.value) or keys.flag(PARTS, default=False)
    layout = Layout.model_validate(
        {
            "tp": degrees.tp,
            "cp": degrees.cp,
            "dp": degrees.dp,
            "dp_replicate": degrees.replicate,
            "zero_stage": _stage(keys),
            "micro_batch_size": micro,
            **(FULL if full else {}),
        }
    )
    said = {
        "tp": keys.said(None, TP),
        "cp": keys.said(None, CP),
        "dp": keys.said(None, SHARD, REPLICATE),
        "dp_replicate": keys.said(None, REPLICATE),
        "zero_stage": keys.said(None, POLICY, STRATEGY),
        "recompute": recompute or keys.said(None, PARTS),
    }
    note_layout(keys.notes, layout, said)
    return layout


ACCELERATE = Reader(RUNTIME, recognises, read)
