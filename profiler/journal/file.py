"""The journal on its drive: lines that are only ever appended."""

import os
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
            SpecError: The file, which it names, is no journal.
        """
        try:
            lines = self.whole_lines()
            return read_journal(lines) if lines else None
        except SpecError as error:
            raise SpecError(f"{self.path}: {error}") from error

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
