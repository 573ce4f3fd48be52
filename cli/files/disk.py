"""The only reader and writer of user files: reads in bounds, writes whole or not at all."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainplan.cli.files.looks import KINDS, LOOKS, digest
from trainplan.cli.files.readable import is_elsewhere
from trainplan.costmodel.base import PlanError

LARGEST_FILE_BYTES = 10 * 1000 * 1000
"""No configuration comes near it: a larger file is a slip."""
LARGEST_LAUNCH_BYTES = 1000 * 1000
"""Of a script, or a configuration of a runtime."""
LARGEST_LOG_BYTES = 500 * 1000 * 1000
GZIP = b"\x1f\x8b"
"""First bytes of a compressed file."""


@contextmanager
def errors_of(place: object) -> Iterator[None]:
    """Name the file or option in errors."""
    try:
        yield
    except PlanError as error:
        raise type(error)(f"{place}: {error}") from error


class FileError(PlanError):
    """A file that cannot be read or written; the message starts with its path."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file to write."""

    name: str
    text: str
    executable: bool = False


def read_text(path: Path, *, expected: str = "JSON or YAML", is_launch: bool = False) -> str:
    """Content of a text file; `expected` states of what kind.

    `is_launch`: it is a script, or a configuration of a runtime.

    Raises:
        FileError: It is missing, a folder, unreadable, too large, binary or not UTF-8.
    """
    too_large = FileError(
        f"{path}: larger than {LARGEST_FILE_BYTES // 10**6} MB, so it is no configuration; "
        "give the config.json, not the weights"
    )
    most = LARGEST_FILE_BYTES
    if is_launch:
        most = LARGEST_LAUNCH_BYTES
        too_large = FileError(f"{path}: larger than {most // 10**6} MB, so it is no launch")
    content = _content(path, most, too_large)
    return _decoded(path, content, expected)


def read_records(path: Path) -> str:
    """Content of a file with one record a line, which may be as large as a log.

    Raises:
        FileError: It is missing, a folder, unreadable, too large, binary or not UTF-8.
    """
    large = _larger_than_a_log(path, "split it")
    return _decoded(path, _content(path, LARGEST_LOG_BYTES, large), "one JSON object a line")


def read_log(path: Path) -> str:
    """Content of a log; bytes that are no UTF-8 text are replaced.

    Raises:
        FileError: It is missing, a folder, unreadable or too large.
    """
    large = _larger_than_a_log(path, "cut out a part with step lines")
    return _content(path, LARGEST_LOG_BYTES, large).decode("utf-8-sig", errors="replace")


def _larger_than_a_log(path: Path, what_to_do: str) -> FileError:
    return FileError(f"{path}: larger than {LARGEST_LOG_BYTES // 10**6} MB: {what_to_do}")


def _refuse_elsewhere(path: Path) -> None:
    if is_elsewhere(path):
        raise FileError(
            f"{path}: a server reads no files for its clients: give a name or the "
            "document itself, or start it with --allow-files FOLDER"
        )


def _content(path: Path, limit: int, too_large: FileError) -> bytes:
    looks, shown = LOOKS.get(), ""
    try:
        content = _bytes_of(path, limit, too_large)
        shown = digest(path, content) if looks is not None else ""
    finally:
        if looks is not None:
            looks.note(_digest_of.__name__, path, shown)
    return content


def _digest_of(path: Path) -> str:
    """Empty: it cannot be read."""
    try:
        return digest(path, _content(path, LARGEST_LOG_BYTES, _larger_than_a_log(path, "")))
    except FileError:
        return ""


KINDS[_digest_of.__name__] = _digest_of


def _bytes_of(path: Path, limit: int, too_large: FileError) -> bytes:
    try:
        _refuse_elsewhere(path)
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a FIFO would wait
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise FileError(f"{path}: is no regular file: write its content to one")
            if status.st_size > limit:
                raise too_large
            content = file.read(limit + 1)  # it may have grown
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise FileError(f"{path}: is a folder, expected a file") from error
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be read: {_reason(error)}") from error
    if len(content) > limit:
        raise too_large
    if content.startswith(GZIP):
        raise FileError(f"{path}: compressed: unpack it first (gunzip)")
    return content


def refuse_existing(path: Path, *, force: bool) -> None:
    """Stop early where the result could not be written later.

    Raises:
        FileError: The path exists and `force` is not set, or its folder is missing.
    """
    try:
        if path.is_dir():
            raise FileError(f"{path}: is a folder, expected the name of a file")
        if path.exists() and not force:
            raise FileError(f"{path}: exists; --force replaces it")
        if path.exists() and not (path.is_file() and not path.is_symlink()):
            raise FileError(f"{path}: is no regular file, and is never replaced: choose another")
        _require_writable_parent(path)
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be written: {_reason(error)}") from error


ROOM_BYTES = 1 << 16
"""Of a file that is written before a long search; a plan is smaller."""


def try_writing(path: Path) -> None:
    """Write a file next to another and remove it: what refuses it would refuse that one.

    Raises:
        FileError: The folder or the disk refuses it.
    """
    with (
        _reported(path),
        tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as probe,
    ):
        probe.write(b"\0" * ROOM_BYTES)


def write_text(path: Path, text: str, *, force: bool) -> None:
    """Write a file: the whole text under its name, or nothing.

    Raises:
        FileError: It exists and `force` is not set, or the folder refuses it.
    """
    refuse_existing(path, force=force)
    with _reported(path):
        _replace(path.parent, NewFile(path.name, text))


def write_folder(
    folder: Path, files: Sequence[NewFile], *, stale: Sequence[str] = (), force: bool
) -> tuple[Path, ...]:
    """Write a new folder with its files: all of them, or nothing.

    In an existing folder, which needs `force`, only these files are replaced, the last of them
    last, and those named `stale` removed.

    Returns:
        The files removed.

    Raises:
        FileError: It exists and `force` is not set, or its parent refuses it.
    """
    refuse_folder(folder, force=force)
    with _reported(folder):
        if folder.exists():
            return _renew(folder, files, stale)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            for file in files:
                _replace(temporary, file)
            temporary.chmod(0o777 & ~_umask())
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return ()


def _renew(folder: Path, files: Sequence[NewFile], stale: Sequence[str]) -> tuple[Path, ...]:
    """The last file shows that the others are whole and the stale ones gone."""
    for file in files[:-1]:
        _replace(folder, file)
    gone = tuple(folder / name for name in stale if os.path.lexists(folder / name))
    for path in gone:
        path.unlink()
    for file in files[-1:]:
        _replace(folder, file)
    return gone


def refuse_folder(folder: Path, *, force: bool) -> None:
    """As `refuse_existing`, for a folder to be made.

    Raises:
        FileError: It exists and `force` is not set, is a file, or refuses writing.
    """
    try:
        if folder.exists() and not folder.is_dir():
            raise FileError(f"{folder}: is a file, expected a folder")
        if folder.exists() and not force:
            raise FileError(f"{folder}: exists; --force replaces the files plan writes into it")
        if not folder.exists():
            _require_writable_parent(folder)
        elif not os.access(folder, os.W_OK | os.X_OK):
            raise FileError(f"{folder}: is read-only; choose another")
    except (OSError, ValueError) as error:
        raise FileError(f"{folder}: cannot be written: {_reason(error)}") from error


def _require_writable_parent(path: Path) -> None:
    parent = path.parent
    if not parent.is_dir():
        raise FileError(f"{path}: folder {parent} does not exist; make it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise FileError(f"{path}: folder {parent} is read-only; choose another")


def _replace(folder: Path, file: NewFile) -> None:
    """Write next to the target, then move over it: no reader ever sees half a file."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(file.text)
        temporary.chmod((0o777 if file.executable else 0o666) & ~_umask())
        temporary.replace(folder / file.name)
    except BaseException:  # Ctrl-C too
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be written: {_reason(error)}") from error


def _decoded(path: Path, content: bytes, expected: str) -> str:
    if b"\0" in content:
        line = content[: content.index(b"\0")].count(b"\n") + 1
        raise FileError(f"{path}:{line}: binary file, expected text ({expected})")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise FileError(
            f"{path}:{line}:{column}: not UTF-8 text (byte 0x{content[error.start]:02x}); "
            "save the file as UTF-8"
        ) from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _umask() -> int:
    """The process' mask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
