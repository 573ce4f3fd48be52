"""Launches that a user has: a script, a configuration, or a command typed after `--`."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from trainplan.cli.files import is_there, read_model, read_text
from trainplan.cli.terminal import remark
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError, SpecError, did_you_mean
from trainplan.costmodel.presets import preset_named
from trainplan.planner.formats import document_of, format_of
from trainplan.planner.launchers import launches_of_manifest
from trainplan.planner.shell import Host, Launch, Place, Word, launch_of_command, launches_of_script

CONFIGURATIONS = (".json", ".yaml", ".yml", ".toml", ".py")
"""Endings of files that a runtime reads, not a shell."""
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".job", ".pbs", ".lsf", ".qsub", ".zsh")
"""Endings of scripts, which take the words behind them for their arguments."""
ABOVE = 4
"""Folders above that of a launch in which a file is looked for that it names."""
OTHERS = re.compile(r"\b(?:source|bash|sh) \S|\.sh\b|^\s*\. |SLURM_", re.MULTILINE)
"""Other scripts, or a scheduler, whose variables may bear on a script that does not name them."""
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
FILE_STARTER = "file"
"""Starter of a launch that is a configuration alone."""


def read_launches(words: Sequence[str], settings: Mapping[str, str]) -> tuple[Launch, ...]:
    """The launches of a file, or the one of a command.

    Raises:
        PlanError: There is none, or the file cannot be read.
    """
    path = Path(words[0])
    if not _is_file(words):
        return (launch_of_command(words, settings, Host(read=partial(_text_below, Path()))),)
    if path.suffix.lower() in CONFIGURATIONS:
        text = read_text(path, expected="a configuration", is_launch=True)
        program = Word(str(path), Place(str(path), None))
        documents = document_of(text, path.suffix.lower())
        read = partial(_text_below, path.parent)
        if inside := launches_of_manifest(documents, text, str(path), settings, read):
            return inside
        document = next(iter(documents), {})
        alone = Launch(FILE_STARTER, program, is_module=False, arguments=(), environment={})
        return (replace(alone, document=document, format=format_of(document)),)
    text = read_text(path, expected="a launch script", is_launch=True)
    for name in settings if not OTHERS.search(text) else ():
        if not re.search(rf"\b{re.escape(name)}\b", text):
            near = did_you_mean("", name, dict.fromkeys(VARIABLE.findall(text)))
            says = f"--set {name}: {path} names no {name}, so it changes nothing"
            remark(": ".join(filter(None, (says, near))))
    given = {str(at): word for at, word in enumerate(words[1:], start=1)}
    host = Host(read=partial(_text_below, path.parent))
    return launches_of_script(text, str(path), {**given, **settings}, host)


def _is_file(words: Sequence[str]) -> bool:
    """Is the first word a file, with its arguments behind it, rather than a command?"""
    path = Path(words[0])
    if len(words) == 1 or path.suffix in SCRIPTS or not is_there(path):
        return len(words) == 1 or is_there(path)
    return bool(re.match(r"#!.*/(env )?(ba|z)?sh\b", _text_below(path.parent, path.name) or ""))


def alongside(words: Sequence[str]) -> Path:
    """The folder that files named in a launch are looked for in."""
    return Path(words[0]).parent if _is_file(words) else Path()


def _text_below(folder: Path, name: str) -> str | None:
    """Text of a file that a script sources or runs, if it is in the script's repository.

    Its name may be of any folder above, where the script was to be started from, or elsewhere of
    the script's own folder and the one above. What is in the script's folder tree comes first.
    """
    with suppress(OSError, ValueError, RuntimeError, PlanError):
        tree = folder.resolve()
        parts = Path(name).parts
        own = (
            tree.joinpath(*parts[at:])
            for at in range(2, len(parts))
            if parts[at - 2 : at] == tree.parts[-2:]
        )
        named = [base / name for base in (Path(), tree, *tree.parents)]
        for root, files in ((tree, (*named, *own)), ((tree, *_above(tree))[-1], named)):
            for path in (one.resolve() for one in files):
                if path.is_relative_to(root) and path.is_file():
                    return read_text(path, is_launch=True)
    return None


def _above(folder: Path) -> tuple[Path, ...]:
    """Folders above one up to the root of its repository, and where none is seen a few."""
    tree = folder.resolve()
    if (tree / ".git").exists():
        return ()
    above = tuple(one for one in tree.parents[:ABOVE] if not Path.home().is_relative_to(one))
    root = next((at for at, one in enumerate(above) if (one / ".git").exists()), ABOVE)
    return above[: root + 1]


def text_next_to(folder: Path, name: str) -> str | None:
    """Text of a file that a launch names; none where it cannot be read.

    What is no path of its own is looked for in the folders above, too: scripts are started from the
    root of a repository as often as from their own folder.
    """
    own = name.startswith(("/", "~")) or ".." in name.split("/")
    above = () if own else _above(folder)
    for path in (folder / name, Path(name), *(one / name for one in above)):
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
