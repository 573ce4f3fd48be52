"""Whole files of projects over Megatron: what a table of theirs says, around the keys of a plan."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import layers_per_stage, num_microbatches
from trainplan.planner.launch import (
    Argument,
    ConfigFile,
    EntryPoint,
    EnvironmentVariable,
    Group,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    UserVariable,
    Value,
    assigned,
    option,
    steps_of,
    summary,
)
from trainplan.planner.runtimes.key_tables import KeyTable, key_table, translated, value_text
from trainplan.planner.runtimes.key_tables.engine import rollout_engine
from trainplan.planner.runtimes.key_tables.lines import (
    OF_PLAN,
    OF_RUN,
    OF_USER,
    adapter_words,
    adapts_all,
    yaml_lines,
)
from trainplan.planner.runtimes.megatron_lm.keys import STAGES
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM
from trainplan.planner.runtimes.training_script.trained import ALPHA_OVER_RANK
from trainplan.planner.runtimes.training_script.write import model_called

WHOLE: Mapping[str, str] = {
    "verl": "verl",
    "slime": "slime",
    "nemo-rl": "nemo_rl",
    "ms-swift": "ms_swift",
    "llama-factory": "llama_factory",
}
"""Projects over Megatron whose files are written whole, and the table of each."""
RUNTIME = "megatron-lm"
"""Whose plans they take."""
MOST_ANSWERS = 8
"""Answers to a prompt, where the batch divides by as many. Source: assumed, as in the examples of
verl and slime; the user's to change."""
PROMPT_PART = 4
"""Of so many parts of a sequence one is for the prompt. Source: assumed; the user's to change."""
MODEL = "MODEL"
"""Variable with the model, where its name does not say it."""
OPTIMIZERS = ("adamw",)
"""Optimizers that are the default of every project here."""
Settings = Mapping[str, str]
"""Values by key; with names in braces what the plan says, with a dollar what only the user does."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTable:
    """How the files of one project look."""

    source: str
    """Where its keys and its program stand."""
    title: str
    program: str
    """A module; with `folder` a file below that."""
    keys: str = ""
    """The table of `key_tables` with its keys; none: the options of Megatron-LM are its own."""
    commit: str = ""
    """Of its sources; of a project with a table of keys it stands there."""
    folder: str = ""
    """Variable with the folder of its checkout."""
    by_ray: bool = False
    """Does one process start it, and Ray its ranks?"""
    file: str = ""
    """Name of its file; none: all stands in the command."""
    names_file: str = ""
    """Option before the path of the file; none: the path is the first argument."""
    dashes: bool = False
    """Are keys of the command options, `--key value`?"""
    first: Sequence[str] = ()
    """Words before all others."""
    without: Sequence[str] = ()
    """Options of Megatron-LM that need no key: the project does as they say, or they move no step
    time there."""
    lacks: Sequence[str] = ()
    """Options of Megatron-LM that its parser takes and its program cannot do."""
    ends: Sequence[str] = ()
    """Keys of the layers of the first stage and of the last, where those between are alike."""
    needs: Sequence[str] = ()
    """Options of Megatron-LM that it sets by itself, always."""
    variables: Mapping[str, str]
    """What only the user knows, and what it is."""
    environment: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variables that are set, and why."""
    absent: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Keys where an option is not there, beside those of the table of keys."""
    settings: Mapping[str, Settings]
    """Keys that are no option of Megatron-LM: by the heading under which they stand; those under
    `adapters` and `recompute` where the plan has such."""
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Sections whose plain keys stand again in others."""
    notes: Sequence[str] = ()
    checked: str = ""
    """What its own code said of such files (tests/runtimes)."""

    @property
    def table(self) -> KeyTable | None:
        """Its keys."""
        return key_table(self.keys) if self.keys else None

    @property
    def version(self) -> str:
        """Commit whose keys are written."""
        return self.commit or key_table(self.keys).commit

    @property
    def has_engine(self) -> bool:
        """Does an engine generate beside it?"""
        return any("{engine_" in v for one in self.settings.values() for v in one.values())


@cache
def whole_table(name: str) -> WholeTable:
    """The table in `whole/name.toml`."""
    text = resources.files(__package__).joinpath("whole", f"{name}.toml").read_text("utf-8")
    return WholeTable(**tomllib.loads(text))


def whole_launch(name: str) -> Callable[[Job, Layout], LaunchConfig]:
    """What writes the files of a project."""

    def export(job: Job, layout: Layout) -> LaunchConfig:
        """The files of one layout, and what starts them.

        Raises:
            UnsupportedError: The project has no key for a setting, or its engine no memory.
            PlanError: Megatron-LM does not express the layout.
        """
        return _launch(whole_table(WHOLE[name]), job, layout)

    return export


def _launch(table: WholeTable, job: Job, layout: Layout) -> LaunchConfig:
    if job.training.optimizer.name not in OPTIMIZERS:
        raise UnsupportedError(
            f"{table.title}: no files are written for optimizer {job.training.optimizer.name}, "
            f"only for {', '.join(OPTIMIZERS)}: plan for one, or leave --trainer out"
        )
    values, notes = _values(table, job, layout)
    base = _megatron(table, job, layout)
    settings = (*_keys(table, job, layout, base.arguments), *_own(table, job, layout, values))
    settings = tuple({one.flag: one for one in (*settings, *_copied(table, settings))}.values())
    keys = tuple((one.flag, value_text(one)) for one in settings)
    first = [_word(one) for one in table.first]
    files: tuple[ConfigFile, ...] = ()
    if table.file:
        files = (_file(table, keys, settings),)
        first = [Argument(table.names_file, files, "data")]
        settings = ()
    folder = UserVariable(table.folder)
    entry = EntryPoint(folder, table.program) if table.folder else ModuleEntry(table.program)
    return LaunchConfig(
        runtime=f"{table.title} on {RUNTIME}",
        runtime_version=table.version,
        summary=summary(job, layout),
        environment=(
            *base.environment,
            *(EnvironmentVariable(n, v, why) for n, (v, why) in table.environment.items()),
        ),
        required_environment=tuple(_required(table, job)),
        entry_point=entry,
        arguments=(*first, *settings),
        notes=(*notes, *table.notes),
        files=files,
        keys=keys if files else (),
        checked=table.checked,
        by_ray=table.by_ray,
    )


def _required(table: WholeTable, job: Job) -> Iterator[RequiredVariable]:
    """What only the user knows: of the model nothing where its name says it."""
    for name, sentence in table.variables.items():
        if name != MODEL or model_called(job) is None:
            yield RequiredVariable(name, sentence)


def _megatron(table: WholeTable, job: Job, layout: Layout) -> LaunchConfig:
    """The plan in options of Megatron-LM, which know no adapters."""
    trained = job.model.trained
    if trained and (trained.method != "lora" or "adapters" not in table.settings):
        raise UnsupportedError(
            f"{table.title} has no key for --train {trained.text}: train every weight, "
            "or leave --trainer out"
        )
    model = job.model.model_copy(update={"trained": None})
    return MEGATRON_LM(job.model_copy(update={"model": model}), layout)


def _keys(
    table: WholeTable, job: Job, layout: Layout, arguments: Iterable[Argument]
) -> Iterator[Argument]:
    """What the options of Megatron-LM say, in the words of the project.

    Raises:
        UnsupportedError: It has none for one of them.
    """
    ours = [one for one in arguments if one.flag not in table.without]
    for one in ours:
        if one.flag in table.lacks:
            raise UnsupportedError(
                f"{table.title} cannot do what {' '.join((one.flag, value_text(one)))} of "
                "Megatron-LM states: use another plan or model, or leave --trainer out"
            )
    for flag in table.needs:
        if flag not in {one.flag for one in ours}:
            raise UnsupportedError(
                f"{table.title} sets {flag} of Megatron-LM always, and the plan is without it: "
                "plan for it, or leave --trainer out"
            )
    ends = _ends(table, job, layout)
    yield from ends
    ours = [one for one in ours if not ends or one.flag != STAGES.flag]
    keys = table.table
    if keys is None:
        yield from (one for one in ours if one.group != "data")
        return
    ours = [one for one in ours if one.flag not in OF_USER]
    ours = [one for one in ours if one.group in OF_PLAN or one.flag in OF_RUN]
    done = {" ".join((one.flag, value_text(one))).strip() for one in ours} & {*table.without}
    ours = [one for one in ours if " ".join((one.flag, value_text(one))) not in done]
    absent = {**keys.absent, **{flag: tuple(one) for flag, one in table.absent.items()}}
    for one in translated(replace(keys, absent=absent), ours):
        yield (
            option(one.group, f"--{one.flag}", *value_text(one).split(",")) if table.dashes else one
        )


def _ends(table: WholeTable, job: Job, layout: Layout) -> list[Argument]:
    """Layers of the first and of the last stage, where that says a pipeline; else nothing."""
    even = layers_per_stage(job.model.num_hidden_layers, layout.pp * layout.vpp)
    layers = [stage.layers for stage in layout.stages] if layout.stages else list(even)
    alike = layout.vpp == 1 and len({*layers[1:-1]}) < 2 < len(layers)
    if not table.ends or not alike or job.model.num_nextn_predict_layers or len({*layers}) == 1:
        return []
    return [
        assigned("layout", key, str(count))
        for key, count in zip(table.ends, (layers[0], layers[-1]), strict=True)
    ]


def _values(table: WholeTable, job: Job, layout: Layout) -> tuple[dict[str, object], list[str]]:
    """What names in braces stand for, and what to know of it."""
    batch, length = job.training.global_batch_size, job.training.seq_length
    answers = next(n for n in range(MOST_ANSWERS, 0, -1) if batch % n == 0)
    prompt = max(1, length // PROMPT_PART)
    values: dict[str, object] = {
        "model": model_called(job) or f"${MODEL}",
        "nodes": job.cluster.num_nodes,
        "gpus": job.cluster.groups[0].gpus_per_node,
        "world": job.cluster.num_gpus,
        "micro": layout.micro_batch_size,
        "accumulated": num_microbatches(job, layout),
        "answers": answers,
        "prompts": batch // answers,
        "length": length,
        "prompt": prompt,
        "response": length - prompt,
        "steps": steps_of(job),
        "divisor": layout.tp * (2 * layout.cp if layout.cp > 1 else 1),
        "with_cp": "true" if layout.cp > 1 else "false",
    }
    notes = []
    if job.training.tokens is None:
        notes.append(f"the job has no number of tokens: {steps_of(job)} steps are a placeholder")
    if table.has_engine:
        engine = rollout_engine(job, layout, table.title)
        values |= {"engine_share": f"{engine.share:g}", "engine_tp": engine.tp}
        notes.append(engine.note)
    if trained := job.model.trained:
        rank = trained.rank or 0
        words = adapter_words(job.model, table.title)
        linears = "all-linear" if adapts_all(job.model) else " ".join(words)
        values |= {"rank": rank, "alpha": ALPHA_OVER_RANK * rank}
        values |= {"modules": ",".join(words), "linears": linears}
    return values, notes


def _own(
    table: WholeTable, job: Job, layout: Layout, values: Mapping[str, object]
) -> Iterator[Argument]:
    """Keys that are no option of Megatron-LM."""
    there = {
        "adapters": job.model.trained is not None,
        "recompute": layout.recompute != "none",
    }
    for heading, settings in table.settings.items():
        if there.get(heading, True):
            group: Group = "layout" if heading in ("layout", "recompute") else "data"
            for key, template in settings.items():
                yield _setting(table, group, key, template.format(**values))


def _setting(table: WholeTable, group: Group, key: str, text: str) -> Argument:
    value: Value = UserVariable(text[1:]) if text.startswith("$") else text
    if key.startswith("--"):
        words = text.split() if isinstance(value, str) else [value]
        return option(group, key, *words)
    return Argument(key, (value,), group, assigned=True)


def _copied(table: WholeTable, settings: Iterable[Argument]) -> Iterator[Argument]:
    for one in settings:
        section, _, name = one.flag.rpartition(".")
        yield from (replace(one, flag=f"{to}.{name}") for to in table.copies.get(section, ()))


def _word(text: str) -> Argument:
    """KEY=VALUE."""
    key, _, value = text.partition("=")
    return assigned("layout", key, value)


def _file(
    table: WholeTable, keys: Iterable[tuple[str, str]], settings: Iterable[Argument]
) -> ConfigFile:
    """YAML, in which the names of variables stand for what the script fills in."""
    filled = tuple(
        (one.flag.rpartition(".")[2], value)
        for one in settings
        for value in one.values
        if isinstance(value, UserVariable)
    )
    lines = yaml_lines([(key, value.removeprefix("$")) for key, value in keys])
    head = f"# {table.title}; written by `plan export`\n"
    return ConfigFile(table.file, head + "\n".join(lines) + "\n", filled)
