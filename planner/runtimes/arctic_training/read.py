"""arctic-training: the YAML of Snowflake's trainer, whose engine is DeepSpeed.

Source of the rules: snowflakedb/ArcticTraining at the commit of its exporter, below
`arctic_training`: `config/trainer.py` (build_deepspeed_config: what the trainer writes over the
section), `config/base.py` (keys that are not known stop it) and `trainer/sft_trainer.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

import yaml

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles
from trainplan.planner.runtimes.arctic_training.write import COMMIT
from trainplan.planner.runtimes.compare import recorded_flags
from trainplan.planner.runtimes.deepspeed.read import job_of
from trainplan.planner.runtimes.deepspeed.read_json import keys_of
from trainplan.planner.runtimes.deepspeed.read_offload import SECTION
from trainplan.planner.runtimes.deepspeed.write_offload import SWITCH
from trainplan.planner.runtimes.reading import Asked, Reader, Reading
from trainplan.planner.runtimes.training_script.read import (
    CHECKPOINTING,
    Notes,
    Said,
    Script,
    script_of,
    text_of,
)
from trainplan.planner.shell import Launch, Place, Word

RUNTIME = "arctic-training"
PROGRAMS = ("arctic_training_run", "arctic_training")
WRITTEN_OVER = {
    "train_micro_batch_size_per_gpu": ("micro_batch_size", 1),
    "gradient_accumulation_steps": ("gradient_accumulation_steps", 1),
    "sequence_parallel_size": ("sequence_parallel_size", 1),
}
"""Keys of the engine, the trainer's own for them, and what these are where nothing is said."""
TRAINERS = ("sft", "causal")
"""Those with the usual loss, whose keys are known."""
PRECISIONS = {
    **dict.fromkeys(("bf16", "bfloat16", "bfloat", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
}
"""Source: `config/enums.py`, DType."""


def recognises(launch: Launch) -> bool:
    """By its program."""
    return PurePosixPath(launch.program.text).name in PROGRAMS


def read(launch: Launch, asked: Asked) -> Reading:
    """The job and the layout of a launch, as far as its YAML says them."""
    notes = Notes(problems=list(launch.problems))
    job, layout = _read(notes, launch, asked)
    return Reading(RUNTIME, COMMIT, job, layout, tuple(notes.fields), tuple(notes.problems))


def _read(notes: Notes, launch: Launch, asked: Asked) -> tuple[Job | None, Layout | None]:
    path = _path(launch)
    text = text_of(notes, path, asked)
    config = None if text is None else _mapping(notes, text, path.text)
    if config is None:
        return None, None
    _check(notes, config, path.text)
    keys = keys_of(notes, json.dumps(_engine(config), default=str), path.text)
    if keys is None:
        return None, None
    keys.lines = {}  # of the text that was made here
    job, layout = job_of(keys, _script(config, path), launch, asked, RUNTIME)
    if job is None or layout is None:
        return job, layout
    if _section(config, "model").get("type") == "liger":
        job = job.model_copy(update={"options": job.options.model_copy(update={"liger": "0.6"})})
        notes.note("options.liger", Said("0.6", "derived", "model.type: liger"))
    return job, _tiled(notes, config, job, layout)


def _path(launch: Launch) -> Word:
    """The YAML: told by an option to the program of a rank, as the last word to its starter."""
    value = script_of(launch.arguments).options.get("config", (None,))[0]
    plain = [word for word in launch.arguments if word.text.endswith((".yml", ".yaml"))]
    return value or (plain[-1] if plain else launch.program)


def _mapping(notes: Notes, text: str, file: str) -> Mapping[str, object] | None:
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        says = f"{file} is no YAML: {' '.join(str(error).split())[:200]}: correct it"
        notes.problem("unread_config", "illegal", says, Place(file, None))
        return None
    if isinstance(config, dict):
        return {str(name): value for name, value in config.items()}
    says = f"{file} holds no keys: name the configuration of the trainer"
    notes.problem("unread_config", "illegal", says, Place(file, None))
    return None


def _section(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}


def _check(notes: Notes, config: Mapping[str, object], file: str) -> None:
    """Keys that stop the trainer, and what has no price."""
    known, where = recorded_flags(RUNTIME), Place(file, None)
    kind = config.get("type", "sft")
    if kind not in TRAINERS:
        says = f"type {str(kind)[:40]}: priced as one of {', '.join(TRAINERS)}, its keys left out"
        notes.problem("trainer_type", "unmodelled", says, where)
    for name in config if kind in TRAINERS else ():
        if f"--{name}" not in known:
            says = f"{name[:60]} is no key of ArcticTraining, which stops it: correct or delete it"
            notes.problem("unknown_key", "illegal", says, where)
    for name in ("expert_parallel_size", "arctic_moe"):
        if config.get(name) not in (None, 1, False):
            says = f"{name}: experts on ranks of their own are not priced: the price is without"
            notes.problem("not_priced", "unmodelled", says, where)
    if _section(config, "model").get("peft_config"):
        says = "model.peft_config: adapters are not priced: the price trains every weight"
        notes.problem("not_priced", "unmodelled", says, where)


def _engine(config: Mapping[str, object]) -> dict[str, object]:
    """The section as the trainer hands it to the engine."""
    engine = dict(_section(config, "deepspeed"))
    engine |= {key: config.get(own, usual) for key, (own, usual) in WRITTEN_OVER.items()}
    precision = PRECISIONS.get(str(_section(config, "model").get("dtype", "bf16")))
    if precision and precision not in engine:
        engine[precision] = {"enabled": True}
    engine.setdefault("zero_optimization", {"stage": 2})
    if config.get("activation_checkpoint_cpu_offload") is True:
        engine[SECTION] = {"cpu_checkpointing": True}
    return engine


def _script(config: Mapping[str, object], path: Word) -> Script:
    """What the trainer does, in words of a script of one's own."""
    length = _section(config, "data").get("max_length")
    told: dict[str, tuple[Word | None, Word]] = {}
    if isinstance(length, int):
        told["max_length"] = Word(str(length), path.place), Word("max_length", path.place)
    if not _section(config, "model").get("disable_activation_checkpoint"):
        offloads = config.get("activation_checkpoint_cpu_offload") is True
        flag = SWITCH.removeprefix("--") if offloads else CHECKPOINTING
        told[flag] = None, Word(flag, path.place)
    return Script(told)


def _tiled(notes: Notes, config: Mapping[str, object], job: Job, layout: Layout) -> Layout:
    """With sequence ranks the loss is tiled whatever is said, if there are several tiles."""
    several = bool(loss_tiles(job, LayoutTable.of([layout]))[0] > 1)
    loss = several and (job.options.liger is not None or layout.cp > 1)
    mlp = config.get("tiled_mlp_compute") is True
    notes.fields = [one for one in notes.fields if not one.name.startswith("layout.tiled_")]
    notes.note("layout.tiled_loss", Said(loss, "derived", "model.type, sequence_parallel_size"))
    notes.note("layout.tiled_mlp", Said(mlp, "stated" if mlp else "default", "tiled_mlp_compute"))
    return layout.model_copy(update={"tiled_loss": loss, "tiled_mlp": mlp})


ARCTIC_TRAINING = Reader(RUNTIME, recognises, read)
