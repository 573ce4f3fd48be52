"""One run at a time writes to an output, also where the file system has no locks."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainplan.profiler.errors import ProfilerError

HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN})
NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
"""Source: Linux manual, flock(2) and fcntl_locking(2): NFS without its lock manager says ENOLCK,
Lustre mounted without `flock` ENOSYS, others EOPNOTSUPP or EINVAL."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Process numbers begin anew with it. Source: Linux manual, proc_sys_kernel(5)."""


@contextmanager
def only_run(path: Path) -> Iterator[None]:
    """Hold the lock file while the body runs.

    The system frees a lock when the process ends. Where the file system has none, the file itself
    is the lock, with the name of its owner; that of a process of this host which is gone is taken
    over.

    Raises:
        ProfilerError: Another run holds it, or the file cannot be made.
    """
    descriptor = _locked(path)
    try:
        yield
    finally:
        if _still_there(path, descriptor):
            path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path) -> int:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock  # noqa: PLC0415 (not on Windows)
    except ImportError:
        return _owned(path)
    while True:
        descriptor = _opened(path, os.O_RDWR | os.O_CREAT)
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in HELD:
                raise ProfilerError(
                    f"another run writes to this output and holds {path}: wait for it, stop it, or "
                    "choose another"
                ) from error
            if error.errno in NO_LOCKS:
                return _owned(path)
            _refuse(path, error)
        if _still_there(path, descriptor):
            return descriptor
        os.close(descriptor)  # the run before removed it just now


def _opened(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        _refuse(path, error)


def _refuse(path: Path, error: OSError) -> NoReturn:
    raise ProfilerError(
        f"{path}: cannot be locked ({error.strerror}): choose an output in a folder that you may "
        "write to"
    ) from error


def _still_there(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that made a file which stands for a lock."""

    host: str
    boot: str
    """Of the system, since when numbers of processes hold; empty where it does not say."""
    pid: int

    @property
    def line(self) -> str:
        """As it is written."""
        return f"{self.host} {self.boot or '-'} {self.pid}\n"

    def gone(self, me: Owner) -> bool:
        """It was on this host and has ended; of other hosts nobody here can know."""
        if self.host != me.host:
            return False
        if self.boot != me.boot:
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # somebody else's
            return False
        return self.pid == me.pid


def this_process() -> Owner:
    """The owner of what this process makes."""
    boot = ""
    with suppress(OSError):
        boot = BOOT.read_text("ascii").strip()
    return Owner(socket.gethostname(), boot, os.getpid())


def _owner_of(path: Path) -> Owner | None:
    """Null where the file says nothing, as one whose writer was killed between two calls."""
    with suppress(OSError, ValueError):
        host, boot, pid = path.read_text("utf-8").split()
        return Owner(host, "" if boot == "-" else boot, int(pid))
    return None


def _owned(path: Path) -> int:
    """Make the file, which says whose it is; over one that says nothing or whose owner is gone.

    A link to a file that is written already appears at once and whole, on NFS, too; source: Linux
    manual, open(2) on O_EXCL.
    """
    me = this_process()
    draft = path.with_name(f"{path.name}.{me.host}.{me.pid}")
    descriptor = _opened(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.write(descriptor, me.line.encode())
        if not _linked(draft, path):
            _must_be_free(path, me)
            draft.replace(path)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        draft.unlink(missing_ok=True)
    return descriptor


def _linked(draft: Path, path: Path) -> bool:
    """False where the file is there, or the file system has no links."""
    try:
        os.link(draft, path)
    except OSError:
        return False
    return True


def _must_be_free(path: Path, me: Owner) -> None:
    found = _owner_of(path)
    if found is not None and not found.gone(me):
        raise ProfilerError(
            f"another run writes to this output: process {found.pid} on {found.host} made {path}; "
            "where it runs no more, remove that file"
        )
