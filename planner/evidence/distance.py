"""How different an answer and a published run are.

The distance adds one for every factor of two between their sizes and degrees, and for every thing
that differs; a GPU of another architecture, a runtime of another family and a model of another kind
count two. It orders the runs for a reader and decides nothing: no answer depends on it.

Source: a convention, nothing is fitted; what is added up is in docs/explanation/search.md.
"""

import heapq
from collections.abc import Callable, Sequence
from math import log2
from operator import attrgetter

from trainplan.costmodel import catalog
from trainplan.costmodel.base import CatalogError
from trainplan.costmodel.documents import PublishedRun, Shape
from trainplan.planner.evidence.shape import family_of

SIZES = (
    *("parameters", "seq_length", "micro_batch_size"),
    *("tp", "pp", "vpp", "cp", "dp", "ep", "etp", "dp_replicate"),
)
"""Numbers of which a factor of two counts one."""
SAME_WIDTH = {"fp16": "bf16"}
"""Precisions that count as another: as fast, as large."""
_sizes = attrgetter(*SIZES)


def distance(one: Shape, other: Shape) -> float:
    """How different two runs are; 0 where all that is compared is the same."""
    doublings = sum(
        abs(log2(a / b)) for a, b in zip(_sizes(one), _sizes(other), strict=True) if a != b
    )
    return (
        doublings
        + _separate(one.gpu, other.gpu, architecture)
        + _separate(one.runtime, other.runtime, family_of)
        + 2.0 * len(({*one.kind} ^ {*other.kind}) - {"dense"})
        + (
            SAME_WIDTH.get(one.precision, one.precision)
            != SAME_WIDTH.get(other.precision, other.precision)
        )
        + (one.zero_stage != other.zero_stage)
        + (one.schedule != other.schedule)
        + (one.recompute != other.recompute)
        + (bool(one.offload_optimizer) != bool(other.offload_optimizer))
        + (one.offload_modules != other.offload_modules)
        + _otherwise(one.settings, other.settings)
    )


def nearest(
    shape: Shape, runs: Sequence[PublishedRun], most: int
) -> tuple[tuple[float, PublishedRun], ...]:
    """The nearest runs with their distances, the nearest first; of equal runs the last counts."""
    unlike = {run.shape: run for run in runs}
    pairs = [(distance(shape, one), run) for one, run in unlike.items()]
    return tuple(heapq.nsmallest(most, pairs, key=lambda pair: pair[0]))


def _separate(one: str, other: str, group: Callable[[str], str]) -> float:
    """0 for the same, 1 for two of a group, else 2."""
    if one == other:
        return 0.0
    return 1.0 if group(one) == group(other) else 2.0


def _otherwise(one: Sequence[str], other: Sequence[str]) -> int:
    """Settings that both have, with different values."""
    values = dict(setting.split("=") for setting in one)
    pairs = (setting.split("=") for setting in other)
    return sum(values.get(name, value) != value for name, value in pairs)


def architecture(gpu: str) -> str:
    """Architecture of a GPU, or of the kinds of a mixed cluster; its name where it is unknown."""
    try:
        return " ".join(dict.fromkeys(catalog.gpu(name).architecture for name in gpu.split()))
    except CatalogError:
        return gpu
