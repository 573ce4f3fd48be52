"""Files of trainers over the Trainer of transformers: one table each, `hf_trainers/tables`.

What shards below them is what the exporter of the plan's runtime writes: the section of DeepSpeed
stands in the trainer's file, variables of Accelerate in the script. Each argument that this writes
for a script is written in the trainer's words.

Source of what the Trainer does with them: huggingface/transformers `training_args.py`,
`trainer_pt_utils.py` (AcceleratorConfig) and `integrations/deepspeed.py` (trainer_config_process:
what a section leaves as "auto" is filled in from arguments, and what differs from them raises).
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import yaml

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import (
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
    one_line,
    option,
    steps_of,
    summary,
)
from trainplan.planner.runtimes.accelerate import keys as mesh
from trainplan.planner.runtimes.accelerate.write import FILE as MESH_FILE
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.write import FILE as ENGINE_FILE
from trainplan.planner.runtimes.deepspeed.write import OPTIMIZER_VALUES
from trainplan.planner.runtimes.exporter import with_traits
from trainplan.planner.runtimes.hf_trainers.tables import WRITTEN, Settings, Table, Writes
from trainplan.planner.runtimes.keys import flat
from trainplan.planner.runtimes.registry import EXPORTERS
from trainplan.planner.runtimes.trainers.trainer import Trainer
from trainplan.planner.runtimes.training_script import trained
from trainplan.planner.runtimes.training_script.read import ACCUMULATED, CHECKPOINTING, MICRO
from trainplan.planner.runtimes.training_script.write import (
    SCRIPT,
    WRITES,
    accumulated,
    model_called,
)

RUNTIMES = (mesh.RUNTIME, engine.RUNTIME)
NAME, LENGTH, ENGINE = "model_name_or_path", "max_length", "deepspeed"
SAVES = 500
"""Steps between checkpoints."""
COMMON = WRITES - {"tp"}
"""Choices of a layout that each has words for."""
OTHERS = {name: table.writes for name, table in WRITTEN.items() if table.writes}
WEIGHTS = RequiredVariable("MODEL", "the model: a name on Hugging Face, or its folder")
FILLED_IN = ("lr", "betas", "eps", "weight_decay")
"""Values of an optimizer that the section takes from arguments."""
FILES = (ENGINE_FILE, trained.FILE, MESH_FILE)
"""Those of exporters that are read, or stand in the trainer's own."""


def over_transformers(table: Table) -> Trainer:
    """The trainer of a table."""
    assert table.writes is not None
    write = partial(_export, table=table, writes=table.writes)
    return Trainer(table.title, table.writes.commit, RUNTIMES, write)


@with_traits
def _export(
    job: Job, traits: RuntimeTraits, layout: Layout, *, table: Table, writes: Writes
) -> LaunchConfig:
    """The file of one layout, and what starts it.

    Raises:
        UnsupportedError: The trainer has no word for a setting.
        PlanError: As the exporter of the runtime.
    """
    for reason in _lacking(job, layout, writes):
        raise UnsupportedError(f"{table.title} {reason}")
    base = EXPORTERS[job.runtime](job, layout)
    for file in base.files:
        if file.name not in FILES:
            raise UnsupportedError(f"{table.title} calls no {file.name}: leave --trainer out")
    variables = {key: _variable(text) for key, text in writes.data.items()}
    called = model_called(job)
    if called is None:
        variables[_own_name(table, NAME)] = WEIGHTS
    settings = {
        **_renamed(table, writes, {NAME: called or WEIGHTS.name}),
        **writes.first,
        **(_trained(job, writes) if job.model.trained else writes.whole),
        **(writes.towers.get(job.model.tower.frozen, {}) if job.model.tower else {}),
        **{key: one.name for key, one in variables.items()},
        **_renamed(table, writes, dict(_arguments(job, layout, traits))),
        **(writes.narrow if _is_narrow(job) else {}),
        **(writes.rows if job.training.packing == "none" else writes.packed),
        **({ENGINE: _section(base)} if job.runtime == engine.RUNTIME else {}),
    }
    filled = (
        *((key, UserVariable(one.name)) for key, one in variables.items()),
        *(one for file in base.files for one in file.filled_in),
    )
    file = ConfigFile(writes.file, _text(job, layout, table, settings, filled), filled)
    more = (one for one in base.required_environment if one != SCRIPT)
    return replace(
        base,
        runtime=f"{table.title} on {base.runtime}",
        runtime_version=writes.commit,
        checked="",
        required_environment=(*variables.values(), *more),
        entry_point=ModuleEntry(writes.module),
        arguments=(option("layout", writes.call, file),),
        notes=tuple(_notes(job, writes, variables.values())),
        files=(file, *_mesh(base, writes)),
        keys=tuple(flat(settings)),
        read_back=True,
    )


def _mesh(base: LaunchConfig, writes: Writes) -> Iterator[ConfigFile]:
    """The configuration of Accelerate, which starts the trainer as well as the script does."""
    call = " ".join(filter(None, (f"-m {writes.module}", writes.call, writes.file)))
    for one in base.files:
        if one.name == MESH_FILE:
            yield replace(one, text=one.text.replace("train.py ...", call, 1))


def _variable(text: str) -> RequiredVariable:
    name, _, sentence = text.partition(": ")
    return RequiredVariable(name, sentence)


def _is_narrow(job: Job) -> bool:
    """Are states in bf16 by an argument, and not by the section of DeepSpeed?"""
    return job.training.state_precision == "bf16" and job.runtime == mesh.RUNTIME


def _lacking(job: Job, layout: Layout, writes: Writes) -> Iterator[str]:
    """What the trainer has no word for, and who has."""
    for axis in AXES:
        if not axis.is_off(layout) and axis.name not in COMMON | _axes(job, writes):
            others = [name for name, one in OTHERS.items() if axis.name in _axes(job, one)]
            yield (
                f"has no word for {axis.name} = {axis.text(layout)} on {job.runtime}: set it to "
                f"{axis.codec.text(axis.off)}, {_instead(others)}"
            )
    for what, has in _parts(job):
        if not has(writes):
            others = [name for name, one in OTHERS.items() if has(one)]
            yield f"has no word for {what}: {_instead(others)}"
    if job.training.loss_tokens < 1:
        yield "computes the logits of all tokens: use loss_tokens=1, or leave --trainer out"
    adapts = job.model.trained is not None and job.model.trained.adapts
    if adapts and job.runtime == mesh.RUNTIME and job.options.adapter_dtype != "fp32":
        yield "keeps adapters in fp32: search with --option adapter_dtype=fp32"


def _axes(job: Job, writes: Writes) -> frozenset[str]:
    return writes.axes.get(job.runtime, frozenset())


def _parts(job: Job) -> Iterator[tuple[str, Callable[[Writes], object]]]:
    """What of a job needs a word beside those of its layout, and where a trainer has it."""
    some, tower = job.model.trained, job.model.tower
    if some:
        yield (
            f"--train {some.text}",
            lambda one: (one.quantised if some.quantised else one.adapters) if some.adapts else (),
        )
    if job.training.packing != "none":
        yield f"rows packed {job.training.packing}", lambda one: one.packed
    if _is_narrow(job):
        yield "states in bf16", lambda one: one.narrow
    if tower and tower.frozen != "none":
        yield (
            f"a tower of which {tower.frozen} is frozen",
            lambda one: one.towers.get(tower.frozen),
        )


def _instead(others: list[str]) -> str:
    """Where to go."""
    where = f"export with --trainer {' or '.join(others)}, or " if others else ""
    return f"{where}leave --trainer out"


def _own_name(table: Table, name: str) -> str:
    """The trainer's name of an option of ours; with `!` where it says the opposite."""
    for own, ours in table.keys.items():
        if ours.removeprefix("!") == name:
            return f"!{own}" if ours.startswith("!") else own
    return name


def _renamed(table: Table, writes: Writes, settings: Settings) -> dict[str, object]:
    """The same in the trainer's words."""
    renamed: dict[str, object] = {}
    for name, value in settings.items():
        own = _own_name(table, name)
        word = writes.values.get(name, {}).get(str(value).lower(), value)
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
    yield "bf16", precision == "bf16" and not _is_narrow(job)
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


def _section(base: LaunchConfig) -> dict[str, object]:
    """The configuration of DeepSpeed, in which arguments are filled in."""
    (text,) = (one.text for one in base.files if one.name == ENGINE_FILE)
    section: dict[str, object] = json.loads(text)
    for key in map(str, (engine.BATCH, engine.MICRO, engine.STEPS, engine.CLIPPING)):
        if key in section:
            section[key] = "auto"
    optimizer = section[str(engine.OPTIMIZER).partition(".")[0]]
    assert isinstance(optimizer, dict)
    optimizer["params"] |= {name: "auto" for name in FILLED_IN if name in optimizer["params"]}
    return section


def _text(
    job: Job,
    layout: Layout,
    table: Table,
    settings: Settings,
    filled: tuple[tuple[str, UserVariable], ...],
) -> str:
    assert table.writes is not None
    head = (
        f"Written by `plan export` for {table.title} {table.writes.commit}.",
        *summary(job, layout),
    )
    text = yaml.safe_dump(dict(settings), sort_keys=False)
    for key, one in filled:  # in double quotes, which the launch script writes over
        text = text.replace(f"{key}: {one.name}\n", f'{key}: "{one.name}"\n')
    return "".join(f"# {one_line(line)}\n" for line in head) + text


def _notes(job: Job, writes: Writes, variables: Iterable[RequiredVariable]) -> Iterator[str]:
    """What the user has to know and to do."""
    names = ", ".join(one.name for one in variables)
    yield f"the launch script writes {names} into {writes.file}"
    yield "learning rate, schedule and steps between checkpoints are common values: change them"
    yield from writes.notes
    if job.training.packing == "none":
        yield f"priced are rows of {job.training.seq_length} tokens, filled: shorter ones cost less"
    if job.runtime == mesh.RUNTIME:
        yield f"{MESH_FILE} says to `accelerate launch` what this script exports: change both"
    if not job.training.tokens:
        yield f"the job has no number of tokens: max_steps {steps_of(job)} is a placeholder"
