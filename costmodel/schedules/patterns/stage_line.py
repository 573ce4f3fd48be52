"""One copy of a model on its ranks: what F, B and W of every stage need, and how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trainplan.costmodel.program import Op, Pass, Program, program_of

FORWARD, BACKWARD, WEIGHT = int(Op.FORWARD), int(Op.BACKWARD), int(Op.WEIGHT)
KINDS = (FORWARD, BACKWARD, WEIGHT)
OPS = (Op.FORWARD, Op.BACKWARD, Op.WEIGHT)
Order = list[list[Pass]]
"""Ops of each rank, in issue order."""


@dataclass(frozen=True)
class Line:
    """A pipeline whose backward passes are split; durations in any unit."""

    stages: Sequence[Sequence[int]]
    """Virtual stages of every rank, in the order of the pipeline."""
    num_microbatches: int
    durations: Sequence[Sequence[float]]
    """Of F, B and W of every virtual stage; shape (kind, stage)."""
    p2p: float
    """Of a message between ranks."""
    limit: int
    """Activations a rank may hold, of one micro batch through one virtual stage each."""

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return len(self.stages)

    @cached_property
    def num_stages(self) -> int:
        """Virtual stages."""
        return sum(map(len, self.stages))

    @cached_property
    def rank_of(self) -> list[int]:
        """Rank of every virtual stage."""
        pairs = [(stage, rank) for rank, row in enumerate(self.stages) for stage in row]
        return [rank for _, rank in sorted(pairs)]

    def source(self, kind: int, stage: int) -> tuple[int, int] | None:
        """Kind and stage of the op whose output an op needs."""
        if kind == WEIGHT:
            return BACKWARD, stage
        if kind == BACKWARD:
            last = stage == self.num_stages - 1
            return (FORWARD, stage) if last else (BACKWARD, stage + 1)
        return (FORWARD, stage - 1) if stage > 0 else None

    def consumers(self, kind: int, stage: int) -> list[tuple[int, int]]:
        """Kinds and stages of the ops that need the output of an op."""
        around = [(FORWARD, stage + 1), (BACKWARD, stage), (BACKWARD, stage - 1), (WEIGHT, stage)]
        return [
            (other, at)
            for other, at in around
            if 0 <= at < self.num_stages and self.source(other, at) == (kind, stage)
        ]

    def latency(self, stage: int, other: int) -> float:
        """Seconds of a message between two stages.

        Source: stages of one rank share its memory and send nothing; between two ranks a message
        takes `p2p`, whichever stages they are of.
        """
        return self.p2p if self.rank_of[stage] != self.rank_of[other] else 0.0

    def program(self, order: Order) -> Program:
        """The program that runs ops in a given order."""
        return program_of(order, self.num_stages, self.num_microbatches)
