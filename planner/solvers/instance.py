"""One pipeline to schedule: its stages on their ranks, their durations, and the memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costmodel.errors import SpecError
from costmodel.schedules.dependencies import waves_of
from costmodel.schedules.memory import peak_activations
from costmodel.schedules.program import Op, Pass, Placement, Program, placed, program_of
from costmodel.timeline import StageSeconds, Timeline, run

FORWARD, BACKWARD, WEIGHT = int(Op.FORWARD), int(Op.BACKWARD), int(Op.WEIGHT)
KINDS = (FORWARD, BACKWARD, WEIGHT)
OPS = (Op.FORWARD, Op.BACKWARD, Op.WEIGHT)
Order = list[list[Pass]]
"""Ops of each rank, in issue order."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What a schedule is wanted for."""

    pp: int
    vpp: int
    num_microbatches: int
    seconds: StageSeconds
    """Of one candidate; pp * vpp stages, which may differ."""
    p2p: float = 0.0
    """Seconds of a message between ranks."""
    memory_limit: int | None = None
    """Activations a rank may hold, of one micro batch through one virtual stage each, until the
    end of the weight gradient; null: pp * vpp, what 1F1B holds on its first rank."""
    placement: Placement | None = None
    """Which virtual stages share a rank; null: the best of those that fit."""

    @property
    def limit(self) -> int:
        """Activations a rank may hold."""
        return self.pp * self.vpp if self.memory_limit is None else self.memory_limit

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Placements to try; there and back again only where the way back ends on rank 0."""
        if self.placement is not None:
            return (self.placement,)
        return ("loop", "v") if self.vpp % 2 == 0 and self.pp > 1 else ("loop",)

    def checked(self) -> Problem:
        """The problem, if it can be solved.

        Raises:
            SpecError: A size is not positive, durations are missing, or no order fits the memory.
        """
        if min(self.pp, self.vpp, self.num_microbatches) < 1:
            raise SpecError("pp, vpp and num_microbatches of a pipeline are at least 1: raise them")
        stages = self.pp * self.vpp
        if self.seconds.forward.shape != (1, stages):
            raise SpecError(
                f"durations of shape {self.seconds.forward.shape} do not describe one pipeline of "
                f"{stages} stages: state one row with a duration for each of pp * vpp stages"
            )
        if self.limit < self.vpp:
            raise SpecError(
                f"memory_limit={self.limit}: no schedule fits, because the first micro batch goes "
                f"through all {self.vpp} virtual stages of a rank before its activations are "
                f"freed; the smallest limit that works is {self.vpp}"
            )
        return self


@dataclass(frozen=True)
class Instance:
    """A problem with its stages placed; durations in seconds or in any other unit."""

    problem: Problem
    placement: Placement
    durations: tuple[tuple[float, ...], ...]
    """Of F, B and W of every virtual stage; shape (kind, stage)."""
    p2p: float

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return self.problem.pp

    @property
    def num_stages(self) -> int:
        """Virtual stages."""
        return self.problem.pp * self.problem.vpp

    @property
    def num_microbatches(self) -> int:
        """Micro batches of a step."""
        return self.problem.num_microbatches

    @property
    def limit(self) -> int:
        """Activations a rank may hold; more than there are say nothing."""
        return min(self.problem.limit, self.problem.vpp * self.num_microbatches)

    @cached_property
    def stages(self) -> list[list[int]]:
        """Virtual stages of every rank, in the order of the pipeline."""
        return [
            sorted(row)
            for row in placed(self.placement, self.problem.pp, self.problem.vpp).tolist()
        ]

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
        """Seconds of a message between two stages. Source: derived."""
        return self.p2p if self.rank_of[stage] != self.rank_of[other] else 0.0

    def timeline(self, program: Program) -> Timeline:
        """A program on the clock, with the true durations."""
        return run(program, self.problem.seconds, self.problem.p2p)

    def program(self, order: Order) -> Program:
        """The program that runs ops in a given order."""
        return program_of(order, self.num_stages, self.num_microbatches)

    def starts(self, timeline: Timeline) -> dict[Pass, float]:
        """When every F, B and W starts, each behind what it needs.

        Both gradients in one op count as B, then W.
        """
        found: dict[Pass, float] = {}
        ops = timeline.program
        flat = np.concatenate([wave.op for wave in waves_of(ops)])
        rows, positions = np.divmod(flat, ops.kind.shape[1])
        for row, at in zip(rows.tolist(), positions.tolist(), strict=True):
            kind, stage, microbatch = (
                int(matrix[row, at]) for matrix in (ops.kind, ops.stage, ops.microbatch)
            )
            op = Pass(Op(kind), stage, microbatch)
            start = float(timeline.start[row, at])
            if op.kind == Op.WHOLE:
                found[op._replace(kind=Op.BACKWARD)] = start
                op, start = op._replace(kind=Op.WEIGHT), start + self.durations[BACKWARD][op.stage]
            found[op] = start
        return found

    def fits(self, program: Program) -> bool:
        """Does no rank ever hold more than it may?"""
        return bool((peak_activations(program) <= self.limit).all())


def instance(problem: Problem, placement: Placement) -> Instance:
    """A problem with its stages placed, in seconds."""
    seconds = problem.seconds
    parts = seconds.forward, seconds.backward - seconds.weight, seconds.weight
    durations = tuple(tuple(np.maximum(part[0], 0.0).tolist()) for part in parts)
    return Instance(problem, placement, durations, problem.p2p)
