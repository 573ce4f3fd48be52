"""The journal on its drive: appended to by one process, and by one run at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainplan.costmodel.base import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.journal.records import AGAIN, JournalContent, Record, line_of, read_journal


class LineFile:
    """A file of lines that is only ever appended to; each one is on the drive at once."""

    def __init__(self, path: Path, again: str = AGAIN) -> None:
        self.path, self.again = path, again

    def whole_lines(self) -> str:
        """What is there so far, without a last line that was cut off.

        Raises:
            SpecError: It is no text.
        """
        content = self.path.read_bytes() if self.path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1]  # it may end inside a character
        try:
            return lines.decode("utf-8")
        except UnicodeDecodeError as error:
            number = lines[: error.start].count(b"\n") + 1
            raise SpecError(
                f"line {number} of the journal is no UTF-8 text: {self.again}"
            ) from error

    def remove(self) -> None:
        """Begin anew.

        Raises:
            ProfilerError: Its folder refuses it.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ProfilerError(
                f"{self.path}: cannot be removed ({error.strerror}): choose another output"
            ) from error

    def append_line(self, line: str) -> None:
        """Write a line, with its end, behind all others."""
        with self.path.open("a+b") as file:
            _drop_torn_line(file.fileno())
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())


class JournalFile(LineFile):
    """Appends records; each one is on the drive when `append` returns."""

    def content(self) -> JournalContent | None:
        """What is there so far; null where nothing is.

        Raises:
            SpecError: The file is no journal.
        """
        lines = self.whole_lines()
        return read_journal(lines) if lines else None

    def append(self, record: Record) -> None:
        """Write a record behind all others."""
        self.append_line(line_of(record))


def _drop_torn_line(descriptor: int) -> None:
    """Cut off what follows the last line break: a run was killed while it wrote."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    if end == 0 or os.pread(descriptor, 1, end - 1) == b"\n":
        return
    whole = os.pread(descriptor, end, 0)
    os.ftruncate(descriptor, whole.rfind(b"\n") + 1)


@contextmanager
def only_run(path: Path) -> Iterator[None]:
    """Hold the lock file while the body runs; the system frees it when the process ends.

    Raises:
        ProfilerError: Another run holds it.
    """
    descriptor = _locked(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> int:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return os.open(path, os.O_RDWR | os.O_CREAT)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise ProfilerError(
                f"another run writes to this output and holds {path}: wait for it, stop it, or "
                "choose another"
            ) from error
        if _still_there(path, descriptor):
            return descriptor
        os.close(descriptor)  # the run before removed it just now


def _still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
