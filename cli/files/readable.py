"""What may be read, and asked about: all files of who types, those of some folders for others."""

from contextvars import ContextVar
from pathlib import Path

FILE_SUFFIXES = (".json", ".yaml", ".yml")
"""Of files with a model, a cluster or measurements."""
READABLE: ContextVar[tuple[Path, ...] | None] = ContextVar("READABLE", default=None)
"""Folders whose files may be read, where someone else asks than the user; null: all."""


def is_folder(path: Path) -> bool:
    """Is it a folder that may be read?"""
    try:
        return not is_elsewhere(path) and path.is_dir()
    except (OSError, ValueError):  # too long a name, a NUL byte: no folder
        return False


def is_there(path: Path) -> bool:
    """Is there such a file or folder?

    Where it may not be read, its text alone decides, which those who ask know: what looks
    like a path counts as there, and is refused when it is read.
    """
    try:
        if is_elsewhere(path):
            return path.suffix.lower() in FILE_SUFFIXES or path.is_absolute() or ".." in path.parts
        return path.exists()
    except (OSError, ValueError):
        return False


def is_elsewhere(path: Path) -> bool:
    """Is it outside what may be read?"""
    folders = READABLE.get()
    if folders is None:
        return False
    whole = path.resolve()
    return not any(whole.is_relative_to(folder) for folder in folders)
