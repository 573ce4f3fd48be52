"""The ranks of one request: forked, watched, and ended to the last."""

import os
import select
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from time import monotonic
from typing import IO

from trainplan.costmodel.documents import Ending
from trainplan.profiler.train.rank import run_rank
from trainplan.profiler.train.request import Answered, RankReport, TrainOrder
from trainplan.profiler.train.trainers import Train
from trainplan.profiler.watch import die_with_parent

POLL_MILLISECONDS, STDERR = 200, 2
WHAT = "what():"
"""In the line with which C++ tells of an exception that nothing caught; frames may follow."""
LONGEST = 200
"""Characters of a last line that are kept."""


class ParentGoneError(Exception):
    """Nobody is left to read the answer."""


@dataclass(slots=True)
class Rank:
    """A process that trains, and what it has said so far."""

    number: int
    pid: int
    reader: int
    errors: IO[bytes]
    """What it writes to stderr."""
    answer: bytearray = field(default_factory=bytearray)


def run_ranks(order: TrainOrder, train: Train, alive: int) -> Answered:
    """Fork the ranks, wait for what they say and end them all.

    Args:
        order: What is trained.
        train: Runs in each rank.
        alive: A pipe that closes when nobody waits any more.

    Raises:
        ParentGoneError: It did.
    """
    with socket.socket() as meeting:
        meeting.bind(("127.0.0.1", 0))
        meeting.listen(order.nproc)
        ranks: list[Rank] = []
        try:
            for number in range(order.nproc):
                ranks.append(_forked(number, order, train, meeting, ranks))
            return _watched(ranks, alive, monotonic() + order.deadline_seconds, order)
        finally:
            for rank in ranks:
                _end(rank)


def _forked(
    number: int, order: TrainOrder, train: Train, meeting: socket.socket, before: Sequence[Rank]
) -> Rank:
    """Start one rank; here it returns, there it never does."""
    reader, writer = os.pipe()
    errors = TemporaryFile()  # noqa: SIM115 (closed when the rank is ended)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Rank(number, pid, reader, errors)
    try:
        os.dup2(errors.fileno(), STDERR)
        die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:  # it ended before it was watched
            os._exit(1)
        for other in (0, reader, *(rank.reader for rank in before)):
            os.close(other)
        answer = run_rank(number, order, train, meeting)
        os.write(writer, answer.model_dump_json().encode())
    finally:
        os._exit(0)  # of the exits of a fork this alone runs nothing of the parent's


def _watched(ranks: Sequence[Rank], alive: int, until: float, order: TrainOrder) -> Answered:
    """Wait until all have said how they ended, or one did not end well."""
    poll = select.poll()
    poll.register(alive, 0)  # tells its end alone
    open_ones = {rank.reader: rank for rank in ranks}
    for reader in open_ones:
        poll.register(reader, select.POLLIN)
    reports: list[RankReport] = []
    while open_ones:
        if monotonic() > until:
            missing = ", ".join(str(rank.number) for rank in open_ones.values())
            reason = f"no end after {order.deadline_seconds:.0f} s of ranks {missing}"
            return Answered(ending="hang", reason=reason)
        for reader, _ in poll.poll(POLL_MILLISECONDS):
            if reader == alive:
                raise ParentGoneError
            rank = open_ones[reader]
            part = os.read(reader, 1 << 16)
            rank.answer += part
            if part:
                continue
            poll.unregister(reader)
            del open_ones[reader]
            ended = _ending(rank)
            if ended.ending != "measured":
                return ended if ended.by_signal else _first(open_ones.values()) or ended
            reports += ended.reports
    reports.sort(key=lambda report: report.rank)
    return Answered(ending="measured", reports=tuple(reports))


def _ending(rank: Rank) -> Answered:
    """How a rank that says nothing more has ended."""
    if rank.answer:
        return Answered.model_validate_json(bytes(rank.answer))
    _, status = os.waitpid(rank.pid, 0)
    return _unanswered(rank, status)


def _first(others: Iterable[Rank]) -> Answered | None:
    """Of ranks that still run for others, one that a signal ended: its peers fail for its sake."""
    time.sleep(POLL_MILLISECONDS / 1000)  # its connections close before it can be waited for
    for rank in others:
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid and os.WIFSIGNALED(status):
            return _unanswered(rank, status)
        rank.pid = 0 if pid else rank.pid
    return None


def _unanswered(rank: Rank, status: int) -> Answered:
    """How a rank has ended that gave no answer, with the last line it wrote."""
    rank.pid = 0
    how = os.waitstatus_to_exitcode(status)
    rank.errors.seek(0)
    lines = rank.errors.read().decode("utf-8", "replace").strip().splitlines()
    last = [*lines, *(line for line in lines if WHAT in line)][-1:]
    ended = f"was ended by signal {-how}" if how < 0 else "ended without a word"
    ending: Ending = "out_of_memory" if how == -signal.SIGKILL else "crash"
    if how == -signal.SIGKILL:
        ended += ": the system kills so when memory runs out"
    words = "".join(f"; its last words: {line.strip()[:LONGEST]}" for line in last)
    return Answered(ending=ending, reason=f"rank {rank.number} {ended}{words}", by_signal=how < 0)


def _end(rank: Rank) -> None:
    os.close(rank.reader)
    rank.errors.close()
    if rank.pid:
        with suppress(ProcessLookupError):
            os.kill(rank.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(rank.pid, 0)
