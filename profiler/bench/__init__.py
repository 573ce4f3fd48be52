"""What can be measured, in measuring order: to add a sort, add its file and its line here."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.bench.attention import ATTENTION
from profiler.bench.collectives import COLLECTIVES, P2P
from profiler.bench.copies import COPIES
from profiler.bench.drive import DRIVE
from profiler.bench.ends import EMBEDDING, HEAD
from profiler.bench.gemm import GEMM
from profiler.bench.layer import LAYER
from profiler.bench.links import LINKS
from profiler.bench.memory import MEMORY
from profiler.bench.optimizer import CPU_ADAM, OPTIMIZER
from profiler.bench.overlap import OVERLAP
from profiler.bench.power import POWER
from profiler.bench.stream import STREAM
from profiler.task import Item

ITEMS: Mapping[str, Item] = {
    item.name: item
    for item in (
        MEMORY,
        LAYER,
        GEMM,
        ATTENTION,
        EMBEDDING,
        HEAD,
        OPTIMIZER,
        STREAM,
        COLLECTIVES,
        P2P,
        OVERLAP,
        LINKS,
        COPIES,
        CPU_ADAM,
        DRIVE,
        POWER,
    )
}
"""Memory first: what was there before the others. Then what a step time depends on most."""
