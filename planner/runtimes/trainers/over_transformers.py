"""Files of trainers over the Trainer of transformers: one table each, `hf_trainers/tables`.

What shards below them is what the exporter of the plan's runtime writes: the section of DeepSpeed
stands in the trainer's file, variables of Accelerate in the script. Each argument that this writes
for a script is written in the trainer's words.

Source of what the Trainer does with them: huggingface/transformers `training_args.py`,
`trainer_pt_utils.py` (AcceleratorConfig) and `integrations/deepspeed.py` (trainer_config_process:
what a section leaves as "auto" is filled in from arguments, and what differs from them raises).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import yaml

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import (
    Argument,
    ConfigFile,
    Group,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
    Value,
    one_line,
    option,
    steps_of,
)
from trainplan.planner.runtimes.accelerate import keys as mesh
from trainplan.planner.runtimes.accelerate.write import FILE as MESH_FILE
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.write import FILE as ENGINE_FILE
from trainplan.planner.runtimes.deepspeed.write import OPTIMIZER_VALUES
from trainplan.planner.runtimes.exporter import with_traits
from trainplan.planner.runtimes.hf_trainers.tables import Settings, Table, Writes
from trainplan.planner.runtimes.keys import flat
from trainplan.planner.runtimes.registry import EXPORTERS
from trainplan.planner.runtimes.trainers.refusals import always, is_narrow, lacking
from trainplan.planner.runtimes.trainers.trainer import Trainer
from trainplan.planner.runtimes.training_script import trained
from trainplan.planner.runtimes.training_script.read import ACCUMULATED, CHECKPOINTING, MICRO
from trainplan.planner.runtimes.training_script.write import (
    SCRIPT,
    accumulated,
    model_called,
)

RUNTIMES = (mesh.RUNTIME, engine.RUNTIME)
NAME, LENGTH, ENGINE = "model_name_or_path", "max_length", "deepspeed"
SAVES = 500
"""Steps between checkpoints."""
WEIGHTS = RequiredVariable("MODEL", "the model: a name on Hugging Face, or its folder")
FILLED_IN = ("lr", "betas", "eps", "weight_decay")
"""Values of an optimizer that the section takes from arguments."""
FILES = (ENGINE_FILE, trained.FILE, MESH_FILE)
"""Those of exporters that are read, or stand in the trainer's own."""


def over_transformers(table: Table) -> Trainer:
    """The trainer of a table."""
    assert table.writes is not None
    write = partial(_export, table=table, writes=table.writes)
    return Trainer(table.title, table.writes.commit, RUNTIMES, write, always)


@with_traits
def _export(
    job: Job, traits: RuntimeTraits, layout: Layout, *, table: Table, writes: Writes
) -> LaunchConfig:
    """The file of one layout, and what starts it.

    Raises:
        UnsupportedError: The trainer has no word for a setting.
        PlanError: As the exporter of the runtime.
    """
    for reason in lacking(job, layout, table, writes):
        raise UnsupportedError(f"{table.title} {reason}")
    base = EXPORTERS[job.runtime](job, layout)
    for file in base.files:
        if file.name not in FILES:
            raise UnsupportedError(f"{table.title} calls no {file.name}: leave --trainer out")
    variables = {key: _variable(text) for key, text in writes.data.items()}
    called = model_called(job)
    if called is None:
        variables[_own_name(table, writes, NAME)] = WEIGHTS
    inside = json.dumps(writes.first)
    settings = {
        **_renamed(table, writes, {NAME: called or WEIGHTS.name}),
        **writes.first,
        **(_trained(job, writes) if job.model.trained else writes.whole),
        **(writes.towers.get(job.model.tower.frozen, {}) if job.model.tower else {}),
        **{key: one.name for key, one in variables.items() if f'"{one.name}"' not in inside},
        **_renamed(table, writes, dict(_arguments(job, layout, traits))),
        **({table.ulysses: layout.cp} if table.ulysses and layout.cp > 1 else {}),
        **(writes.narrow if is_narrow(job) else {}),
        **(writes.rows if job.training.packing == "none" else writes.packed),
        **(_sharded(base, table) if writes.mesh else {}),
    }
    values = {key: UserVariable(one.name) for key, one in variables.items()}
    section = _section(base, table) if job.runtime == engine.RUNTIME else {}
    way = _as_file if writes.file else _as_options
    arguments, files = way(base, writes, settings, values, section)
    more = (one for one in base.required_environment if one != SCRIPT)
    return replace(
        base,
        runtime=f"{table.title} on {base.runtime}",
        runtime_version=writes.commit,
        checked=writes.checked,
        required_environment=(*variables.values(), *more),
        entry_point=ModuleEntry(writes.module),
        arguments=arguments,
        notes=tuple(_notes(job, layout, writes)),
        files=(*files, *_mesh(base, writes)),
        keys=tuple(flat({**settings, ENGINE: section} if section else settings)),
        read_back=True,
    )


Way = tuple[tuple[Argument, ...], tuple[ConfigFile, ...]]
"""Options of the command, and files."""


def _as_file(
    base: LaunchConfig,
    writes: Writes,
    settings: Settings,
    values: Mapping[str, UserVariable],
    section: Settings,
) -> Way:
    """All in one YAML, the section of DeepSpeed as well."""
    filled = (*values.items(), *(one for file in base.files for one in file.filled_in))
    head = (f"Written by `plan export` for {writes.name} {writes.commit}.", *base.summary)
    whole = {**settings, ENGINE: dict(section)} if section else dict(settings)
    text = yaml.safe_dump(whole, sort_keys=False)
    for key, one in filled:  # in double quotes, which the launch script writes over
        text = text.replace(f"{key}: {one.name}\n", f'{key}: "{one.name}"\n')
    lines = "".join(f"# {one_line(line)}\n" for line in head)
    file = ConfigFile(writes.file, lines + text, filled)
    return (option("layout", writes.call, file),), (file,)


def _as_options(
    base: LaunchConfig,
    writes: Writes,
    settings: Settings,
    values: Mapping[str, UserVariable],
    section: Settings,
) -> Way:
    """Options of the command; the section of DeepSpeed is a file beside it."""
    words = {key: _words(value) for key, value in settings.items()}
    given: dict[str, tuple[Value, ...]] = {**words, **{key: (one,) for key, one in values.items()}}
    files: tuple[ConfigFile, ...] = ()
    if section:
        filled = tuple(one for file in base.files for one in file.filled_in)
        files = (ConfigFile(ENGINE_FILE, json.dumps(section, indent=2) + "\n", filled),)
        given[ENGINE] = files
    groups: dict[str, Group] = dict.fromkeys(values, "data")
    options = (option(groups.get(key, "layout"), f"--{key}", *one) for key, one in given.items())
    return tuple(options), files


def _words(value: object) -> tuple[str, ...]:
    """A value as words of a command."""
    if isinstance(value, list):
        return tuple(map(str, value))
    if isinstance(value, (bool, dict)):
        return (json.dumps(value),)
    return (str(value),)


def _sharded(base: LaunchConfig, table: Table) -> dict[str, object]:
    """Keys of FSDP and of the mesh in the trainer's own file."""
    for file in base.files:
        if file.name == MESH_FILE:
            config = yaml.safe_load(file.text)
            fsdp = {k.removeprefix("fsdp_"): v for k, v in config.get(mesh.FSDP, {}).items()}
            sizes = config.get(mesh.PARALLEL, {})
            degrees = {
                name: sizes.get(f"parallelism_config_{size}_size", 1)
                for name, size in table.sizes.items()
            }
            return {
                **({"fsdp_version": fsdp.pop("version"), mesh.FSDP: fsdp} if fsdp else {}),
                **{name: size for name, size in degrees.items() if size > 1},
            }
    return {}


def _mesh(base: LaunchConfig, writes: Writes) -> Iterator[ConfigFile]:
    """The configuration of Accelerate, which starts the trainer as well as the script does."""
    call = " ".join(filter(None, (f"-m {writes.module}", writes.call, writes.file or "...")))
    for one in base.files:
        if one.name == MESH_FILE:
            yield replace(one, text=one.text.replace("train.py ...", call, 1))


def _variable(text: str) -> RequiredVariable:
    name, _, sentence = text.partition(": ")
    return RequiredVariable(name, sentence)


def _own_name(table: Table, writes: Writes, name: str) -> str:
    """The trainer's name of an option of ours; with `!` where it says the opposite."""
    if name in writes.names:
        return name
    for own, ours in table.keys.items():
        if ours.removeprefix("!") == name:
            return f"!{own}" if ours.startswith("!") else own
    return name


def _renamed(table: Table, writes: Writes, settings: Settings) -> dict[str, object]:
    """The same in the trainer's words."""
    renamed: dict[str, object] = {}
    for name, value in settings.items():
        own = _own_name(table, writes, name)
        word = {**writes.inside.get(name, {}), **value} if isinstance(value, dict) else value
        renamed[own.removeprefix("!")] = not word if own.startswith("!") else word
        renamed |= writes.more.get(name, {}) if value is True else {}
    return renamed


def _trained(job: Job, writes: Writes) -> dict[str, object]:
    """Adapters."""
    assert job.model.trained is not None
    rank, modules = job.model.trained.rank or 0, trained.module_names(job.model)
    values: dict[str, object] = {
        "{rank}": rank,
        "{alpha}": trained.ALPHA_OVER_RANK * rank,
        "{modules}": modules,
        "{modules,}": ",".join(modules),
    }
    settings = {**writes.adapters, **(writes.quantised if job.model.trained.quantised else {})}
    return {key: values.get(str(value), value) for key, value in settings.items()}


def _arguments(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[tuple[str, object]]:
    """What the Trainer of transformers is given, by its names."""
    name, precision, steps = (
        job.training.optimizer.name,
        job.training.precision,
        accumulated(job, layout),
    )
    yield LENGTH, job.training.seq_length
    yield MICRO, layout.micro_batch_size
    yield ACCUMULATED, steps
    yield CHECKPOINTING, layout.recompute == "full"
    yield "attn_implementation", "sdpa"
    yield "bf16", precision == "bf16" and not is_narrow(job)
    yield "fp16", precision == "fp16"
    if precision == "tf32":
        yield "tf32", True
    if layout.tiled_loss:
        yield mesh.LIGER, True
    if job.runtime == mesh.RUNTIME:
        lists = job.options.fused_optimizer is False
        yield mesh.OPTIM, mesh.LISTS if lists else dict(traits.optimizers)[name]
        if steps > 1 and layout.zero_stage:
            yield "accelerator_config", {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    values = OPTIMIZER_VALUES.get(name, OPTIMIZER_VALUES["adamw"])
    yield "learning_rate", values["lr"]
    yield "lr_scheduler_type", "cosine"
    yield "weight_decay", values["weight_decay"]
    if isinstance(betas := values.get("betas"), list):
        yield from zip(("adam_beta1", "adam_beta2"), betas, strict=True)
    yield "max_grad_norm", 1.0
    yield "max_steps", steps_of(job)
    yield "logging_steps", 1
    yield "save_steps", SAVES


def _section(base: LaunchConfig, table: Table) -> dict[str, object]:
    """The configuration of DeepSpeed, in which arguments are filled in."""
    (text,) = (one.text for one in base.files if one.name == ENGINE_FILE)
    section: dict[str, object] = json.loads(text)
    for key in map(str, (engine.BATCH, engine.MICRO, engine.STEPS, engine.CLIPPING)):
        if key in section:
            section[key] = "auto"
    for key in map(str, (engine.SP, engine.SEQUENCE_MESSAGES)):
        if table.ulysses:
            section.pop(key, None)
    optimizer = section[str(engine.OPTIMIZER).partition(".")[0]]
    assert isinstance(optimizer, dict)
    optimizer["params"] |= {name: "auto" for name in FILLED_IN if name in optimizer["params"]}
    return section


def _notes(job: Job, layout: Layout, writes: Writes) -> Iterator[str]:
    """What the user has to know and to do."""
    if writes.file:
        yield f"the launch script writes what you set into {writes.file}"
    yield "learning rate, schedule and steps between checkpoints are common values: change them"
    yield from writes.notes
    if job.training.packing == "none":
        yield f"priced are rows of {job.training.seq_length} tokens, filled: shorter ones cost less"
    if job.runtime == mesh.RUNTIME:
        yield f"{MESH_FILE} repeats for `accelerate launch` what this script exports: change both"
    if writes.mesh and job.runtime == mesh.RUNTIME and layout.zero_stage == 2:
        yield (
            "FSDP_RESHARD_AFTER_FORWARD of the script keeps weights gathered: the file alone does "
            "not"
        )
    if not job.training.tokens:
        yield f"the job has no number of tokens: max_steps {steps_of(job)} is a placeholder"
