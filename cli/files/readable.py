"""What may be read and looked up: all files of who types, those of some folders for others."""

from pathlib import Path

from trainplan.cli.files.looks import LOOKS, noted

FILE_SUFFIXES = (".json", ".yaml", ".yml")
"""Of files with a model, a cluster or measurements."""


@noted
def is_folder(path: Path) -> bool:
    """Is it a folder that may be read?"""
    try:
        return not is_elsewhere(path) and path.is_dir()
    except (OSError, ValueError):  # too long a name, a NUL byte: no folder
        return False


@noted
def is_there(path: Path) -> bool:
    """Is there such a file or folder?

    Where it may not be read, its text alone decides, which the caller knows: what looks
    like a path counts as there, and is refused when it is read.
    """
    try:
        if is_elsewhere(path):
            return path.suffix.lower() in FILE_SUFFIXES or path.is_absolute() or ".." in path.parts
        return path.exists()
    except (OSError, ValueError):
        return False


@noted
def names_in(folder: Path) -> tuple[str, ...]:
    """What lies in a folder that may be read."""
    return tuple(sorted(one.name for one in folder.iterdir()))


def is_elsewhere(path: Path) -> bool:
    """Is it outside what may be read?"""
    looks = LOOKS.get()
    if looks is None:
        return False
    whole = path.resolve()
    return not any(whole.is_relative_to(folder) for folder in looks.readable)
