"""What this host is: processor, memory, GPUs, network cards, how they are linked, its drives.

All of it is read, nothing is set; what a system does not tell is left out.
"""

import os
import platform
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations, groupby
from pathlib import Path
from time import sleep

from trainplan.costmodel.base import GIB
from trainplan.costmodel.profiles import Host, Software
from trainplan.profiler.host.nvml import Driver, driver
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import torch

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


COUNTED = 8
"""Ticks of a core for user, nice, system, idle, waiting for input, two kinds of interrupt, and
stolen by other virtual machines; guests, which follow, are in those of users.

Source: Linux manual, proc_stat(5).
"""
IDLE = slice(3, 5)


def usable_cores() -> int:
    """Cores that containers and job schedulers leave to this process; at least one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_cores(seconds: float, system: Path = Path("/")) -> float | None:
    """Usable cores that anyone used while this process slept for so long, in the mean.

    None where the system does not say. `system` is the root of what is read.
    """
    before = _ticks(system)
    sleep(seconds)
    after = _ticks(system)
    counted = [
        (busy - before[core][0], whole - before[core][1])
        for core, (busy, whole) in after.items()
        if core in before
    ]
    shares = [busy / whole for busy, whole in counted if whole > 0]
    return sum(shares) if shares else None


def _ticks(system: Path) -> Mapping[str, tuple[int, int]]:
    """Busy and all ticks of each usable core since the system started; empty if it does not say."""
    try:
        lines = (system / "proc/stat").read_text("ascii").splitlines()
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    except (OSError, AttributeError, UnicodeDecodeError):
        return {}
    found = {}
    for name, *fields in (line.split() for line in lines if line.startswith("cpu")):
        ticks = [int(field) for field in fields[:COUNTED]]
        if name in names:
            found[name] = sum(ticks) - sum(ticks[IDLE]), sum(ticks)
    return found


BF16_UNITS = frozenset({"amx_bf16", "avx512_bf16", "bf16", "svebf16"})
"""Source: Linux `arch/x86/include/asm/cpufeatures.h`; `arch/arm64/kernel/cpuinfo.c`."""
CPU_FLAGS = re.compile(r"^(?:flags|Features)\s*:\s*(.+)$", re.MULTILINE)
CPU_NAME = re.compile(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", re.MULTILINE)


def this_host(place: Place, system: Path = Path("/"), scratch: str | None = None) -> Host:
    """The host of this process, `system` being the root of what it is read from.

    `scratch` is a folder on the drive that is to be described too.
    """
    nvidia = driver() if place.device == "cuda" else None
    total, free = space_bytes(scratch) if scratch else (None, None)
    return Host(
        name=socket.gethostname(),
        num_gpus=place.local_world_size,
        gpu_names=tuple(_gpu_names(place)),
        gpu_memory_bytes=_gpu_memory_bytes(place),
        cpu=_cpu(system),
        num_cores=usable_cores(),
        bf16_units=_bf16_units(system),
        memory_bytes=_memory_bytes(),
        drive_bytes=total,
        drive_free_bytes=free,
        drive_file_system=file_system(scratch) if scratch else "",
        driver=nvidia.version() if nvidia else None,
        nics=tuple(_network_cards(system)),
        topology=(*(_links(nvidia) if nvidia else ()), *_numa_nodes(system)),
        clocks=tuple(nvidia.clocks(device) for device in nvidia.devices()) if nvidia else (),
    )


def this_software(place: Place) -> Software:
    """Versions of this process."""
    if place.device == "cpu":
        return Software(torch=torch.__version__, backend="gloo")
    hip = torch.version.hip
    version: Callable[[], tuple[int, ...]] = torch.cuda.nccl.version
    nccl = version() if torch.distributed.is_nccl_available() else ()
    return Software(
        torch=torch.__version__,
        cuda=f"hip {hip}" if hip else torch.version.cuda,
        nccl=".".join(str(part) for part in nccl) or None,
        backend="nccl",
    )


def _gpu_names(place: Place) -> Iterator[str]:
    if place.device == "cpu":
        return
    for index in range(min(place.local_world_size, torch.cuda.device_count())):
        yield torch.cuda.get_device_name(index)


def _gpu_memory_bytes(place: Place) -> int | None:
    if place.device == "cpu":
        return None
    return int(torch.cuda.get_device_properties(place.local_rank).total_memory)


def _cpu(system: Path) -> str:
    found = CPU_NAME.search(_text(system / "proc/cpuinfo"))
    return found[1].strip() if found else platform.processor()


def _bf16_units(system: Path) -> tuple[str, ...]:
    """Of the first core; x86 lists `flags`, Arm `Features`."""
    found = CPU_FLAGS.search(_text(system / "proc/cpuinfo"))
    return tuple(sorted(BF16_UNITS & set(found[1].split()))) if found else ()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _network_cards(system: Path) -> Iterator[str]:
    """InfiniBand and RoCE devices with the rate of their first port, `mlx5_0 400 Gb/s`."""
    for rate in sorted(system.glob("sys/class/infiniband/*/ports/1/rate")):
        speed = re.match(r"([\d.]+) Gb/sec", _text(rate))
        if speed:
            yield f"{rate.parents[2].name} {speed[1]} Gb/s"


def _numa_nodes(system: Path) -> Iterator[str]:
    """Cores and memory of each NUMA node."""
    for folder in sorted(system.glob("sys/devices/system/node/node[0-9]*"), key=_number):
        cores = _text(folder / "cpulist").strip()
        total = re.search(r"MemTotal:\s*(\d+) kB", _text(folder / "meminfo"))
        memory = f", {int(total[1]) * 1024 / GIB:.0f} GiB" if total else ""
        if cores or memory:
            yield f"NUMA node {_number(folder)}: cores {cores or 'none'}{memory}"


def _number(folder: Path) -> int:
    return int(re.sub(r"\D", "", folder.name) or 0)


def _links(nvidia: Driver) -> Iterator[str]:
    """NVLinks of the GPUs and the PCIe paths between them, equal ones in one sentence."""
    devices = nvidia.devices()
    for count, group in groupby(enumerate(devices), lambda pair: nvidia.num_links(pair[1])):
        yield f"{_span([index for index, _ in group])}: {count} NVLinks"
    paths: dict[str, list[str]] = {}
    for (i, one), (j, other) in combinations(enumerate(devices), 2):
        paths.setdefault(nvidia.path(one, other) or "", []).append(f"{i}-{j}")
    for path, pairs in paths.items():
        if path:
            yield f"PCIe {path}: GPUs {' '.join(pairs)}"


def _span(indices: list[int]) -> str:
    if len(indices) == 1:
        return f"GPU {indices[0]}"
    return f"GPUs {indices[0]} to {indices[-1]}"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
