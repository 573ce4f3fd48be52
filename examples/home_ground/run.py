"""The problems that other planners ship, solved under their own definitions of cost.

python examples/home_ground/run.py galvatron --checkout ~/Hetu-Galvatron
python examples/home_ground/run.py all --checkout ~/peers --json

A checkout is the top of the peer's repository; with `all` it is the folder that holds the four
under the names of their repositories.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path
from textwrap import wrap

import galvatron
import galvatron_files
import metis
import piper
import sailor
from relaxed import Best, Case, best_of

from trainplan.costmodel.base import PlanError
from trainplan.planner.solvers.layers import milp

WIDTH = 100


class Clock:
    """A deadline some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Until then."""
        return self.end - time.monotonic()


@dataclass(frozen=True, slots=True)
class Row:
    """One problem, by the peer and by us."""

    peer: str
    problem: str
    unit: str
    """What the values are seconds of."""
    theirs_s: float | None
    """The answer of the peer under its definition; None if it was not found in time."""
    ours_s: float | None
    """None if there is none, or none was found in time."""
    lower_bound_s: float | None
    """No answer takes less under the peer's definition; None if nothing fits."""
    solver_s: float
    """Of ours."""
    plan: str
    note: str

    @property
    def gap(self) -> float | None:
        """Part by which another answer could be better; None without an answer."""
        if self.ours_s is None or self.lower_bound_s is None:
            return None
        return 1 - self.lower_bound_s / self.ours_s


@dataclass(frozen=True, slots=True)
class Solved:
    """An answer and the seconds it took."""

    best: Best
    seconds: float

    @property
    def plan(self) -> str:
        """In words."""
        best = self.best
        return "none" if best.case is None or best.counts is None else best.case.text(best.counts)


def solved(cases: Callable[[], list[Case]], limit: float) -> Solved:
    """The best of some cases; the seconds count the making of the cases."""
    start = time.perf_counter()
    best = best_of(cases(), milp.solve, Clock(limit))
    return Solved(best, time.perf_counter() - start)


def row(peer: str, problem: str, theirs: float | None, found: Solved, note: str = "") -> Row:
    """A row of a step in seconds."""
    ours, bound = finite(found.best.value), finite(found.best.lower_bound)
    return Row(peer, problem, "a step", theirs, ours, bound, found.seconds, found.plan, note)


def finite(value: float) -> float | None:
    """A number, or None for none."""
    return value if value < inf else None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to a peer, and its answer."""

    question: galvatron.Question
    answer_s: float
    search_s: str
    """Seconds of its search, which was run once or twice."""


GALVATRON = (
    Asked(galvatron.Question(36), 4.189589479605564, "228"),
    Asked(galvatron.Question(24, chunks=8), 5.289000, "40 to 67"),
    Asked(galvatron.Question(16, chunks=16), 5.873279, "57"),
    Asked(galvatron.Question(24, chunks=16), 5.221965, "79"),
)
"""Source: its search at commit cea12ff run on a CPU, two cores, `time_profile_mode=batch`."""
SAILOR = ((sailor.Grid(1, 8, 8, 32), 4), (sailor.Grid(1, 32, 8, 128), 4))
"""Plans of its planner, by GPUs, and their tensor parallelism: 0.12511 and 0.41753 iterations/s in
its simulator. Source: simulator.py at commit cf2c8e3 run on a CPU."""
PIPER = 0.02030357618
"""Seconds per sample. Source: its algo.cpp at commit d7fc8cf run with the question of `piper`."""


def galvatron_rows(checkout: Path, limit: float) -> Iterator[Row]:
    """Llama-2-7B on 8 GPUs."""
    of = galvatron_files.read(checkout)
    for asked in GALVATRON:
        question = asked.question
        chunks = "any" if question.chunks is None else question.chunks
        found = solved(partial(galvatron.cases, of, question), limit)
        problem = f"Llama-2-7B, 8 GPUs of {question.memory_gib} GiB, {chunks} micro batches"
        note = f"its search took {asked.search_s} s"
        yield row("galvatron", problem, asked.answer_s, found, note)


def sailor_rows(checkout: Path, limit: float) -> Iterator[Row]:
    """OPT-350M on A100-40."""
    of = sailor.read(checkout)
    for plan, tp in SAILOR:
        found = solved(partial(sailor.cases, of, plan.gpus), limit)
        theirs = sailor.step_seconds(of, plan, tp)
        note = f"{1 / found.best.value:.5f} iterations/s against {1 / theirs:.5f}"
        yield row("sailor", f"OPT-350M, {plan.gpus} A100-40", theirs, found, note)


def piper_rows(checkout: Path, limit: float) -> Iterator[Row]:
    """BERT on 64 devices; exact whatever the limit."""
    start = time.perf_counter()
    question = piper.Question()
    best = piper.solve(piper.read(checkout), question)
    taken = time.perf_counter() - start
    plan = ", ".join(f"{len(s.layers)} on {s.dp}x{s.tp}" for s in best.stages)
    problem = f"BERT, {question.devices} devices of 8 GiB, 480 micro batches"
    yield Row(
        "piper",
        problem,
        "a sample",
        PIPER,
        best.seconds,
        best.seconds,
        taken,
        plan,
        "layers on dp x tp",
    )


def metis_rows(checkout: Path, limit: float) -> Iterator[Row]:
    """The shipped sample; the peer's answer is the best under its own test of memory."""
    of = metis.read(checkout)
    theirs = solved(partial(metis.cases, of, metis.Question(by_group=True)), limit)
    ours = solved(partial(metis.cases, of, metis.Question()), limit)
    fits = "fits" if metis.most_mib(theirs.best) <= of.device_mib else "does not fit"
    note = f"the peer's {fits}: {theirs.plan}"
    yield row("metis", "the shipped sample, 8 GPUs", finite(theirs.best.value), ours, note)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another planner."""

    repository: str
    rows: Callable[[Path, float], Iterator[Row]]


PEERS = {
    "galvatron": Peer("Hetu-Galvatron", galvatron_rows),
    "sailor": Peer("sailor", sailor_rows),
    "piper": Peer("piper", piper_rows),
    "metis": Peer("Metis", metis_rows),
}


def text(rows: Sequence[Row]) -> Iterator[str]:
    """A paragraph for each row."""
    for one in rows:
        yield f"{one.peer}: {one.problem}"
        theirs = "not found" if one.theirs_s is None else f"{one.theirs_s:.6f} s"
        yield f"  {one.unit}: theirs {theirs}, {_ours(one)}"
        yield from _wrapped(f"solved in {one.solver_s:.2f} s; {one.note}", "  ")
        yield from _wrapped(one.plan, "    ")


def _ours(one: Row) -> str:
    """Our answer, as far as there is one."""
    if one.lower_bound_s is None:
        return "ours: nothing fits"
    bound = f"no less than {one.lower_bound_s:.6f} s"
    if one.ours_s is None or one.gap is None:
        return f"ours: none in time, {bound}"
    return f"ours {one.ours_s:.6f} s, {bound}, gap {one.gap:.2%}"


def _wrapped(paragraph: str, indent: str) -> list[str]:
    return wrap(paragraph, WIDTH, initial_indent=indent, subsequent_indent=indent)


def document(rows: Sequence[Row]) -> str:
    """The rows as JSON."""
    answers = [{**asdict(one), "gap_fraction": one.gap} for one in rows]
    return json.dumps({"schema": "trainplan/home-ground/v1", "answers": answers}, indent=2)


def main() -> int:
    """Exit code: 0 all solved, 2 for an input that is refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", choices=[*PEERS, "all"])
    parser.add_argument("--checkout", type=Path, required=True, help="the peer's repository")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a problem")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    try:
        rows: list[Row] = []
        for name in PEERS if options.peer == "all" else [options.peer]:
            peer, folder = PEERS[name], options.checkout
            if options.peer == "all":
                folder /= peer.repository
            rows += peer.rows(folder, options.time_limit)
    except PlanError as error:
        sys.stderr.write(f"run.py: error: {error}\n")
        return 2
    sys.stdout.write(document(rows) + "\n" if options.json else "\n".join(text(rows)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
