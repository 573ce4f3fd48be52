"""What the cost model knows of one schedule, and bounds that no order of its work can beat.

Every rank of a class waits for its first micro batch, runs all its work, and its last gradient
still has to travel home. With both gradients in one op:

    T >= before_F + m (F + B + W) + before_(B + W)                                     (1)

with `before` the ranks (and messages) ahead of it. All terms are lengths of paths in the graph the
simulator runs, or time in which a rank has nothing it may run, so none can exceed the simulated
time (tests/properties/test_bounds.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn, IntColumn, IntMatrix
from trainplan.costmodel.program import Placement, Program, RelativeSeconds, Shape


@dataclass(frozen=True, slots=True)
class RankSeconds:
    """Seconds of each rank class."""

    forward: ClassRows
    """Forward passes of one micro batch through the rank."""
    backward: ClassRows
    """Both gradients of one micro batch."""
    weight: ClassRows
    """Part of `backward` that a schedule with split backward passes runs separately; else 0."""
    reach: ClassRows
    """One micro batch's way to the rank, messages included."""
    home: ClassRows
    """Its gradient's way back from the rank: what the schedule runs before it sends."""
    unsynchronised: BoolColumn
    """Of each row: a step is counted from each rank's own first pass, see `unsynchronised`."""

    @property
    def pair(self) -> ClassRows:
        """Forward and backward of one micro batch.

        Source: a rank runs one pass at a time, so a micro batch keeps it busy for the seconds of
        one pass and then of the other.
        """
        return self.forward + self.backward


@dataclass(frozen=True, slots=True)
class Work:
    """Work of the rows a schedule bounds, one by one."""

    seconds: RankSeconds
    rank: ClassRows
    """Ranks before it."""
    pp: IntColumn
    microbatches: IntColumn


def earliest_ends(work: RankSeconds, microbatches: IntColumn) -> FloatColumn:
    """Seconds before which no rank class can have finished its passes.

    Source: derived; its first micro batch has to reach it, then it runs all its work. Counted from
    its own first pass, only the work is left.
    """
    passes = work.reach + microbatches * work.pair
    return passes - work.unsynchronised * work.reach if work.unsynchronised.any() else passes


def whole_backward_bound(work: Work) -> FloatColumn:
    """Bound of a schedule that runs both gradients in one op.

    Source: derived; equation (1) of this module. The path starts and ends on rank 0.
    """
    seconds = work.seconds
    bound = seconds.reach + work.microbatches * seconds.pair + seconds.home
    return np.asarray(bound.max(axis=0))


def split_backward_bound(work: Work, in_flight: IntColumn) -> FloatColumn:
    """Bound of a schedule that sends the input gradient before it runs the weight gradient.

    One virtual stage a rank; no rank ever holds more than M = `in_flight` micro batches. With R the
    way of a micro batch from a rank to the last one and back (B only):

    * from a rank's first pass to its first B it waits R + F and may run at most M forward passes;
    * from the end of its last F to the B of that micro batch it waits R, and may run B and W of
      the M - 1 other micro batches it holds. The two times are separate where M < m. So

          T >= before_F + m (F + B + W) + max(0, R + F - M F) + max(0, R - (M - 1)(B + W))

    * the last B of a rank still goes home by B only, where its W is left:

          T >= before_F + max(0, R + F - M F) + m (F + B) + before_B + W of rank 0

    Counted from a rank's own first pass, the first loses before_F; the second starts at rank 0.
    Source: derived; a relaxation of Qi et al., arXiv:2401.10241, section 3.2.
    """
    seconds, m = work.seconds, work.microbatches
    input_pair = seconds.pair - seconds.weight
    way = seconds.reach + seconds.home + input_pair
    beyond = np.maximum(0.0, way.max(axis=0) - way)
    most = np.minimum(in_flight, m)
    before = np.maximum(0.0, beyond + seconds.forward - most * seconds.forward)
    after = np.maximum(0.0, beyond - (in_flight - 1) * seconds.backward)
    idle = np.where(in_flight < m, before + after, np.maximum(before, after))
    own = earliest_ends(seconds, m) + idle
    last = ((work.rank == 0) * seconds.weight).max(axis=0)
    path = seconds.reach + before + m * input_pair + seconds.home + last
    return np.asarray(np.maximum(own, path).max(axis=0))


def split_chunks_bound(work: Work) -> FloatColumn:
    """Bound of a schedule with split backward passes, for any virtual stages on a rank.

    A rank's last B follows all its F and B, and goes home from its first virtual stage at least:

        T >= before_F + m (F + B + W)        T >= before_F + m (F + B) + before_B

    Source: derived; counted from a rank's own first pass, the first loses before_F, and the second
    starts and ends on rank 0.
    """
    seconds, m = work.seconds, work.microbatches
    path = seconds.reach + m * (seconds.pair - seconds.weight) + seconds.home
    return np.asarray(np.maximum(earliest_ends(seconds, m), path).max(axis=0))


ALL_MICROBATCHES = 1 << 32
"""`rounds_to_fill` of a schedule that holds every micro batch of a step, however many."""


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """Where a schedule does not run."""

    message: str
    """What it needs, and what to change; shown to the user."""
    broken: Callable[[IntColumn, IntColumn, IntColumn], BoolColumn]
    """(pp, vpp, num_microbatches) -> is the rule broken?"""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: its program, the memory it holds, its bound, and where it is legal."""

    program: Callable[[Shape, RelativeSeconds], Program]
    """Ops of every rank."""
    held: Callable[[int, IntMatrix], FloatColumn]
    """(num_microbatches, layers of each (rank, chunk)) -> passes in flight on each rank when it
    holds most layers, of the same shape."""
    bound: Callable[[Work], FloatColumn]
    """Seconds no simulated run goes below."""
    rounds_to_fill: int
    """After this many times pp micro batches no rank ever holds more.

    Source: from there on the order of each rank repeats, and so does what it holds;
    tests/unit/costmodel/schedules/test_schedules.py compares longer steps.
    """
    placement: Placement = "loop"
    """Which virtual stages share a rank."""
    least_vpp: int = 1
    most_vpp: int = 1
    """Virtual stages on one rank it runs with."""
    rules: tuple[ShapeRule, ...] = ()
    """What else it needs of pp, vpp and the number of micro batches; a stated microbatch group
    size takes their place, and the program checks it."""
    options: frozenset[str] = frozenset()
    """Fields of `Shape` beyond the first three that it reads."""
    splits_backward: bool = False
    """Weight gradients are ops of their own."""
    adapts: bool = False
    """The order depends on relative durations; otherwise the program ignores them."""
    repeats: bool = False
    """Between warm-up and drain every rank repeats the same ops, `pp` micro batches a cycle."""
    forward_first: bool = False
    """Every forward pass of a stage ends before its first backward pass begins."""
    stage_by_stage: Literal["never", "in one group", "always"] = "never"
    """Each virtual stage of a rank ends all of its backward passes before the next begins: never,
    where all micro batches of a step are one group, or always."""

    @property
    def alternates(self) -> bool:
        """Does each rank run forward and whole backward passes in turn?

        The same for every micro batch, or for every group of `pp` where a rank has several stages.
        """
        return self.repeats and not self.splits_backward

    def refuse(self, name: str, shape: Shape) -> None:
        """Check a shape.

        Raises:
            SpecError: The schedule does not run in this shape, with the rule it breaks.
        """
        pp, vpp, m = shape.pp, shape.vpp, shape.num_microbatches
        if min(pp, vpp, m, shape.sequence_chunks) < 1:
            raise SpecError("pp, vpp, num_microbatches and sequence_chunks are at least 1")
        if not self.least_vpp <= vpp <= self.most_vpp:
            raise SpecError(f"{name} runs {self.vpp_text()}, not vpp={vpp}: change vpp")
        given = {
            "microbatch_group_size": shape.microbatch_group_size is not None,
            "memory_limit": shape.memory_limit is not None,
            "sequence_chunks": shape.sequence_chunks > 1,
        }
        for option, stated in given.items():
            if stated and option not in self.options:
                raise SpecError(f"{name} has no {option}: leave it out")
        columns = np.array([pp]), np.array([vpp]), np.array([m])
        for rule in () if shape.microbatch_group_size else self.rules:
            if rule.broken(*columns).any():
                where = f"pp={pp}, vpp={vpp}, num_microbatches={m}"
                raise SpecError(f"{name} does not run with {where}: {rule.message}")

    def vpp_text(self) -> str:
        """Virtual stages it runs with, for a message."""
        if self.least_vpp == self.most_vpp:
            return f"with vpp={self.least_vpp}"
        return f"with vpp >= {self.least_vpp}"


def held_throughout(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
    """Passes in flight of a schedule that holds every micro batch. Source: that of its program."""
    return np.full(layers.shape, float(num_microbatches))
