"""What every op of a program waits for, and the order in which ops can run."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.columns import BoolColumn, FloatMatrix, IntColumn, IntMatrix
from trainplan.costmodel.program.held_activations import AHEAD
from trainplan.costmodel.program.ops import Op, Program

NOTHING = -1
"""Stands for "no input": an op that can run at once."""
KINDS = len(Op) - 1
"""Kinds of op that do something."""


class Step(NamedTuple):
    """One wave, as its numpy steps read it."""

    first: int
    """Place where it begins."""
    last: int
    """Place behind it."""
    before: IntColumn
    """Place of the op before on the same row; the number of all ops for none."""
    inputs: tuple[IntColumn, ...]
    """Places of each other input."""
    crosses: FloatMatrix
    """1.0 where it comes from another rank; shape (input, op, 1)."""
    duration: IntColumn
    """As in `Waves`."""


@dataclass(frozen=True, slots=True)
class Waves:
    """Ops in an order in which they can run; the place of an op is its number in that order.

    A wave is ops that can run at the same time, at most one on each row. Op `position` of `row` has
    the flat index `row * positions + position`.
    """

    op: IntColumn
    """Flat index of the op at each place."""
    starts: IntColumn
    """Place where each wave begins, and where the last one ends."""
    inputs: IntMatrix
    """Places of the op before on the same row and of the ops whose output each op needs, or -1;
    shape (input, place)."""
    hops: BoolColumn
    """Does that output come from another rank? Shape (input, place)."""
    duration: IntColumn
    """Kind of op * passes a stage has durations for + that pass: its place in a list of them."""
    place: IntColumn
    """Place of each op by flat index; -1 where there is none, as behind the last."""
    steps: tuple[Step, ...]
    """The waves one by one."""

    def __len__(self) -> int:
        return len(self.starts) - 1


def sources(program: Program) -> IntMatrix:
    """Flat index of the inputs of every op, or -1; shape (input, row, position).

    Forward passes need the stage before, backward passes the stage after; the last stage turns
    around by itself. A weight gradient follows its B. A chunk of a sequence needs the keys and
    values of the chunk before it, and their gradients the chunk behind it. What an action of
    several ops sends to another rank comes from its last op.

    Raises:
        SpecError: An op needs an output that no rank makes.
    """
    where = _where(program)
    inputs = [_along_the_pipeline(program, where)]
    if program.sequence_chunks > 1:
        inputs.append(_along_the_sequence(program, where))
    if program.barriers:
        inputs.extend(_across_ranks(program, where))
    if program.copy_lanes:
        inputs.extend(_copied(program, where))
    needed_op = np.stack(inputs)
    missing = np.argwhere(needed_op < NOTHING)
    if len(missing):
        _, row, position = missing[0].tolist()
        raise SpecError(
            f"{op_text(program, row, position)} of rank {row % program.pp} needs the output of a "
            "neighbouring stage that no rank computes: complete the schedule"
        )
    if program.joint is None:
        return needed_op
    rank = np.arange(len(program.kind))[:, None] % program.pp
    crosses = (needed_op != NOTHING) & (needed_op // program.kind.shape[1] % program.pp != rank)
    return np.where(crosses, program.action_ends[needed_op], needed_op)


MISSING = NOTHING - 1


def _where(program: Program) -> IntMatrix:
    """Flat index of every op by (kind, stage, micro batch); `MISSING` where there is none.

    WHOLE is filed as BACKWARD.
    """
    stages = max(program.all_stages, program.pp)
    where = np.full((KINDS, stages, program.passes), MISSING, dtype=np.int64)
    flat = np.arange(program.kind.size).reshape(program.kind.shape)
    real = program.kind != Op.NONE
    kind = np.where(program.kind == Op.WHOLE, int(Op.BACKWARD), program.kind)
    where[kind[real], program.stage[real], program.microbatch[real]] = flat[real]
    return where


def _along_the_pipeline(program: Program, where: IntMatrix) -> IntMatrix:
    kind, stage, microbatch = program.kind, program.stage, program.microbatch
    place = stage % program.num_stages
    first, last = place == 0, place == program.num_stages - 1
    before = where[Op.FORWARD, np.maximum(stage - 1, 0), microbatch]
    behind = np.minimum(stage + 1, where.shape[1] - 1)
    after = where[Op.BACKWARD, behind, microbatch]
    own = where[Op.FORWARD, stage, microbatch]
    needed = np.full(kind.shape, NOTHING, dtype=np.int64)
    needed = np.where(kind == Op.FORWARD, np.where(first, NOTHING, before), needed)
    backward = (kind == Op.BACKWARD) | (kind == Op.WHOLE)
    needed = np.where(backward, np.where(last, own, after), needed)
    needed = np.where(kind == Op.WEIGHT, where[Op.BACKWARD, stage, microbatch], needed)
    end = where[Op.FORWARD, program.num_stages - 1, microbatch]
    needed = np.where(kind == Op.VOCAB_FORWARD, end, needed)
    return np.where(kind == Op.OFFLOAD, own, needed)


def _along_the_sequence(program: Program, where: IntMatrix) -> IntMatrix:
    kind, stage, microbatch = program.kind, program.stage, program.microbatch
    chunk = microbatch % program.sequence_chunks
    before = where[Op.FORWARD, stage, np.maximum(microbatch - 1, 0)]
    behind = where[Op.BACKWARD, stage, np.minimum(microbatch + 1, program.passes - 1)]
    forward = (kind == Op.FORWARD) & (chunk > 0)
    backward = ((kind == Op.BACKWARD) | (kind == Op.WHOLE)) & (chunk < program.sequence_chunks - 1)
    return np.where(forward, before, np.where(backward, behind, NOTHING))


def _across_ranks(program: Program, where: IntMatrix) -> list[IntMatrix]:
    """The shares of all ranks that an op behind a barrier waits for; one matrix for each rank.

    Source: Yeung et al., Balancing Pipeline Parallelism with Vocabulary Parallelism,
    arXiv:2411.05288, section 4: with two barriers gradients follow all forward shares and the last
    stage's backward pass follows all gradients; with one barrier both follow the forward shares.
    """
    kind, microbatch = program.kind, program.microbatch
    backward = (kind == Op.BACKWARD) | (kind == Op.WHOLE)
    turns = backward & (program.stage == program.num_stages - 1)
    awaited = Op.VOCAB_BACKWARD if program.barriers == 2 else Op.VOCAB_FORWARD
    result = []
    for rank in range(program.pp):
        turning = np.where(turns, where[awaited, rank, microbatch], NOTHING)
        share = where[Op.VOCAB_FORWARD, rank, microbatch]
        result.append(np.where(kind == Op.VOCAB_BACKWARD, share, turning))
    return result


def _copied(program: Program, where: IntMatrix) -> list[IntMatrix]:
    """A copied pass comes back after it left, before its backward pass, and not too early."""
    kind, stage, microbatch = program.kind, program.stage, program.microbatch
    backward = (kind == Op.BACKWARD) | (kind == Op.WHOLE)
    back = np.maximum(where[Op.RELOAD, stage, microbatch], NOTHING)
    left = where[Op.OFFLOAD, stage, microbatch]
    served = where[Op.BACKWARD, stage, microbatch]
    early = served - 1 - AHEAD
    early = np.where(served % kind.shape[1] > AHEAD, early, NOTHING)
    returns = kind == Op.RELOAD
    order = np.where(backward, back, np.where(returns, left, NOTHING))
    return [order, np.where(returns, early, NOTHING)]


def op_text(program: Program, row: int, position: int) -> str:
    """An op as torch's pipeline runtime writes it, such as `3F7` for stage 3, micro batch 7."""
    letter = LETTERS[Op(int(program.kind[row, position]))]
    return f"{program.stage[row, position]}{letter}{program.microbatch[row, position]}"


LETTERS = {
    Op.FORWARD: "F",
    Op.BACKWARD: "I",
    Op.WEIGHT: "W",
    Op.WHOLE: "B",
    Op.VOCAB_FORWARD: "S",
    Op.VOCAB_BACKWARD: "T",
    Op.OFFLOAD: "O",
    Op.RELOAD: "R",
}
"""Source: torch.distributed.pipelining `schedules.py`, `_ComputationType`; S and T: Yeung et al.,
arXiv:2411.05288; O and R: ours."""


def durations(program: Program) -> IntMatrix:
    """Place of every op's duration: kind * passes with durations + pass.

    Source: durations lie flat in the order (kind, stage, chunk), so the place is (kind * stages +
    stage) * chunks + chunk.

    Copies of a model share durations; a chunk of a sequence has its own.
    """
    stage = program.stage % program.num_stages
    chunks = program.sequence_chunks
    of_stage = stage * chunks + program.microbatch % chunks
    return np.asarray(program.kind * program.num_stages * chunks + of_stage)


def waves_of(program: Program) -> Waves:
    """Ops in topological order, grouped so that each group is one numpy step.

    Raises:
        SpecError: The program deadlocks, or an op needs an output that no rank makes.
    """
    source = sources(program).reshape(-1, program.kind.size)
    waves = _waves(program, source)
    op = np.concatenate(waves)
    place = np.full(program.kind.size + 1, NOTHING)
    place[op] = np.arange(len(op))
    row, position = np.divmod(op, program.kind.shape[1])
    before = np.where(position > 0, op - 1, NOTHING)
    needed = np.concatenate([before[None, :], source[:, op]])
    other = needed // program.kind.shape[1] % program.pp != row % program.pp
    hops, duration = (needed != NOTHING) & other, durations(program).ravel()[op]
    starts, inputs = np.cumsum([0, *map(len, waves)]), place[needed]
    steps = _steps(starts.tolist(), inputs, hops, duration)
    return Waves(op, starts, inputs=inputs, hops=hops, duration=duration, place=place, steps=steps)


def _steps(
    starts: list[int], inputs: IntMatrix, hops: BoolColumn, duration: IntColumn
) -> tuple[Step, ...]:
    """Every wave, cut out once; the arguments are as in `Waves`."""
    places = np.where(inputs == NOTHING, inputs.shape[1], inputs)
    crosses = hops[1:, :, None].astype(np.float64)
    return tuple(
        Step(a, b, places[0, a:b], tuple(places[1:, a:b]), crosses[:, a:b], duration[a:b])
        for a, b in pairwise(starts)
    )


def _waves(program: Program, source: IntMatrix) -> list[IntColumn]:
    """Flat indices of the ops of every wave, by row; `source` has shape (input, op)."""
    done = np.zeros(program.kind.size + 1, dtype=bool)
    done[NOTHING] = True
    first = np.arange(len(program.kind)) * program.kind.shape[1]
    at, end = first, first + program.lengths
    result: list[IntColumn] = []
    while len(at):
        ready = np.logical_and.reduce(done.take(source.take(at, axis=1)))
        wave = at[ready]
        if not len(wave):
            raise _deadlock(program, at)
        result.append(wave)
        done[wave] = True
        at = at + ready
        left = at < end
        if not np.logical_and.reduce(left):
            at, end = at[left], end[left]
    return result


def _deadlock(program: Program, ops: IntColumn) -> SpecError:
    where = zip(*(part.tolist() for part in np.divmod(ops, program.kind.shape[1])), strict=True)
    waiting = [f"rank {row} at {op_text(program, row, at)}" for row, at in where]
    return SpecError(
        f"the schedule deadlocks: {', '.join(waiting[:4])} wait for ops that come later; reorder "
        "them so that each op follows what it needs"
    )


def checked(program: Program) -> Program:
    """The program, if every micro batch runs forward and backward once on every stage.

    Raises:
        SpecError: An op is missing, double, or its stage lives on two ranks.
    """
    row, position = np.nonzero(program.computes)
    ops = program.kind[row, position], program.stage[row, position]
    microbatch = program.microbatch[row, position]
    count = np.zeros((KINDS, program.all_stages, program.passes), dtype=np.int64)
    np.add.at(count, (*ops, microbatch), 1)
    forward, backward, weight, whole = count[:4]
    ways = forward.reshape(program.copies, program.num_stages, -1).any(axis=1)
    wanted = np.repeat(ways, program.num_stages, axis=0) if program.copies > 1 else 1
    for text, right in (
        ("forward pass (F)", forward == wanted),
        ("backward pass (B, or I and W)", backward + whole == wanted),
        ("weight gradient (W) for each input gradient (I)", backward == weight),
    ):
        if not right.all():
            stage, number = np.argwhere(~right)[0].tolist()
            raise SpecError(
                f"stage {stage}, micro batch {number}: the schedule needs exactly one {text}"
            )
    ranks = np.full(program.all_stages, -1)
    ranks[ops[1]] = row
    twice = ranks[ops[1]] != row
    if twice.any():
        raise SpecError(f"stage {ops[1][twice][0]} is run by two ranks: keep it on one")
    return program
