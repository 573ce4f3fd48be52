"""Keys of Accelerate from a YAML, from options of `accelerate launch`, or from variables it sets.

Source: huggingface/accelerate at the commit of `planner.runtimes.accelerate`, below
`src/accelerate`: `commands/config/config_args.py` (unknown keys of the file raise),
`commands/launch.py`, _validate_launch_command (options win; unknown keys of a section are set and
never read), and `utils/launch.py`, prepare_multi_gpu_env.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from trainplan.planner.runtimes.accelerate.write import (
    DYNAMO,
    FSDP,
    PARALLEL,
    SWITCHES,
    VARIABLES,
)
from trainplan.planner.runtimes.compare import recorded_flags
from trainplan.planner.runtimes.ranks import LARGEST_WORLD
from trainplan.planner.runtimes.reading import Asked
from trainplan.planner.runtimes.training_script.read import (
    Notes,
    Said,
    script_of,
    text_of,
)
from trainplan.planner.shell import Launch, Place, Verdict, Word, number

RUNTIME = "accelerate"
LOCAL = "LOCAL_MACHINE"
ENGINE = "deepspeed_config"
ENGINE_FILE = f"{ENGINE}.deepspeed_config_file"
VERSION, POLICY = f"{FSDP}.fsdp_version", f"{FSDP}.fsdp_reshard_after_forward"
STRATEGY = f"{FSDP}.fsdp_sharding_strategy"
PARTS = f"{FSDP}.fsdp_activation_checkpointing"
REPLICATE, SHARD, TP, CP, SP = (
    f"{PARALLEL}.parallelism_config_{name}_size"
    for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
)
EXCHANGE = f"{PARALLEL}.parallelism_config_cp_comm_strategy"
BACKEND = f"{DYNAMO}.dynamo_backend"
PRECISION = "mixed_precision"
SECTIONS = {FSDP: "fsdp_", PARALLEL: "parallelism_config_", DYNAMO: "dynamo_"}
"""Sections and the first letters of their keys."""
TRUE, FALSE = ("true", "yes", "y", "t", "on", "1"), ("false", "no", "n", "f", "off", "0")
"""Source: utils/environment.py, str_to_bool."""


@dataclass(slots=True)
class Keys:
    """Flat keys, and where each stands."""

    notes: Notes
    told: dict[str, Said] = field(default_factory=dict)

    def problem(self, cause: str, verdict: Verdict, says: str, key: str | None = None) -> None:
        """Note one."""
        said = self.told.get(key or "")
        self.notes.problem(cause, verdict, says, said.place if said else None)

    def said(self, value: object, *names: str) -> Said:
        """A value with the first of the keys that is told, or with their default."""
        found = next((self.told[name] for name in names if name in self.told), None)
        return Said(value, "default", names[0]) if found is None else found._replace(value=value)

    def has(self, section: str) -> bool:
        """Is anything of a section told?"""
        return any(key.startswith(f"{section}.") for key in self.told)

    def _wrong(self, key: str, value: object, wanted: str) -> None:
        says = f"{key} = {str(value)[:60]!r} is no {wanted}: correct it"
        self.problem("wrong_kind", "illegal", says, key)

    def count(self, key: str, default: int) -> int:
        """A number of 1 or more, or its default."""
        value = self.told[key].value if key in self.told else default
        text = str(value)
        if text.isdecimal() and len(text) < 10 and 1 <= int(text) <= LARGEST_WORLD:
            return int(text)
        self._wrong(key, value, "number of 1 or more")
        return default

    def flag(self, key: str, *, default: bool) -> bool:
        """A flag, or its default."""
        text = str(self.told[key].value).lower() if key in self.told else str(default).lower()
        if text in (*TRUE, *FALSE):
            return text in TRUE
        self._wrong(key, text, "true or false")
        return default

    def text(self, key: str, default: str) -> str:
        """A text, or its default."""
        value = self.told[key].value if key in self.told else None
        return default if value is None else str(value)


def keys_of(notes: Notes, launch: Launch, asked: Asked) -> Keys | None:
    """What a launch sets; null, with a problem: nothing can be read."""
    keys = Keys(notes)
    options = script_of(launch.starter_arguments).options
    path = launch.program if launch.starter == "file" else options.get("config_file", (None,))[0]
    if path is not None and not _of_file(keys, path, asked):
        return None
    _of_options(keys, options)
    if launch.starter not in ("file", RUNTIME):
        _of_environment(keys, launch.environment)
    for key, word in (("num_machines", launch.nodes), ("num_processes", launch.ranks)):
        if word is not None and number(word) is not None and launch.starter == RUNTIME:
            keys.told[key] = Said(number(word), "stated", f"--{key} {word.text}", word.place)
    if not keys.told:
        says = "the launch reads the default configuration of its machine: name a --config_file"
        notes.problem("no_config", "unread", says, launch.program.place)
        return None
    return keys


def _of_file(keys: Keys, path: Word, asked: Asked) -> bool:
    text = text_of(keys.notes, path, asked)
    if text is None:
        return False
    try:
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        says = f"{path.text} is no YAML: {' '.join(str(error).split())[:200]}: correct it"
        keys.notes.problem("unread_config", "illegal", says, Place(path.text, None))
        return False
    if not isinstance(config, dict):
        says = f"{path.text} holds no keys: write `accelerate config` over it"
        keys.notes.problem("unread_config", "illegal", says, Place(path.text, None))
        return False
    place = config.get("compute_environment", LOCAL)
    if place != LOCAL:
        says = f"launches on {str(place)[:40]} are not read, only those on {LOCAL}"
        keys.notes.problem("compute_environment", "unread", says, Place(path.text, None))
        return False
    _of_mapping(keys, config, path.text, text.splitlines())
    return True


def _of_mapping(keys: Keys, config: Mapping[object, object], file: str, lines: list[str]) -> None:
    known = {flag.removeprefix("--") for flag in recorded_flags(RUNTIME)}
    for name, value in config.items():
        top = str(name)
        place = Place(file, _line(lines, top))
        if top not in known and top not in ("fp16", "dynamo_backend"):
            says = f"{top[:60]} is no key of Accelerate, which stops it: correct or delete it"
            keys.notes.problem("unknown_key", "illegal", says, place)
        elif top in SECTIONS and isinstance(value, dict):
            for inner, one in value.items():
                key = _full(top, str(inner))
                where = Place(file, _line(lines, str(inner)))
                if key not in known:
                    says = f"{top} has no key {str(inner)[:60]}, never read: correct or delete it"
                    keys.notes.problem("unknown_key", "ignored", says, where)
                keys.told[key] = _said(key, one, where)
        elif top == ENGINE and isinstance(value, dict):
            for inner, one in value.items():
                key = f"{top}.{inner}"
                keys.told[key] = _said(key, one, Place(file, _line(lines, str(inner))))
        elif top not in SECTIONS:
            keys.told[top] = _said(top, value, place)


def _full(section: str, name: str) -> str:
    """Keys of FSDP and of the compiler may lack their first letters."""
    prefix = SECTIONS[section]
    lacks = section != PARALLEL and not name.startswith(prefix.rstrip("_"))
    return f"{section}.{prefix if lacks else ''}{name}"


def _said(key: str, value: object, place: Place) -> Said:
    """A plain value; lists and mappings, which may hold themselves, are never looked into."""
    plain = value if isinstance(value, (str, int, float, bool)) or value is None else "..."
    return Said(plain, "stated", f"{key}: {json.dumps(plain)[:60]}", place)


def _line(lines: list[str], name: str) -> int | None:
    found = (at for at, line in enumerate(lines, 1) if line.strip().startswith(f"{name}:"))
    return next(found, None)


def _of_options(keys: Keys, options: Mapping[str, tuple[Word | None, Word]]) -> None:
    for name, (value, word) in options.items():
        section = next((s for s, prefix in SECTIONS.items() if name.startswith(prefix)), None)
        if section is None and name not in ("mixed_precision", "use_fsdp"):
            continue
        key = name if section is None else f"{section}.{name}"
        text = "true" if value is None else value.text
        if value is not None and value.unresolved:
            says = f"--{name} depends on {', '.join(value.unresolved)}: give it"
            keys.notes.problem("unread_value", "unread", says, word.place)
        elif key == "use_fsdp":
            keys.told["distributed_type"] = Said("FSDP", "stated", "--use_fsdp", word.place)
        else:
            keys.told[key] = Said(text, "stated", f"--{name} {text}", word.place)


def _of_environment(keys: Keys, environment: Mapping[str, Word]) -> None:
    """Variables that a script sets for torchrun."""
    names = {variable: key for key, variable in VARIABLES.items()}
    names[SWITCHES[0]] = "distributed_type"
    for variable, key in names.items():
        if variable in environment:
            word = environment[variable]
            value = "FSDP" if key == "distributed_type" else word.text
            keys.told[key] = Said(value, "stated", f"{variable}={word.text}", word.place)
