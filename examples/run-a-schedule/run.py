"""Runs pipeline schedules on torch's own runtime, on CPUs, and checks what we say of them.

python examples/run-a-schedule/run.py                    all schedules torch can run
python examples/run-a-schedule/run.py zb-1p mine.csv     some by name, or from a file
python examples/run-a-schedule/run.py --sleep-ms 40      compare the time of a step, too

Every rank is a process. Its gradients must be those of one process without a schedule, and the
activations it holds as many as predicted: as torch counts them, and by the bytes autograd keeps.
Stages are tiny; with --sleep-ms each pass F, I and W sleeps that long, and a step should take as
long as the simulated one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from trainplan.costmodel.base.errors import PlanError, SpecError, unknown_name
from trainplan.costmodel.program.held_activations import peak_activations
from trainplan.costmodel.program.ops import Program, Shape
from trainplan.costmodel.schedules import SCHEDULES, program_for
from trainplan.costmodel.timeline import clock as timeline
from trainplan.planner.runtimes.torch_schedule_csv import program_of_csv, schedule_csv

if TYPE_CHECKING:
    from torch_pipeline import Report, Trial

ROUNDING = 1e-12
"""Gradients are sums of doubles in an order of their own."""


def simulated_seconds(program: Program, pause_seconds: float) -> float:
    """Step time of the simulation, for passes of equal length and instant messages."""
    one = np.full((1, program.num_stages), pause_seconds)
    return timeline.run(program, timeline.StageSeconds(one, 2 * one, one)).makespan


def program_named(name: str, pp: int, num_microbatches: int) -> Program:
    """Program of a schedule by name, or from a file."""
    if name.endswith(".csv"):
        return program_of_csv(Path(name).read_text("utf-8"))
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES, "or give a .csv file")
    return program_for(name, Shape(pp, SCHEDULES[name].least_vpp, num_microbatches))


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, Program, str]]:
    """Name, program and file text of what is to be run."""
    for name in options.schedule or SCHEDULES:
        try:
            program = program_named(name, options.pp, options.num_microbatches)
            yield Path(name).name, program, schedule_csv(program)
        except PlanError as refusal:
            if options.schedule:
                raise
            say(f"{name}: skipped: {refusal}")


def say(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def one_number_of_ranks(programs: Sequence[Program]) -> int:
    """Ranks of all programs."""
    ranks = {program.pp for program in programs}
    if not ranks:
        raise SpecError("no schedule is left to run: change --pp or --num-microbatches")
    if len(ranks) > 1:
        raise SpecError(f"the schedules have {sorted(ranks)} ranks: run those of one number")
    return ranks.pop()


def passes(trial: Trial, reports: Sequence[Report], pause_seconds: float) -> bool:
    """Print what the ranks of one trial saw; is it as predicted?"""
    program, right = trial.program, True
    say(f"{trial.name}: {program.num_stages} stages, {program.num_microbatches} micro batches")
    for report, peak in zip(reports, peak_activations(program), strict=True):
        equal = report.difference < ROUNDING
        right &= equal and report.in_memory == peak and report.counted in (None, peak)
        written = "equal" if equal else f"WRONG by {report.difference:.1e}"
        counted = "-" if report.counted is None else report.counted
        say(
            f"  rank {report.rank}: gradients {written}, activations predicted {peak:g}, "
            f"counted {counted}, in memory {report.in_memory:g}"
        )
    if pause_seconds:
        measured = max(report.step_seconds for report in reports)
        simulated = simulated_seconds(program, pause_seconds)
        say(
            f"  step measured {measured:.3f} s, simulated {simulated:.3f} s, "
            f"simulated / measured {simulated / measured:.3f}"
        )
    say("  as predicted" if right else "  NOT as predicted")
    return right


def run(options: argparse.Namespace) -> bool:
    """Run all schedules; is everything as predicted?"""
    if options.sleep_ms < 0:
        raise SpecError(f"--sleep-ms {options.sleep_ms:g} is negative: give 0 or more")
    pause_seconds, wanted = options.sleep_ms / 1000, list(chosen(options))
    ranks = one_number_of_ranks([program for _, program, _ in wanted])
    from torch_pipeline import Trial, run_all  # noqa: PLC0415 (slow; refusals do not need it)

    with TemporaryDirectory() as made:
        folder, trials = Path(made), []
        for number, (name, program, text) in enumerate(wanted):
            csv = folder / f"{number}.csv"
            csv.write_text(text, "utf-8")
            trials.append(Trial(name, program, csv))
        reports = run_all(trials, folder, pause_seconds)
    groups = [reports[i : i + ranks] for i in range(0, len(reports), ranks)]
    verdicts = [passes(*pair, pause_seconds) for pair in zip(trials, groups, strict=True)]
    return all(verdicts)


def main() -> int:
    """Exit code: 0 as predicted, 1 not, 2 for an input that is refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "schedule", nargs="*", help=f"a .csv file, or one of {', '.join(SCHEDULES)}"
    )
    parser.add_argument("--pp", type=int, default=4, help="ranks of schedules given by name")
    parser.add_argument("--num-microbatches", type=int, default=8, help="of those schedules")
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="a pass sleeps that long")
    options = parser.parse_args()
    try:
        return 0 if run(options) else 1
    except (PlanError, OSError, UnicodeError) as error:
        sys.stderr.write(f"run.py: error: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
