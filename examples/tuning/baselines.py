"""What other tuners would try: the same launches, the same budget, no belief.

Each yields one layout after the other and is told how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from jobs import Question

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.layouts import BoolColumn, FloatColumn
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import Job, Layout
from trainplan.costmodel.spec.evidence.trial import Outcome
from trainplan.planner import check
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

    Interleaved with one layer a stage where pp > 2, recomputation off, distributed optimizer.
    Source: `Question.nemo_tp`, and _set_activations_checkpoint_params of the same file.
    """
    question = known.question
    job, gpus = question.job, question.job.cluster.num_gpus
    grid = []
    for tp in question.nemo_tp:
        for pp in question.nemo_pp:
            for mbs in question.nemo_mbs:
                vpp = job.model.num_hidden_layers // pp if pp > 2 else 1
                layout = _layout(job, tp, pp, vpp, gpus // (tp * pp), 1, mbs)
                if layout:
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
    gpus, stages = job.cluster.num_gpus, traits_of(job).sharding.zero_stages
    sizes = [2**n for n in range(8)]
    for tp in (1, 2, 4, 8):
        fitting = [
            [
                s
                for s in sizes
                if (one := _layout(job, tp, 1, 1, gpus // tp, z, s)) and _fits(job, one)
            ]
            for z in stages
        ]
        if any(fitting):
            break
    else:
        return
    leanest = [z for z, some in zip(stages, fitting, strict=True) if some][-1]
    found = _layout(job, tp, 1, 1, gpus // tp, leanest, 1)
    if found:
        yield job, found
    for stage, some in zip(stages, fitting, strict=True):
        if not some:
            continue
        order = [some[0], some[-1], *some[-2:0:-1]][:MOST_MICRO_BATCHES]
        for size in dict.fromkeys(order):
            one = _layout(job, tp, 1, 1, gpus // tp, stage, size)
            assert one
            outcome = yield job, one
            if outcome.ending != "measured" and size == some[0]:
                break


def _layout(job: Job, tp: int, pp: int, vpp: int, dp: int, zero: int, size: int) -> Layout | None:
    """A layout, where it is legal."""
    schedule = "interleaved" if vpp > 1 else "1f1b"
    titan = job.runtime == "torchtitan"
    if titan and pp > 1 and vpp > 1:
        schedule = "interleaved"
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        zero_stage=zero,
        micro_batch_size=size,
        sequence_parallel=tp > 1,
        schedule=schedule,
    )
    try:
        check(job, layout)
    except PlanError:
        return None
    return layout


def _fits(job: Job, layout: Layout) -> bool:
    from trainplan.planner import estimate

    return estimate(job, layout, memory_margin=1 - MARGIN).memory.fits


BASELINES: dict[str, Callable[[Known, np.random.Generator], Tuner]] = {
    "random": by_chance,
    "by price": by_price,
    "NeMo grid": nemo,
    "DeepSpeed autotuner": deepspeed,
}
