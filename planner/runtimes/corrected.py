"""A user's command with some options changed: everything else stays as it was written."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainplan.planner.launch import EnvironmentVariable, one_line
from trainplan.planner.shell import Launch, Word


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One option or key of the runtime; null: it is not set."""

    name: str
    before: str | None
    after: str | None


def corrected_script(
    launch: Launch,
    changes: Sequence[SettingChange],
    environment: Iterable[EnvironmentVariable],
    head: Sequence[str],
) -> str:
    """A bash script of the whole command.

    Words that only a run resolves stay as the user wrote them, in double quotes; `environment` is
    what the runtime needs with the changes, and replaces what the launch sets.
    """
    needed = {one.name: shlex.quote(one.value) for one in environment}
    exported = {name: _text(word) for name, word in launch.environment.items()} | needed
    lines = ["#!/usr/bin/env bash", *(f"# {one_line(line)}" for line in head)]
    lines += ["set -euo pipefail"]
    lines += [f"export {name}={text}" for name, text in exported.items()]
    start = " ".join((*_start(launch), _text(launch.program)))
    arguments = [" ".join(group) for group in _grouped(corrected(launch.arguments, changes))]
    lines.append(" \\\n  ".join((start, *arguments)))
    return "\n".join(lines) + "\n"


COUNTS: Mapping[str, Mapping[str, str]] = {
    "torchrun": {"nodes": "--nnodes", "gpus_per_node": "--nproc_per_node"},
    "deepspeed": {"nodes": "--num_nodes", "gpus_per_node": "--num_gpus"},
    "accelerate": {"nodes": "--num_machines", "ranks": "--num_processes"},
    "srun": {"nodes": "--nodes", "gpus_per_node": "--ntasks-per-node"},
    "mpirun": {"ranks": "-np"},
}
"""By starter, its options for the counts of a `Launch`. Source: torch.distributed.run; deepspeed
launcher/runner.py; accelerate commands/launch.py; man srun; man mpirun."""
COMMANDS: Mapping[str, str] = {
    "accelerate": "accelerate launch",
    "srun": "srun",
    "mpirun": "mpirun",
}
BARE = ("srun", "mpirun")
"""Starters that are told how to run Python."""


def _start(launch: Launch) -> Iterator[str]:
    """What stands before the program."""
    yield COMMANDS.get(launch.starter, launch.starter)
    for count, option in COUNTS.get(launch.starter, {}).items():
        word = getattr(launch, count)
        if word is not None:
            yield f"{option} {_text(word)}"
    yield from map(_text, launch.starter_arguments)
    if launch.starter in BARE:
        yield "python -u"
    if launch.is_module:
        yield "-m"


def corrected(words: Sequence[Word], changes: Sequence[SettingChange]) -> tuple[Word, ...]:
    """The arguments with other values of some options; new ones stand at the end."""
    changed = {change.name: change for change in changes}
    found: list[Word] = []
    written: set[str] = set()
    skipping = False
    for word in words:
        name, equals, _ = word.text.partition("=")
        if name in changed and (equals or _is_option(word)):
            skipping = not equals
            if name not in written:
                written.add(name)
                found += _words(changed[name], word)
        elif _is_option(word):
            skipping = False
            found.append(word)
        elif not skipping:
            found.append(word)
    place = words[-1] if words else None
    for change in changes:
        if change.name not in written:
            found += _words(change, place)
    return tuple(found)


def _is_option(word: Word) -> bool:
    return word.text.startswith("--")


def _words(change: SettingChange, place: Word | None) -> Iterator[Word]:
    """As its kind of option is written: `--option values`, or `key=value`."""
    if change.after is None or place is None:
        return
    if change.name.startswith("--"):
        yield Word(change.name, place.place)
        yield from (Word(text, place.place) for text in change.after.split())
    else:
        yield Word(f"{change.name}={change.after}", place.place)


def _grouped(words: Sequence[Word]) -> Iterator[list[str]]:
    """An option with its values, or a key with its value, on each line."""
    group: list[str] = []
    for word in words:
        if group and (_is_option(word) or "=" in word.text or not group[0].startswith("--")):
            yield group
            group = []
        group.append(_text(word))
    if group:
        yield group


def _text(word: Word) -> str:
    if not word.unresolved:
        return shlex.quote(word.text)
    return '"' + word.text.replace("\\", "\\\\").replace('"', '\\"') + '"'
