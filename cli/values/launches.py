"""Launches that a user has: a script, a configuration, or a command typed after `--`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainplan.cli.files import is_there, read_model, read_text
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.presets import preset_named
from trainplan.planner.formats import document_of, format_of
from trainplan.planner.launchers import launches_of_manifest
from trainplan.planner.shell import Launch, Place, Word, launch_of_command, launches_of_script

CONFIGURATIONS = (".json", ".yaml", ".yml", ".toml", ".py")
"""Endings of files that a runtime reads, not a shell."""
FILE_STARTER = "file"
"""Starter of a launch that is a configuration alone."""


def read_launches(words: Sequence[str], settings: Mapping[str, str]) -> tuple[Launch, ...]:
    """The launches of a file, or the one of a command.

    Raises:
        PlanError: There is none, or the file cannot be read.
    """
    path = Path(words[0])
    if len(words) > 1:
        return (launch_of_command(words, settings),)
    if path.suffix.lower() in CONFIGURATIONS:
        text = read_text(path, expected="a configuration", is_launch=True)
        program = Word(str(path), Place(str(path), None))
        documents = document_of(text, path.suffix.lower())
        if inside := launches_of_manifest(documents, text, str(path), settings):
            return inside
        document = next(iter(documents), {})
        alone = Launch(FILE_STARTER, program, is_module=False, arguments=(), environment={})
        return (replace(alone, document=document, format=format_of(document)),)
    text = read_text(path, expected="a launch script", is_launch=True)
    return launches_of_script(text, str(path), settings)


def alongside(words: Sequence[str]) -> Path:
    """The folder that files named in a launch are looked for in."""
    return Path(words[0]).parent if len(words) == 1 else Path()


def text_next_to(folder: Path, name: str) -> str | None:
    """Text of a file that a launch names; none where it cannot be read."""
    for path in (folder / name, Path(name)):
        try:
            return read_text(path, is_launch=True)
        except PlanError:
            continue
    return None


def model_next_to(folder: Path, name: str) -> ModelSpec | None:
    """The model that a launch in a folder names; null: no preset and no folder there is called so.

    Of a path to weights its last part may be the name of a preset.
    """
    parts = name.rstrip("/").split("/")
    last = parts[-1].removeprefix("Meta-").removeprefix("meta-")
    for text in (str(folder / name), name, "/".join(parts[-2:]), parts[-1], last):
        if preset_named(text) or is_there(Path(text) / "config.json"):
            try:
                return read_model(text).model
            except PlanError:
                continue
    return None


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Read `NAME=VALUE`, each once.

    Raises:
        SpecError: A text is something else.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise SpecError(f"--set {text[:60]!r}: write NAME=VALUE, such as NNODES=8")
        if name in found:
            raise SpecError(f"--set {name[:60]} is given twice: give it once")
        found[name] = value
    return found
