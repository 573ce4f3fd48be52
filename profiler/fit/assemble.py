"""A profile out of what a run wrote down: the machine, its points and the curves through them."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, GIB, TERA
from trainplan.costmodel.comm import bus_factor
from trainplan.costmodel.hardware import CPU, GpuSpec
from trainplan.costmodel.measured import DRIVE_WAYS, points_of
from trainplan.costmodel.profiles import (
    HOST_COPIES,
    CollectivePoint,
    CopyPoint,
    Host,
    LinkPoint,
    Origin,
    Point,
    PowerPoint,
    ProductPoint,
    Profile,
    StreamPoint,
)
from trainplan.costmodel.spec import Sourced
from trainplan.profiler.fit.merge import MISSING_DEVICE, has_spec, spec_of
from trainplan.profiler.fit.points import TINY, fitted
from trainplan.profiler.fit.stragglers import slow_notes, throttling_notes
from trainplan.profiler.host import NOISE
from trainplan.profiler.journal import JournalContent

SHOWN_NOISE = 2
WITHOUT_GPU = {
    "power_exponent": "the clock of a CPU is not limited by the share of products",
    "overhead_fraction": "found on published runs of GPU clusters",
    "overhead_seconds": "found on published runs of GPU clusters",
    "straggler_per_doubling": "found on published runs of GPU clusters",
}
"""Constants that a CPU does not have, and why.

Source: the reasons are the values: what only GPUs do cannot be measured on a CPU, and what was
found on clusters is not of one host.
"""


def profile_of(content: JournalContent, origin: Origin, notes: Iterable[str] = ()) -> Profile:
    """What was measured, with all that follows from it.

    A device the catalog does not have brings numbers of its own: the most that was reached. Where
    too little of it was measured for that, there are points and no curves.
    """
    header = content.header
    host = header.hosts[0]
    gpu = gpu_of(header.hosts)
    bare = Profile(
        gpu=gpu,
        device=None if gpu in catalog.gpu_names() else device_of(host, content.points),
        num_nodes=len(header.hosts),
        gpus_per_node=host.num_gpus,
        origins=(origin,),
        hosts=header.hosts,
        software=header.software,
        constants=_constants(host, origin.source),
        points=content.points,
        failures=content.failures,
        notes=(
            *condensed(content.notes),
            *slow_notes(points_of(content.points, LinkPoint)),
            *throttling_notes(points_of(content.points, PowerPoint)),
            *drive_notes(content.points),
            *notes,
        ),
    )
    if has_spec(bare):
        return fitted(bare, spec_of(bare))
    note = f"{gpu} is not in the catalog, so nothing was fitted: {MISSING_DEVICE}"
    return bare.model_copy(update={"notes": (*bare.notes, note)})


def drive_notes(points: Sequence[Point]) -> tuple[str, ...]:
    """Says where a drive was measured through the file system's cache alone."""
    copies = [p for p in points_of(points, CopyPoint) if p.direction in DRIVE_WAYS]
    if not copies or not all(p.cached for p in copies):
        return ()
    return (
        "the drive was measured through the file system's cache alone, which is the speed of "
        "memory: estimates take none of it",
    )


def condensed(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes, of those on noise the first with the number of the others."""
    noise = [note for note in notes if note.startswith(NOISE)]
    if len(noise) <= SHOWN_NOISE:
        return tuple(notes)
    others = [note for note in notes if note not in noise]
    more = f"{NOISE} {len(noise) - 1} more such remarks are in the journal"
    return (noise[0], more, *others)


def gpu_of(hosts: Sequence[Host]) -> str:
    """Catalog name of the GPUs, else the device's name as one word; a CPU begins with `cpu`."""
    names = sorted({name for host in hosts for name in host.gpu_names})
    if not names:
        return f"{CPU}-{_word(hosts[0].cpu)}".rstrip("-")
    return catalog.gpu_named(names[0]) or _word(names[0])


def device_of(host: Host, points: Sequence[Point]) -> GpuSpec | None:
    """Numbers of a device from what was measured of it; null without products or streams.

    Source: derived; peaks are the highest rates any point reached, so that curves stay below them.
    """
    is_cpu = not host.gpu_names
    memory = host.gpu_memory_bytes or (host.memory_bytes or GIB) / host.num_gpus
    streams = [p.moved_bytes / p.time.seconds for p in points_of(points, StreamPoint)]
    products = points_of(points, ProductPoint)
    if not products or not streams:
        return None
    bandwidth = max(streams)
    copies = [
        p.num_bytes / p.time.seconds
        for p in points_of(points, CopyPoint)
        if p.direction in HOST_COPIES
    ]
    moved = points_of(points, CollectivePoint)
    links = [_bus(p) for p in moved if 1 < p.ranks <= p.per_node]
    nics = [_bus(p) / p.per_node for p in moved if p.ranks > p.per_node]
    source = "measured by plan profile"
    return GpuSpec(
        vendor=CPU if is_cpu else "unknown",
        architecture=CPU if is_cpu else "unknown",
        memory_gib=Sourced(value=memory / GIB, source=f"{source}: memory of the host / processes")
        if is_cpu
        else Sourced(value=memory / GIB, source=f"{source}: what the driver reports"),
        memory_gb_per_s=Sourced(value=bandwidth / GB, source=f"{source}: fastest kernel"),
        peak_tflops=_peaks(products, source),
        link="shared memory" if is_cpu else "unknown",
        link_gb_per_s=_fastest(links, f"{source}: fastest collective", bandwidth),
        host_gb_per_s=_fastest(copies, f"{source}: fastest copy", bandwidth),
        nic_gb_per_s=Sourced(value=max(nics) / GB, source=f"{source}: fastest link between nodes")
        if nics
        else None,
        gpus_per_node=host.num_gpus,
        nvlink_domain=host.num_gpus,
        host_factor=Sourced(value=0.0, source="a CPU runs what it launches") if is_cpu else None,
    )


def _fastest(rates: Sequence[float], source: str, memory: float) -> Sourced:
    """The highest rate; where none was measured, that of memory, which nothing exceeds."""
    if not rates:
        return Sourced(value=memory / GB, source="assumed: as fast as memory, not measured")
    return Sourced(value=max(rates) / GB, source=source)


def _peaks(points: Sequence[ProductPoint], source: str) -> Mapping[str, Sourced]:
    rates: dict[str, float] = {}
    for p in points:
        rate = 2 * p.m * p.n * p.k * p.groups / p.time.seconds
        rates[p.precision] = max(rate, rates.get(p.precision, 0.0))
    return {
        name: Sourced(value=rate / TERA, source=f"{source}: fastest product")
        for name, rate in sorted(rates.items())
    }


def _bus(point: CollectivePoint) -> float:
    factor = float(bus_factor(point.operation, np.array(point.ranks)))
    return factor * point.num_bytes / point.time.seconds


def _constants(host: Host, source: str) -> Mapping[str, Sourced]:
    if host.gpu_names:
        return {}
    return {
        name: Sourced(value=TINY, source=f"{source}: {why}") for name, why in WITHOUT_GPU.items()
    }


def _word(name: str) -> str:
    plain = re.sub(r"\(.*?\)|@.*|CPU|Processor", " ", name)
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
