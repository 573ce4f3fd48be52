"""The temporary folder of a run; what killed runs left is removed by the next, of any command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from trainplan.profiler.errors import ProfilerError

PREFIX = "trainplan-run-"
ALIVE = "alive"
"""File that a run holds a lock on while it lives: the system frees it, whatever ends the run."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new folder, gone when the body ends; before it those of runs that were killed.

    Raises:
        ProfilerError: It cannot be made.
    """
    for left in Path(gettempdir()).glob(f"{PREFIX}*"):
        _remove_abandoned(left)
    try:
        folder = Path(mkdtemp(prefix=PREFIX))
    except OSError as error:
        raise ProfilerError(
            f"no folder can be made in {gettempdir()} ({error.strerror}): set TMPDIR to another"
        ) from error
    held = _hold(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if held is not None:
            os.close(held)


def _hold(folder: Path) -> int | None:
    """The lock is there before the file has its name; null where there are no locks."""
    with suppress(OSError, ImportError):
        from fcntl import LOCK_EX, flock  # noqa: PLC0415 (not on Windows)

        draft = folder / f"{ALIVE}.draft"
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT)
        flock(descriptor, LOCK_EX)
        draft.replace(folder / ALIVE)
        return descriptor
    return None


def _remove_abandoned(folder: Path) -> None:
    """Only where the lock of its run is free; folders of others cannot be looked into."""
    with suppress(OSError, ImportError):
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 (not on Windows)

        descriptor = os.open(folder / ALIVE, os.O_RDWR | os.O_NOFOLLOW)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
