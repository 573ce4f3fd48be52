"""A pipeline schedule as the file torch's pipeline runtime loads, and back.

One row for each rank, one cell for each op in issue order: `3F7` is the forward pass of virtual
stage 3 on micro batch 7, `I` its input gradient, `W` its weight gradient, `B` both in one op. Ops
of one action share a cell, `(0F5;7B2)OVERLAP_F_B`: torch sends what they make behind the last.
Source: torch.distributed.pipelining `schedules.py`, `_PipelineScheduleRuntime._load_csv` with the
format "compute_only", and `_Action.from_str`; both run in tests/e2e/test_schedules_for_real.py.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.program import (
    LARGEST_PROGRAM,
    LETTERS,
    Op,
    Pass,
    Program,
    checked,
    op_text,
    program_of,
    waves_of,
)

CELL = re.compile(r"([0-9]{1,9})([FIWB])([0-9]{1,9})")
TOGETHER = re.compile(r"\((.*)\)OVERLAP_F_B")
"""Ops of one action."""
LOWERED = re.compile(r"SEND|RECV|SHARD|REDUCE")
"""Occurs in every cell that the format "compute_comms" has beyond "compute_only"."""
_KINDS = {LETTERS[kind]: kind for kind in (Op.FORWARD, Op.BACKWARD, Op.WEIGHT, Op.WHOLE)}


class _Read(NamedTuple):
    """One op of a file, and where it stands."""

    op: Pass
    rank: int
    place: str
    joint: bool
    """As in `Program`."""


def schedule_csv(program: Program) -> str:
    """The program in torch's format "compute_only".

    Raises:
        UnsupportedError: torch's pipeline runtime has no such ops.
        SpecError: The program is incomplete or deadlocks.
    """
    refuse_what_torch_lacks(program)
    waves_of(checked(program))
    lengths = program.lengths.tolist()
    rows = (_cells(program, row, length) for row, length in enumerate(lengths))
    return "".join(",".join(row) + "\n" for row in rows)


def _cells(program: Program, row: int, length: int) -> Iterator[str]:
    """The actions of a rank."""
    action: list[str] = []
    for position in range(length):
        action.append(op_text(program, row, position))
        if program.joint is None or not program.joint[row, position]:
            yield action[0] if len(action) == 1 else f"({';'.join(action)})OVERLAP_F_B"
            action = []


def refuse_what_torch_lacks(program: Program) -> None:
    """Check that torch's pipeline runtime has all ops of a program.

    Raises:
        UnsupportedError: It has not; the message says what is missing.
    """
    lack = what_torch_lacks(program)
    if lack:
        raise UnsupportedError(
            f"the schedule has {lack}, which torch's pipeline runtime does not run: export a "
            "schedule without, or run this one elsewhere"
        )


def what_torch_lacks(program: Program) -> str:
    """The first thing in a program that torch's pipeline runtime does not run, or nothing."""
    lacks = {
        "two copies of the model": program.copies > 1,
        "micro batches cut along the sequence": program.sequence_chunks > 1,
        "an output layer shared by all ranks": program.barriers > 0,
        "activations copied to the host": program.copy_lanes,
        "ops other than F, B, I and W": bool((program.kind > Op.WHOLE).any()),
        "ranks without a stage": not program.lengths.all(),
    }
    return next((what for what, found in lacks.items() if found), "")


def program_of_csv(text: str) -> Program:
    """Program of a file in torch's format "compute_only".

    Empty cells are dropped; ops of one action follow one another in the order they are written.

    Raises:
        SpecError: A cell is malformed, an op is missing or double, a stage is on two ranks, or the
            schedule deadlocks.
    """
    rows = [list(_row(rank, line)) for rank, line in enumerate(text.rstrip().splitlines())]
    _refuse_size(rows)
    everything = [read for row in rows for read in row]
    _refuse_doubles(everything)
    _refuse_two_ranks(everything)
    _refuse_weight_with_whole(everything)
    num_stages = 1 + max(read.op.stage for read in everything)
    num_microbatches = 1 + max(read.op.microbatch for read in everything)
    _refuse_missing({read.op for read in everything}, num_stages, num_microbatches)
    ops = [[read.op for read in row] for row in rows]
    program = checked(program_of(ops, num_stages, num_microbatches))
    if any(read.joint for read in everything):
        joint = np.zeros(program.kind.shape, dtype=bool)
        for rank, row in enumerate(rows):
            joint[rank, : len(row)] = [read.joint for read in row]
        program = replace(program, joint=joint)
    waves_of(program)
    return program


def _row(rank: int, line: str) -> Iterator[_Read]:
    for number, cell in enumerate(line.split(","), start=1):
        place = f"rank {rank} (line {rank + 1}), cell {number}"
        together = TOGETHER.fullmatch(cell.strip())
        ops = [one for one in (together[1].split(";") if together else [cell]) if one.strip()]
        for left, written in zip(reversed(range(len(ops))), ops, strict=True):
            yield _Read(_op(written.strip(), place), rank, place, left > 0)


def _op(written: str, place: str) -> Pass:
    found = CELL.fullmatch(written)
    if found:
        return Pass(_KINDS[found[2]], int(found[1]), int(found[3]))
    shown = written if len(written) <= 40 else written[:40] + "..."
    if LOWERED.search(written):
        raise SpecError(
            f"{place}: {shown!r} is a message or a collective, which torch adds itself: give the "
            'schedule in the format "compute_only"'
        )
    raise SpecError(
        f"{place}: {shown!r} is no op: write stage, F, I, W or B, and micro batch, such as 3F7, "
        "with numbers of at most 9 digits"
    )


def _refuse_size(rows: Sequence[Sequence[_Read]]) -> None:
    if not rows:
        raise SpecError("the schedule is empty: write one row of ops for each rank")
    for rank, row in enumerate(rows):
        if not row:
            raise SpecError(
                f"rank {rank} (line {rank + 1}) has no op: give it a stage, or delete the line"
            )
    positions = len(rows) * max(len(row) for row in rows)
    if positions > LARGEST_PROGRAM:
        raise SpecError(
            f"{len(rows)} ranks with up to {positions // len(rows)} ops are more than "
            f"{LARGEST_PROGRAM} positions: give a schedule of fewer micro batches"
        )


def _refuse_doubles(everything: Sequence[_Read]) -> None:
    first: dict[Pass, str] = {}
    for op, _, place, _ in everything:
        if op in first:
            raise SpecError(f"{place}: {_text(op)} is also at {first[op]}: delete one of them")
        first[op] = place


def _refuse_two_ranks(everything: Sequence[_Read]) -> None:
    home: dict[int, _Read] = {}
    for read in everything:
        other = home.setdefault(read.op.stage, read)
        if other.rank != read.rank:
            raise SpecError(
                f"{read.place}: stage {read.op.stage} of {_text(read.op)} is already on rank "
                f"{other.rank}: keep all ops of a stage in one row"
            )


def _refuse_weight_with_whole(everything: Sequence[_Read]) -> None:
    ops = {read.op for read in everything}
    for op, _, place, _ in everything:
        alone = op._replace(kind=Op.BACKWARD) not in ops
        if op.kind == Op.WEIGHT and alone and op._replace(kind=Op.WHOLE) in ops:
            raise SpecError(
                f"{place}: stage {op.stage}, micro batch {op.microbatch} has W as well as B: use I "
                "and W, or B alone"
            )


def _refuse_missing(ops: set[Pass], num_stages: int, num_microbatches: int) -> None:
    """Check the numbers before anything of that size is made; ends at the first gap."""
    for stage in range(num_stages):
        for microbatch in range(num_microbatches):
            wanted = Pass(Op.FORWARD, stage, microbatch)
            if wanted not in ops:
                raise SpecError(
                    f"no rank runs {_text(wanted)}, but the schedule names stage "
                    f"{num_stages - 1} and micro batch {num_microbatches - 1}: add it, or correct "
                    "the number that is too large"
                )


def _text(op: Pass) -> str:
    return f"{op.stage}{LETTERS[op.kind]}{op.microbatch}"
