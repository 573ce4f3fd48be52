"""Classes of torch.distributed.pipelining that run a schedule.

Source: PyTorch v2.13.0 `distributed/pipelining/schedules.py`, get_schedule_class.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainplan.costmodel.layout import Layout, Schedule

TORCH_CLASSES: Mapping[Schedule, str] = MappingProxyType(
    {
        "1f1b": "1F1B",
        "interleaved": "Interleaved1F1B",
        "gpipe": "GPipe",
        "breadth-first": "LoopedBFS",
        "zb-v": "ZBVZeroBubble",
        "dualpipe-v": "DualPipeV",
    }
)
"""Class of a schedule, without the word Schedule before it."""
SPLIT_INTERLEAVED = "InterleavedZeroBubble"
"""zb-h1 of several virtual stages a rank."""


def torch_class(layout: Layout) -> str | None:
    """Class that runs the schedule of a layout; null: a table of its ops is needed."""
    if layout.schedule == "zb-h1" and layout.vpp > 1:
        return SPLIT_INTERLEAVED
    return TORCH_CLASSES.get(layout.schedule)
