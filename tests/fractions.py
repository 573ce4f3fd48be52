"""Fractions of the optimizer that a runtime may offload, few enough to list."""

from contextlib import contextmanager

import numpy as np

from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes.registry import RUNTIMES

QUARTER = 0.25


@contextmanager
def steps_of(step):
    """The search takes multiples of a step, as if no file held finer fractions."""
    known = {
        id(one.offloading): (one.offloading, one.offloading.optimizer_step)
        for one in RUNTIMES.values()
        if one.offloading.optimizer_step is not None
    }
    for offloading, _ in known.values():
        object.__setattr__(offloading, "optimizer_step", step)
    yield
    for offloading, before in known.values():
        object.__setattr__(offloading, "optimizer_step", before)


def every_fraction(traits):
    """All fractions that a search may take."""
    step = traits.offloading.optimizer_step
    return [0.0] if step is None else np.linspace(0, 1, round(1 / step) + 1).tolist()


def with_every_fraction(traits, table):
    """All rows with each of these fractions, one fraction after the other."""
    return LayoutTable.concat(
        table.replaced(offload_optimizer=np.full(len(table), fraction))
        for fraction in every_fraction(traits)
    )
