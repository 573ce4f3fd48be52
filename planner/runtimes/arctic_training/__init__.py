"""arctic-training: Snowflake's trainer, whose YAML holds the section of DeepSpeed's engine.

What is here is what differs from DeepSpeed. Source: snowflakedb/ArcticTraining, commit `COMMIT`,
`arctic_training/config/trainer.py` (which refuses keys it does not know, and writes batches,
precision and sequence ranks into the section by itself) and the other files of that folder,
`data/hf_source.py`, `data/hf_causal_source.py`, `optimizer/adam_factory.py`,
`model/liger_factory.py` and `trainer/sft_trainer.py`. That its own tiled loss leaves a gradient
undivided was seen on deepspeedai/DeepSpeed 0.19.8, `runtime/sequence_parallel/ulysses_sp.py`,
TiledFusedLogitsLoss.backward, called as there: 32 times as large with 32 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

import yaml

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes.arctic_training import ARCTIC_TRAINING as TRAITS
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles
from trainplan.planner.runtimes.config import (
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
    one_line,
    option,
    steps_of,
    summary,
    with_traits,
)
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.offload import SWITCH, drive_variables, filled_in
from trainplan.planner.runtimes.deepspeed.read import job_of
from trainplan.planner.runtimes.deepspeed.write import DEEPSPEED, WRITTEN, engine_keys, refuse_types
from trainplan.planner.runtimes.keys import Entry, Notes, Option, T, flat, nested, yaml_mapping
from trainplan.planner.runtimes.reading import Asked, Reader, Reading
from trainplan.planner.runtimes.recorded import recorded
from trainplan.planner.runtimes.training_script.read import (
    CHECKPOINTING,
    Script,
    script_of,
    text_of,
)
from trainplan.planner.runtimes.training_script.write import accumulated, refuse
from trainplan.planner.shell import Launch, Place, Word

COMMIT = "b28638e6c577ece34cc147ab3d45d27a7f66b33b"
"""ArcticTraining commit whose keys these are (0.8.1.dev0)."""
CHECKED = "20 plans were taken by this commit's own classes of configuration (no GPU)"
RECORDED = "arctic_training/options.json"
PROGRAMS = ("arctic_training_run", "arctic_training")
REQUIRED = (
    RequiredVariable("MODEL", "the model, as transformers takes it: a name or a folder"),
    RequiredVariable(
        "DATA_FILES", "files of JSON lines with the column text; a pattern may name several"
    ),
)
FILLED_IN = tuple(
    zip(("name_or_path", "data_files"), (UserVariable(one.name) for one in REQUIRED), strict=True)
)

KIND, SECTION = Option("type", "sft"), "deepspeed"
MICRO, STEPS = Option("micro_batch_size", 1), Option("gradient_accumulation_steps", 1)
SP = Option("sequence_parallel_size", 1)
CHECKPOINTS = Option("activation_checkpoint_cpu_offload", default=False)
TILED_MLP = Option("tiled_mlp_compute", default=False)
MODEL, DTYPE = Option("model.type", "huggingface"), Option("model.dtype", "bf16")
KEEPS = Option("model.disable_activation_checkpoint", default=False)
LENGTH = Option("data.max_length", -1)
WRITTEN_OVER: Mapping[Option[int], Option[int]] = {
    engine.MICRO: MICRO, engine.STEPS: STEPS, engine.SP: SP,
}  # fmt: skip
"""Keys of the engine, and the trainer's own for them."""
WRITTEN_BY_ITSELF = ("optimizer", "bf16", "fp16", engine.BATCH.name, engine.CLIPPING.name)
TRAINERS = ("sft", "causal")
"""Those with the usual loss, whose keys are known."""
PRECISIONS = {
    **dict.fromkeys(("bf16", "bfloat16", "bfloat", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
}
"""Source: `config/enums.py`, DType."""


@with_traits
def export_arctic_training(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """The YAML of one layout.

    Raises:
        UnsupportedError: The layout or an option has no key.
    """
    if feature := TRAITS.refuses(job.model):
        raise UnsupportedError(f"arctic-training does not train {feature}: use another runtime")
    refuse(job, layout, {**WRITTEN, "liger": ("0.6",)}, traits)
    refuse_types(job, layout)
    if job.training.precision == "tf32":
        raise UnsupportedError("arctic-training: tf32 is no dtype of its models: use bf16 or fp16")
    config, filled = _config(job, layout, traits), (*FILLED_IN, *filled_in(layout))
    head = (
        f"Written by `plan export` for ArcticTraining {COMMIT}.",
        f"checked: {CHECKED}",
        *summary(job, layout),
    )
    text = yaml.safe_dump(config, sort_keys=False)
    for key, variable in filled:  # in double quotes, which the launch script writes over
        text = text.replace(f"{key}: {variable.name}\n", f'{key}: "{variable.name}"\n')
    text = "".join(f"# {one_line(line)}\n" for line in head) + text
    file = ConfigFile("arctic_training.yaml", text, filled)
    return LaunchConfig(
        runtime=TRAITS.name,
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=(),
        required_environment=(*REQUIRED, *drive_variables(layout)),
        entry_point=ModuleEntry("arctic_training", PROGRAMS[0]),
        arguments=(option("layout", "--config", file),),
        notes=tuple(_notes(job, layout)),
        files=(file,),
        keys=tuple(flat(config)),
    )


def _config(job: Job, layout: Layout, traits: RuntimeTraits) -> dict[str, object]:
    files = {FILLED_IN[1][0]: FILLED_IN[1][1].name}
    source = {"type": "huggingface_causal", "name_or_path": "json", "kwargs": files}
    sections = {str(key): value for key, value in engine_keys(job, layout, traits).items()}
    own = (*WRITTEN_BY_ITSELF, engine.CHECKPOINTING, *map(str, WRITTEN_OVER))
    left = [key for key in sections if not key.startswith(own)]
    left.sort(key=lambda key: not key.startswith(engine.ZERO))
    return nested(
        {
            KIND: "causal",
            MICRO: layout.micro_batch_size,
            STEPS: accumulated(job, layout),
            SP: layout.cp,
            CHECKPOINTS: True if layout.offload.checkpoints else None,
            TILED_MLP: True if layout.tiled_mlp else None,
            "train_iters": steps_of(job),
            MODEL: "liger" if job.options.liger else MODEL.default,
            f"model.{FILLED_IN[0][0]}": FILLED_IN[0][1].name,
            DTYPE: job.training.precision,
            "model.attn_implementation": "flash_attention_2",
            KEEPS: layout.recompute != "full",
            "data.sources": [source],
            LENGTH: job.training.seq_length,
            "optimizer.type": "cpu_adam" if layout.offload.optimizer else "fused_adam",
            "optimizer.learning_rate": 3e-4,
            "optimizer.betas": [0.9, 0.95],
            "optimizer.weight_decay": 0.1,
            **{f"{SECTION}.{key}": sections[key] for key in left},
        }
    )


def _notes(job: Job, layout: Layout) -> Iterator[str]:
    yield (
        "MODEL and DATA_FILES are written into the file; the shape of the model is not: it has to "
        f"be {job.model.name}"
    )
    yield "optimizer, learning rate and betas are common values: change them freely"
    yield (
        "the trainer packs documents into rows and starts their positions anew: attention then "
        "costs what --lengths prices, and less than of whole rows"
    )
    if not job.training.tokens:
        yield f"the job has no number of tokens: train_iters {steps_of(job)} is a placeholder"
    if layout.tiled_loss and not job.options.liger:
        yield (
            "the trainer tiles the loss by TiledFusedLogitsLoss, which leaves the gradient of the "
            "output projection undivided by the tokens: --option liger=0.6 does not"
        )


def read(launch: Launch, asked: Asked) -> Reading:
    """The job and the layout of a launch, as far as its YAML says them."""
    notes = Notes(problems=list(launch.problems))
    job, layout = _read(notes, launch, asked)
    return Reading(TRAITS.name, COMMIT, job, layout, tuple(notes.fields), tuple(notes.problems))


def _read(notes: Notes, launch: Launch, asked: Asked) -> tuple[Job | None, Layout | None]:
    path = _path(launch)
    text = text_of(notes, path, asked)
    instead = "name the configuration of the trainer"
    config = None if text is None else yaml_mapping(notes, text, path.text, instead)
    if config is None:
        return None, None
    _check(notes, config, Place(path.text, None))
    sections = json.loads(json.dumps(_engine(config), default=str))
    keys = engine.engine_keys(notes, sections, path.text)
    job, layout = job_of(keys, _script(config, path), launch, asked, TRAITS.name)
    if job is None or layout is None:
        return job, layout
    if _of(config, MODEL) == "liger":
        job = job.model_copy(update={"options": job.options.model_copy(update={"liger": "0.6"})})
        notes.note("options.liger", Entry("0.6", "derived", f"{MODEL}: liger"))
    return job, _tiled(notes, config, job, layout)


def _path(launch: Launch) -> Word:
    """The YAML: an option of the program of a rank, or the last word for its starter."""
    value = script_of(launch.arguments).options.get("config", (None,))[0]
    plain = [word for word in launch.arguments if word.text.endswith((".yml", ".yaml"))]
    return value or (plain[-1] if plain else launch.program)


def _of(config: Mapping[str, object], key: Option[T]) -> T:
    """The value of a key, unchecked, or its default."""
    section: object = config
    for name in key.name.split("."):
        if not isinstance(section, Mapping) or name not in section:
            return key.default
        section = section[name]
    return section  # type: ignore[return-value]


def _check(notes: Notes, config: Mapping[str, object], where: Place) -> None:
    """Keys that stop the trainer, and what has no price."""
    kind, known = _of(config, KIND), recorded(RECORDED)
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
    if _of(config, Option("model.peft_config", default=False)):
        says = "model.peft_config: adapters are not priced: the price trains every weight"
        notes.problem("not_priced", "unmodelled", says, where)


def _engine(config: Mapping[str, object]) -> dict[str, object]:
    """The section as the trainer hands it to the engine."""
    section = config.get(SECTION)
    sections = dict(section) if isinstance(section, dict) else {}
    sections |= {str(key): _of(config, own) for key, own in WRITTEN_OVER.items()}
    precision = PRECISIONS.get(str(_of(config, DTYPE)))
    if precision and precision not in sections:
        sections[precision] = {"enabled": True}
    sections.setdefault(engine.ZERO, {"stage": 2})
    if _of(config, CHECKPOINTS) is True:
        sections |= nested({engine.CHECKPOINTS: True})
    return sections


def _script(config: Mapping[str, object], path: Word) -> Script:
    """What the trainer does, in words of a script of one's own."""
    options: dict[str, tuple[Word | None, Word]] = {}
    length: object = _of(config, LENGTH)
    if isinstance(length, int) and length != LENGTH.default:
        options["max_length"] = Word(str(length), path.place), Word("max_length", path.place)
    if not _of(config, KEEPS):
        offloads = _of(config, CHECKPOINTS) is True
        flag = SWITCH.removeprefix("--") if offloads else CHECKPOINTING
        options[flag] = None, Word(flag, path.place)
    return Script(options)


def _tiled(notes: Notes, config: Mapping[str, object], job: Job, layout: Layout) -> Layout:
    """With sequence ranks the loss is tiled whatever is said, if there are several tiles."""
    several = bool(loss_tiles(job, LayoutTable.of([layout]))[0] > 1)
    loss = several and (job.options.liger is not None or layout.cp > 1)
    mlp = _of(config, TILED_MLP) is True
    notes.fields = [one for one in notes.fields if not one.name.startswith("layout.tiled_")]
    notes.note("layout.tiled_loss", Entry(loss, "derived", f"{MODEL}, {SP}"))
    notes.note("layout.tiled_mlp", Entry(mlp, "stated" if mlp else "default", str(TILED_MLP)))
    return layout.model_copy(update={"tiled_loss": loss, "tiled_mlp": mlp})


EXPORTER = replace(
    DEEPSPEED,
    runtime=TRAITS.name,
    export=export_arctic_training,
    packs="the trainer packs by itself, with position_ids that start anew with each document",
    writes=DEEPSPEED.writes - {"tp"},
    optimizers=frozenset({"adamw"}),
    trains=frozenset(),
    source_patterns=(
        "arctic_training/config/trainer.py",
        "arctic_training/config/*.py",
        "arctic_training/entrypoint.py",
        "arctic_training/data/hf*_source.py",
        "arctic_training/data/causal_factory.py",
    ),
    recorded_flags=RECORDED,
    of_others=frozenset(),
)
READER = Reader(
    TRAITS.name, lambda launch: PurePosixPath(launch.program.text).name in PROGRAMS, read
)
