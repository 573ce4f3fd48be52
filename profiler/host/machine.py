"""What this host is: processor, memory, GPUs, network cards and how they are linked.

All of it is read, nothing is set; what a system does not tell is left out.
"""

import os
import platform
import re
import socket
from collections.abc import Callable, Iterator
from itertools import combinations, groupby
from pathlib import Path

from trainplan.costmodel.base import GIB
from trainplan.costmodel.profiles import Host, Software
from trainplan.profiler.host.cores import usable_cores
from trainplan.profiler.host.drive import file_system, space_bytes
from trainplan.profiler.host.nvml import Driver, driver
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import torch

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
