"""Other projects' words for the options of Megatron-LM, as data: one file a project.

A template is `key=value`, in which `{}` is the value of the option; several values are
joined by commas. No template: the project does by itself what the option sets.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

from trainplan.costmodel.base import UnsupportedError
from trainplan.planner.launch import Argument, UserVariable, assigned
from trainplan.planner.runtimes.megatron_lm import keys

LATENT = keys.LATENT.flag
"""Under which some options have other keys."""

Form = Literal["options", "hydra", "yaml"]
"""How keys are handed over: `--key value`, `key=value`, or in a file."""
OTHERS: Mapping[str, str] = MappingProxyType(
    {
        "ms-swift": "ms_swift",
        "verl": "verl",
        "nemo-rl": "nemo_rl",
        "llama-factory": "llama_factory",
        "primus": "primus",
        "flagscale": "flagscale",
    }
)
"""Projects over Megatron whose keys are known, and the file of each."""
Templates = Mapping[str, tuple[str, ...]]
"""Templates of every option."""


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The keys of one project."""

    target: str
    commit: str
    """Of its sources, in which every key was looked up."""
    keys: Templates
    latent: Templates
    """Instead of those in `keys`, with latent attention."""
    absent: Templates
    """Where an option is not there and the project's default is not that of Megatron-LM."""
    latent_absent: Templates
    """As above, with latent attention alone."""
    elsewhere: frozenset[str]
    """Options that are not written as keys, but by other means."""
    form: Form = "hydra"
    shape: bool = True
    """Is the shape of the model a matter of keys? Else it comes from a checkpoint."""
    notes: tuple[str, ...] = ()

    def of(self, flags: Iterable[str]) -> Templates:
        """Templates added to these options."""
        return {**self.keys, **self.latent} if LATENT in flags else self.keys

    def without(self, flags: Iterable[str]) -> Templates:
        """Templates of what is absent, with these options."""
        return {**self.absent, **self.latent_absent} if LATENT in flags else self.absent


@cache
def key_table(name: str) -> KeyTable:
    """The table in `name.json`."""
    text = resources.files(__name__).joinpath(f"{name}.json").read_text("utf-8")
    read = json.loads(text)
    keys, latent, absent, latent_absent = (
        {flag: tuple(templates) for flag, templates in read.get(part, {}).items()}
        for part in ("keys", "latent", "absent", "latent_absent")
    )
    elsewhere = frozenset(read.get("elsewhere", ()))
    return KeyTable(
        target=read["target"],
        commit=read["commit"],
        keys=keys,
        latent=latent,
        absent=absent,
        latent_absent=latent_absent,
        elsewhere=elsewhere,
        form=read.get("form", "hydra"),
        shape=read.get("shape", True),
        notes=tuple(read.get("notes", ())),
    )


def translated(table: KeyTable, arguments: Iterable[Argument]) -> Iterator[Argument]:
    """The same settings as keys of the project.

    Raises:
        UnsupportedError: The table has no key for an option.
    """
    given = {argument.flag: argument for argument in arguments}
    templates = table.of(given)
    for flag, argument in given.items():
        if flag in table.elsewhere:
            continue
        if flag not in templates:
            raise UnsupportedError(
                f"{table.target} has no key for what {' '.join((flag, value_text(argument)))} of "
                "Megatron-LM states: use another plan or model, or export to megatron-lm"
            )
        yield from _filled(argument, templates[flag])
    for flag, others in table.without(given).items():
        if flag not in given:
            yield from _filled(Argument(flag, (), "layout"), others)


def _filled(argument: Argument, templates: Iterable[str]) -> Iterator[Argument]:
    for template in templates:
        key, _, value = template.partition("=")
        yield assigned(argument.group, key, value.replace("{}", value_text(argument)))


def value_text(argument: Argument) -> str:
    """Values of an option, joined by commas."""
    values = argument.values
    return ",".join(f"${v.name}" if isinstance(v, UserVariable) else str(v) for v in values)
