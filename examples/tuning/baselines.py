"""What other tuners would try: the same launches, the same budget, no belief.

Each yields one layout after the other and is told how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import product

import numpy as np
from jobs import Question

from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.documents.calibration import Outcome
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.planner import check, estimate
from trainplan.planner.tuning.contenders import Contenders

Tuner = Generator[tuple[Job, Layout], Outcome, None]
MARGIN = 0.95
"""Share of memory that a search fills (`SearchOptions.memory_margin`)."""
MOST_MICRO_BATCHES = 3
"""Of a ZeRO stage. Source: deepspeedai/DeepSpeed@edaa7221, autotuning/constants.py."""


@dataclass(frozen=True)
class Known:
    """What every tuner may know: contenders with the prices of the plan."""

    question: Question
    universe: Contenders
    seconds: FloatColumn
    filled: FloatColumn
    """Share of memory by the model."""

    @property
    def fits(self) -> BoolColumn:
        """By the model."""
        return np.asarray(self.filled <= MARGIN)


def by_chance(known: Known, draw: np.random.Generator) -> Tuner:
    """Contenders that fit by the model, in any order."""
    for row in draw.permutation(np.flatnonzero(known.fits)).tolist():
        yield known.universe.at(row)


def by_price(known: Known, draw: np.random.Generator) -> Tuner:
    """Contenders that fit by the model, the fastest by the model first."""
    rows = np.flatnonzero(known.fits)
    for row in rows[np.argsort(known.seconds[rows], kind="stable")].tolist():
        yield known.universe.at(row)


def nemo(known: Known, draw: np.random.Generator) -> Tuner:
    """NeMo's grid of tp, pp and micro batch, in any order: its tool runs all of it.

    Interleaved with one layer a stage where pp > 2, recomputation off, states sharded.
    Source: `jobs.Nemo`, and _set_activations_checkpoint_params of the same file.
    """
    job, request = known.question.job, known.question.nemo
    zero = min(stage for stage in traits_of(job).sharding.zero_stages if stage)
    grid = []
    for tp, pp, size in product(request.tp, request.pp, request.mbs):
        vpp = job.model.num_hidden_layers // pp if pp > 2 else 1
        layout = _layout(job, tp, pp, zero, size, vpp=vpp)
        if layout and tp * pp >= request.least:
            grid.append(layout)
    for place in draw.permutation(len(grid)).tolist():
        yield job, grid[place]


def deepspeed(known: Known, draw: np.random.Generator) -> Tuner:
    """DeepSpeed's autotuner: ZeRO stages in order, of each the least micro batch, then the largest.

    Degrees are the user's: the fewest tp with which some stage fits by the model. The first run
    profiles the model, at the leanest stage. A stage ends at a micro batch that does not run.
    Source: deepspeedai/DeepSpeed@edaa7221, deepspeed/autotuning/autotuner.py, tune and tune_space.
    """
    job = known.question.job
    stages, sizes = traits_of(job).sharding.zero_stages, [2**n for n in range(8)]
    for tp in (1, 2, 4, 8):
        fitting = [[s for s in sizes if _fits(job, _layout(job, tp, 1, z, s))] for z in stages]
        if any(fitting):
            break
    else:
        return
    smallest = max(z for z, some in zip(stages, fitting, strict=True) if some)
    profiled = _layout(job, tp, 1, smallest, 1)
    if profiled:
        yield job, profiled
    for stage, some in zip(stages, fitting, strict=True):
        order = [*some[:1], *some[:0:-1]][:MOST_MICRO_BATCHES]
        for size in order:
            one = _layout(job, tp, 1, stage, size)
            assert one
            outcome = yield job, one
            if outcome.ending != "measured" and size == order[0]:
                break


def _layout(job: Job, tp: int, pp: int, zero: int, size: int, *, vpp: int = 1) -> Layout | None:
    """A layout, where it is legal."""
    if job.cluster.num_gpus % (tp * pp):
        return None
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=job.cluster.num_gpus // (tp * pp),
        zero_stage=zero,
        micro_batch_size=size,
        sequence_parallel=tp > 1,
        schedule="interleaved" if vpp > 1 else "1f1b",
    )
    try:
        check(job, layout)
    except PlanError:
        return None
    return layout


def _fits(job: Job, layout: Layout | None) -> bool:
    return layout is not None and estimate(job, layout, memory_margin=1 - MARGIN).memory.fits


BASELINES: dict[str, Callable[[Known, np.random.Generator], Tuner]] = {
    "random": by_chance,
    "by price": by_price,
    "NeMo grid": nemo,
    "DeepSpeed autotuner": deepspeed,
}
