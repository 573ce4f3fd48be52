"""A trainer around DeepSpeed's engine: a YAML of its own keys, in which the engine has a section.

What a trainer is beyond that is a `Trainer`; what of the engine is written and read is DeepSpeed's.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

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
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.offload import SWITCH, drive_variables, filled_in
from trainplan.planner.runtimes.deepspeed.read import job_of
from trainplan.planner.runtimes.deepspeed.write import DEEPSPEED, WRITTEN, engine_keys, refuse_types
from trainplan.planner.runtimes.exporter import Exporter, recorded, with_traits
from trainplan.planner.runtimes.keys import (
    MOST_PARTS,
    Entry,
    Keys,
    Notes,
    Option,
    Written,
    flat,
    is_small,
    nested,
    yaml_mapping,
)
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.runtimes.training_script.read import (
    CHECKPOINTING,
    text_of,
)
from trainplan.planner.runtimes.training_script.script import Script, script_of
from trainplan.planner.runtimes.training_script.write import MODEL, refuse
from trainplan.planner.shell import Launch, Place, Word

TYPES = {
    **dict.fromkeys(("bf16", "bfloat16", "bfloat", "torch.bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16", "half", "torch.float16"), "fp16"),
}
"""Precision by its words. Source: snowflakedb/ArcticTraining `config/enums.py`, DType."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """What differs from a script of one's own under DeepSpeed."""

    traits: RuntimeTraits
    title: str
    """As its authors call it."""
    version: str
    """Commit whose keys these are."""
    checked: str
    programs: tuple[str, ...]
    """The one that starts it, then the module that runs on every rank."""
    over: Mapping[Option[int], Option[int]]
    """Keys of the engine that it writes over, and its own for them."""
    variables: Mapping[str, RequiredVariable]
    """What only the user knows, by the last part of its key."""
    options: Mapping[str, tuple[object, ...]]
    """Values of options that it has beside those of DeepSpeed."""
    kind: Option[str]
    kinds: tuple[str, ...]
    """Of trainers, those with the usual loss, whose keys are known."""
    named: Option[str]
    """The model, as transformers takes it."""
    dtype: Option[str]
    """Type of the weights, which it enables in the section."""
    stage: int
    """Of a section without one."""
    length: Option[int]
    """Tokens of a sequence."""
    keeps: Option[bool]
    """Layers are not recomputed."""
    checkpoints: Option[bool]
    """Their inputs wait on the host."""
    unpriced: Mapping[Option[Any], str]
    """What it is priced without."""
    rows: str
    """A note on what it does with rows of documents."""
    steps: str
    """Key of the number of steps."""
    writes: Callable[[Job, Layout], Written]
    """Its own keys, in the order of the file."""
    notes: Callable[[Job, Layout], Iterator[str]]
    finished: Callable[[Keys, Job, Layout], tuple[Job, Layout]]
    """What it does beyond keys of the engine."""
    patterns: tuple[str, ...]
    """Files of its sources that have its keys."""
    packs: str
    """As that of an exporter."""
    section: str = "deepspeed"
    """Key of the engine's section."""
    by_itself: tuple[str, ...] = (
        *("optimizer", *engine.ENABLED, engine.CHECKPOINTING),
        *map(str, (engine.BATCH, engine.CLIPPING)),
    )
    """Keys and sections of the engine that it writes, too, from others of its own."""
    lacks: frozenset[str] = frozenset()
    """Axes of the engine that it has no key for."""

    @property
    def recorded(self) -> str:
        """File of its keys."""
        return f"{self.traits.name.replace('-', '_')}/options.json"

    def export(self, job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
        """The YAML of one layout.

        Raises:
            UnsupportedError: The layout or an option has no key.
        """
        if feature := self.traits.refuses(job.model):
            raise UnsupportedError(f"{job.runtime} does not train {feature}: use another runtime")
        refuse(job, layout, {**WRITTEN, **self.options}, traits)
        refuse_types(job)
        if job.training.precision == "tf32":
            raise UnsupportedError(
                f"{job.runtime}: tf32 is no dtype of its models: use bf16 or fp16"
            )
        config = nested({**self.writes(job, layout), **self._section(job, traits, layout)})
        text = yaml.safe_dump(config, sort_keys=False)
        required = {k: one for k, one in self.variables.items() if f"{k}: {one.name}\n" in text}
        variables = {key: UserVariable(one.name) for key, one in required.items()}
        filled = (*variables.items(), *filled_in(layout))
        for key, one in filled:  # in double quotes, which the launch script writes over
            text = text.replace(f"{key}: {one.name}\n", f'{key}: "{one.name}"\n')
        written = f"Written by `plan export` for {self.title} {self.version}."
        head = (written, f"checked: {self.checked}", *summary(job, layout))
        head_text = "".join(f"# {one_line(line)}\n" for line in head)
        file = ConfigFile(f"{self.programs[1]}.yaml", head_text + text, filled)
        return LaunchConfig(
            runtime=job.runtime,
            runtime_version=self.version,
            checked=self.checked,
            summary=summary(job, layout),
            environment=(),
            required_environment=(*required.values(), *drive_variables(layout)),
            entry_point=ModuleEntry(self.programs[1], self.programs[0]),
            arguments=(option("layout", "--config", file),),
            notes=(*self._notes(job, required), *self.notes(job, layout)),
            files=(file,),
            keys=tuple(flat(config)),
        )

    def _notes(self, job: Job, required: Mapping[str, RequiredVariable]) -> Iterator[str]:
        names = " and ".join(one.name for one in required.values())
        yield (
            f"the launch script writes {names} into the file; the shape of the model is not in "
            f"it: it has to be {job.model.name}"
        )
        yield "optimizer, learning rate and betas are common values: change them freely"
        yield self.rows
        if not job.training.tokens:
            yield (
                f"the job has no number of tokens: {self.steps} {steps_of(job)} is a placeholder"
            )

    def _section(self, job: Job, traits: RuntimeTraits, layout: Layout) -> Written:
        """Keys of the engine that it does not write by itself, those of ZeRO first."""
        keys = {str(key): value for key, value in engine_keys(job, layout, traits).items()}
        left = [key for key in keys if not key.startswith((*self.by_itself, *map(str, self.over)))]
        left.sort(key=lambda key: not key.startswith(engine.ZERO))
        return {f"{self.section}.{key}": keys[key] for key in left}

    def read(self, launch: Launch, request: Request) -> Reading:
        """The job and the layout of a launch, as far as its YAML says them."""
        notes = Notes(problems=list(launch.problems), strict=request.strict)
        job, layout = self._read(notes, launch, request)
        fields, problems = tuple(notes.fields), tuple(notes.problems)
        return Reading(self.traits.name, self.version, job, layout, fields, problems)

    def _read(
        self, notes: Notes, launch: Launch, request: Request
    ) -> tuple[Job | None, Layout | None]:
        path = _path(launch)
        text = text_of(notes, path, request)
        instead = "name the configuration of the trainer"
        config = None if text is None else yaml_mapping(notes, text, path.text, instead)
        if config is not None and not is_small(config):
            says = f"{path.text} has more than {MOST_PARTS:,} values: give one without the rest"
            notes.problem("unread_config", "unread", says, path.place)
            config = None
        if config is None:
            return None, None
        keys = _keys_of(notes, config, path.text)
        self._check(keys, config)
        made = json.loads(json.dumps(self._engine(keys, config), default=str))
        words = {
            name: (None if value is None else Word(value, path.place), Word(name, path.place))
            for name, value in self._script(keys).items()
        }
        of_engine = engine.engine_keys(notes, made, path.text)
        job, layout = job_of(of_engine, Script(words), launch, request, self.traits.name)
        return (job, layout) if job is None or layout is None else self.finished(keys, job, layout)

    def _check(self, keys: Keys, config: Mapping[str, object]) -> None:
        """Keys that stop the trainer, and what has no price."""
        kind, known = keys.raw(self.kind), recorded(self.recorded)
        if kind not in self.kinds:
            names = ", ".join(self.kinds)
            says = f"type {str(kind)[:40]}: priced as one of {names}, its keys left out"
            keys.problem("trainer_type", "unmodelled", says, self.kind)
        for name in config if kind in self.kinds else ():
            if f"--{name}" not in known:
                says = (
                    f"{name[:60]} is no key of {self.title}, which stops it: correct or delete it"
                )
                keys.problem("unknown_key", "illegal", says, name)
        for key, what in self.unpriced.items():
            if keys.raw(key) not in (None, False, key.default):
                keys.problem("not_priced", "unmodelled", f"{key}: {what}", key)

    def _engine(self, keys: Keys, config: Mapping[str, object]) -> dict[str, object]:
        """The section as the trainer hands it to the engine."""
        section = config.get(self.section)
        sections = dict(section) if isinstance(section, dict) else {}
        sections |= {str(key): keys.raw(own) for key, own in self.over.items()}
        enabled = engine.ENABLED.get(TYPES.get(str(keys.raw(self.dtype)), ""))
        for key, value in nested({enabled: True} if enabled else {}).items():
            sections.setdefault(key, value)
        sections.setdefault(engine.ZERO, {"stage": self.stage})
        if keys.raw(self.checkpoints) is True:
            sections |= nested({engine.CHECKPOINTS: True})
        return sections

    def _script(self, keys: Keys) -> dict[str, str | None]:
        """What it does, as options of a script of one's own."""
        length: object = keys.raw(self.length)
        known = isinstance(length, int) and length != self.length.default
        flag = SWITCH.removeprefix("--") if keys.raw(self.checkpoints) is True else CHECKPOINTING
        recomputed = {} if keys.raw(self.keeps) else {flag: None}
        model = keys.raw(self.named)
        own = any(model == one.name for one in self.variables.values())
        named = {MODEL.removeprefix("--"): str(model)} if model and not own else {}
        return {**({"max_length": str(length)} if known else {}), **recomputed, **named}

    def recognises(self, launch: Launch) -> bool:
        """By its program, or as its YAML alone."""
        if launch.alone:
            return launch.format == self.traits.name.replace("-", "_")
        return PurePosixPath(launch.program.text).name in self.programs

    def as_exporter(self) -> Exporter:
        """What writes it."""
        return replace(
            DEEPSPEED,
            runtime=self.traits.name,
            export=with_traits(self.export),
            packs=self.packs,
            writes=DEEPSPEED.writes - self.lacks,
            optimizers=frozenset(name for name, _ in self.traits.optimizers),
            trains=frozenset(),
            source_patterns=self.patterns,
            recorded_flags=self.recorded,
            of_others=frozenset(),
        )

    def as_reader(self) -> Reader:
        """What reads it."""
        return Reader(self.traits.name, self.recognises, self.read)


def _path(launch: Launch) -> Word:
    """The YAML: an option of the program of a rank, or the last word for its starter."""
    value = script_of(launch.arguments).options.get("config", (None,))[0]
    plain = [word for word in launch.arguments if word.text.endswith((".yml", ".yaml"))]
    return value or (plain[-1] if plain else launch.program)


def _keys_of(notes: Notes, config: Mapping[str, object], file: str) -> Keys:
    """Keys and those of sections one by one."""
    place = Place(file, None)
    keys = Keys(notes, file=file)
    for name, value in config.items():
        keys.entries[name] = Entry(value, "stated", name, place)
        for inner, one in value.items() if isinstance(value, Mapping) else ():
            keys.entries[f"{name}.{inner}"] = Entry(one, "stated", f"{name}.{inner}", place)
    return keys
