"""Galvatron's shipped Llama-2-7B on 8 GPUs, solved under its own definition of time and memory.

Galvatron takes every number of micro batches, stages, kind of tensor split and way to run the
embedding; for each it picks the ways of the layers of every stage by dynamic programming over the
time of one micro batch, and only then asks what the pipeline takes (search_engine.py,
dynamic_programming.py). We ask for the pipeline's time at once. With `C_i` seconds of a micro batch
on stage `i` and `S_i` those of its layers with the sum of the gradients, a step of m micro batches
on p stages takes (cost_model_handler.py, m >= p)

    max(sum C + (m - 1) C_last,  m C_0,  sum C + (m - p) C_0)
        + max(0, max over i of (S_i - C_0 - ... - C_i))

Its charge for going from one split to another between layers is in its dynamic programme and not
in this formula, so it is not here either. Layers are alike: how many of each stage run in each way
is all there is to decide, and a stage has one need, its MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from galvatron_costs import (
    WORLD_SIZE,
    Measured,
    Run,
    Way,
    ends_mib,
    ends_seconds,
    layer_mib,
    layer_seconds,
)
from relaxed import Case, relaxed_value

from trainplan.planner.solvers.layer_assignment import LayerAssignment

if TYPE_CHECKING:
    from trainplan.costmodel.columns import FloatColumn

BIG_GIB = 20
CACHE_FRACTION = 0.2
"""Of memory above BIG_GIB, kept for torch. Source: dynamic_programming.py, `mem_cache`."""
DEGREES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of Galvatron."""

    memory_gib: int
    batch: int = 64
    chunks: int | None = None
    """Micro batches; None for every divisor of the batch."""

    @property
    def room_mib(self) -> int:
        """MiB for a stage."""
        mib = self.memory_gib * 1024
        return mib - (int(mib * CACHE_FRACTION) if self.memory_gib > BIG_GIB else 0)

    @property
    def runs(self) -> list[Run]:
        """Every number of micro batches."""
        chunks = range(1, self.batch + 1) if self.chunks is None else [self.chunks]
        return [Run(self.batch, m) for m in chunks if self.batch % m == 0]


class Frame(NamedTuple):
    """What one of its searches has in common: everything but the ways of the layers."""

    run: Run
    pp: int
    ulysses: bool
    """Only all-to-all between the ranks of a sample; else that or tensor parallelism."""
    most_split: int
    ends: Way

    @property
    def ways(self) -> list[Way]:
        """Ways to run a layer."""
        return ways(self.run, self.pp, ulysses=self.ulysses, most_split=self.most_split)

    @property
    def text(self) -> str:
        """In words."""
        split = "sp" if self.ulysses else f"tp or sp <= {self.most_split}"
        return f"{self.run.chunks} micro batches, pp {self.pp}, {split}, ends {way_text(self.ends)}"


def way_text(way: Way) -> str:
    """A way in words."""
    split = f"tp{way.tp} " if way.tp > 1 else f"sp{way.sp} " if way.sp > 1 else ""
    sharded = " zero3" if way.zero3 else ""
    return f"{split}dp{way.dp}{sharded}{' recompute' if way.recompute else ''}"


def ways(run: Run, pp: int, *, ulysses: bool, most_split: int) -> list[Way]:
    """Ways to run a layer. Source: search_engine.py, `filter_strategies_for_single_task`."""
    ranks = WORLD_SIZE // pp
    most_dp = max(1, min(run.batch // run.chunks, ranks))
    found = []
    for split in DEGREES:
        dp = ranks // split
        if split > min(ranks, most_split) or dp > most_dp:
            continue
        for zero3 in (False, True)[: 1 + (dp > 1)]:
            for recompute in (False, True):
                found.append(Way(pp, 1, split, dp, zero3, recompute))
                if split > 1 and not ulysses:
                    found.append(Way(pp, split, 1, dp, zero3, recompute))
    return found


def frames(question: Question) -> Iterator[Frame]:
    """Its searches but those with tensor parallelism alone.

    The ones with both kinds have as much memory and all their ways.
    """
    for run in question.runs:
        for pp in DEGREES:
            if pp > run.chunks:
                continue
            ranks = WORLD_SIZE // pp
            least = ranks // max(1, min(run.batch // run.chunks, ranks))
            for ulysses in (True, False):
                buffers = (ranks,) if ulysses else [d for d in DEGREES if least <= d <= ranks]
                for most in buffers:
                    for ends in ways(run, pp, ulysses=ulysses, most_split=most):
                        if not ends.recompute:
                            yield Frame(run, pp, ulysses, most, ends)


def gather_buffer_mib(of: Measured, frame: Frame) -> int:
    """Kept for all-gathers where there may be any.

    Source: dynamic_programming.py, `global_memory`.
    """
    if frame.ulysses:
        return 0
    dp = WORLD_SIZE // frame.pp // frame.most_split
    samples = frame.run.batch / frame.run.chunks / dp
    return int(samples * of.message_mib(1))


def stage_layers(num_layers: int, pp: int) -> list[int]:
    """Even; the last stage takes the rest. Source: search_engine.py, `pp_division_even`."""
    each = num_layers // pp
    return [each] * (pp - 1) + [num_layers - each * (pp - 1)]


def filling(of: Measured, frame: Frame, room_mib: int) -> LayerAssignment:
    """One of its searches as counts of layers: the formula of the module, in two groups of rows.

    A cost must not be negative, and the second maximum subtracts. Every stage has a fixed number of
    layers, so what a layer subtracts is written as what it costs less than the dearest way.
    """
    run, pp = frame.run, frame.pp
    choice = frame.ways
    seconds = [layer_seconds(of, run, way) for way in choice]
    alone = np.array([each.alone for each in seconds])
    synced = np.array([each.synced for each in seconds])
    ends = np.array([ends_seconds(of, run, frame.ends, i) for i in range(pp)])
    layers = np.array(stage_layers(of.num_layers, pp))
    weights = _pipeline_weights(run.chunks, pp)
    before = np.vstack([np.zeros(pp), np.tri(pp)])
    late = before[:, :, None] * (alone.max() - alone)
    late[1:] += np.eye(pp)[:, :, None] * synced
    needs = np.zeros((pp, pp, len(choice)))
    for stage in range(pp):
        needs[stage, stage] = [layer_mib(of, run, way, stage) for way in choice]
    kept = gather_buffer_mib(of, frame)
    return LayerAssignment(
        layers=(0,) * of.num_layers,
        kind_of_way=(0,) * len(choice),
        costs=np.concatenate([weights[:, :, None] * alone, late]),
        constants=np.concatenate([weights @ ends, -before @ (ends + layers * alone.max())]),
        group=np.array([0] * len(weights) + [1] * len(late)),
        needs=needs,
        capacities=np.array(
            [float(room_mib - kept - ends_mib(of, run, frame.ends, i)) for i in range(pp)]
        ),
        least=layers,
        most=layers,
    )


def _pipeline_weights(chunks: int, pp: int) -> FloatColumn:
    """How often each stage counts in the three rows of the first maximum."""
    rows = np.ones((3, pp))
    rows[0, -1] += chunks - 1
    rows[1] = 0
    rows[1, 0] = chunks
    rows[2, 0] += chunks - pp
    return rows


def cases(of: Measured, question: Question) -> list[Case]:
    """All searches with room for what is not layers, each with its bound."""
    found = []
    for frame in frames(question):
        problem = filling(of, frame, question.room_mib)
        if (problem.capacities >= 0).all():
            words = tuple(way_text(way) for way in frame.ways)
            found.append(Case(frame.text, problem, relaxed_value(problem), words))
    return found
