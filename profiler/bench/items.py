"""What can be measured, in measuring order: to add a sort, add its file and its line here."""

from collections.abc import Mapping

from trainplan.profiler.bench.attention import ATTENTION
from trainplan.profiler.bench.collectives import COLLECTIVES, P2P
from trainplan.profiler.bench.copies import COPIES
from trainplan.profiler.bench.drive import DRIVE
from trainplan.profiler.bench.embedding_and_head import EMBEDDING, HEAD
from trainplan.profiler.bench.gemm import GEMM
from trainplan.profiler.bench.layer import LAYER
from trainplan.profiler.bench.links import LINKS
from trainplan.profiler.bench.memory import MEMORY
from trainplan.profiler.bench.offloaded_step import OFFLOADED_STEP
from trainplan.profiler.bench.optimizer import CPU_ADAM, OPTIMIZER
from trainplan.profiler.bench.overlap import OVERLAP
from trainplan.profiler.bench.power import POWER
from trainplan.profiler.bench.stream import STREAM
from trainplan.profiler.task import Item

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
        OFFLOADED_STEP,
        POWER,
    )
}
"""Memory first: what was there before the others. Then what a step time depends on most."""
