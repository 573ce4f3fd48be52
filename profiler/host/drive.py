"""What a folder's file system is and holds."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""Their files are pages of the cache and nothing else; since Linux 6.6 `tmpfs` takes `O_DIRECT`
all the same. Source: Linux, mm/shmem.c, `shmem_file_open` sets FMODE_CAN_ODIRECT."""
MOUNTS = Path("/proc/self/mountinfo")


def file_system(path: str | Path, mounts: Path = MOUNTS) -> str:
    """Type of the file system a path is on, `ext4`; empty where the system does not say."""
    try:
        device = Path(path).stat().st_dev
        lines = mounts.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return after.split()[0]
    return _longest(Path(path).resolve(), lines)


def _longest(path: Path, lines: list[str]) -> str:
    """By the longest mount point above the path: file systems like `btrfs` number devices anew."""
    found = ("", "")
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split()[4] if len(before.split()) > 4 else ""
        if point and path.is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, after.split()[0])
    return found[1]


def space_bytes(path: str | Path) -> tuple[int | None, int | None]:
    """Total and free bytes for this user; null where the system does not say."""
    with suppress(OSError):
        usage = shutil.disk_usage(path)
        return usage.total, usage.free
    return None, None
