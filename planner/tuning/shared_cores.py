"""Processes that share the cores of a machine without GPUs: one that waits lends its core."""

import numpy as np

from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.step import price, with_overhead


def shared_core_seconds(candidates: Candidates, processes_per_core: float) -> FloatColumn:
    """Step time of every row at least, where more processes run than there are cores.

    Source: derived; cores do one process's work at a time, so a step takes the work of all ranks
    over the cores: the mean rank's busy seconds times the processes on a core. A bubble is no work.
    """
    priced = price(candidates, merged=False)
    pairs = priced.work.pair
    there = np.arange(len(pairs))[:, None] < priced.table.pp
    passes = priced.microbatches * (pairs * there).sum(axis=0) / priced.table.pp
    work = passes + priced.dp_comm + priced.update
    return np.asarray(with_overhead(candidates.machine, processes_per_core * work))
