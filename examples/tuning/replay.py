"""Tuning on measured layout studies: trials until one is within 2 % of the best measured.

python examples/tuning/replay.py [MORE_RUNS.jsonl ...] [--write]

The contenders are the layouts of one job that somebody measured; a trial returns what they
measured. The constants of the cost model were fitted on the runs of examples/accuracy, so its
prices have seen these, the orders of the others have not; runs of other files are new to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from trainplan.cli.files.runs import read_runs
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.documents.calibration import Outcome
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.validate.predict import predict
from trainplan.costmodel.validate.ranking import job_of
from trainplan.costmodel.validate.steps import TimedRow, timed_rows
from trainplan.planner.tuning.contenders import Contenders, Group
from trainplan.planner.tuning.knowledge import Ended, knowledge_of
from trainplan.planner.tuning.loop import next_trial, what_remains
from trainplan.planner.tuning.options import TuneOptions

RUNS = Path(__file__).parents[1] / "accuracy" / "runs.jsonl"
RESULTS = Path(__file__).parent / "replay.json"
FEWEST, NEAR = 5, 1.02
OPTIONS = TuneOptions(trials=100)


@dataclass(frozen=True)
class Study:
    """Measured layouts of one job."""

    name: str
    job: Job
    measured: dict[Layout, float]
    """Seconds of a step; the mean where a layout ran more than once."""

    @property
    def near(self) -> list[bool]:
        """Which are within 2 % of the best measured."""
        limit = NEAR * min(self.measured.values())
        return [seconds <= limit for seconds in self.measured.values()]


def studies(paths: Sequence[Path]) -> Iterator[Study]:
    """Jobs of which several layouts were measured."""
    for path in paths:
        runs = [run for run in read_runs(path) if isinstance(run, MeasuredRun)]
        jobs: dict[object, list[TimedRow]] = {}
        for row in timed_rows(predict(runs), everything=False):
            jobs.setdefault((row.run.source_group, job_of(row)), []).append(row)
        for rows in jobs.values():
            steps: dict[Layout, list[float]] = {}
            for row in rows:
                if row.prediction.layout:
                    steps.setdefault(row.prediction.layout, []).append(row.measured_s)
            if len(steps) >= FEWEST:
                run = rows[0].run
                name = f"{run.source_group}: {run.model.name}, {run.cluster.num_gpus} GPUs"
                yield Study(name, rows[0].job, {one: fmean(some) for one, some in steps.items()})


def tuned(study: Study) -> int:
    """Trials of the policy until one is near the best."""
    layouts = list(study.measured)
    memory = machine_for(study.job).memory_bytes
    found = Contenders((Group(study.job, LayoutTable.of(layouts), memory),))
    known = knowledge_of(found)
    while True:
        trial, row = next_trial(known, what_remains(known, OPTIONS))
        outcome = Outcome(ending="measured", step_time_s=study.measured[trial.layout], steps=10)
        known = known.after(Ended(row, trial, outcome)).priced_near()
        if study.near[row]:
            return len(known.ended)


def trials_in_order(study: Study, order: Sequence[int]) -> int | None:
    """Trials of a fixed order until one is near the best; null: it ends before."""
    near = [place for place, row in enumerate(order, start=1) if study.near[row]]
    return near[0] if near else None


def by_price(study: Study) -> list[int]:
    """The fastest by the model first."""
    memory = machine_for(study.job).memory_bytes
    found = Contenders((Group(study.job, LayoutTable.of(list(study.measured)), memory),))
    return np.argsort(knowledge_of(found).planned_log_seconds, kind="stable").tolist()


def nemo(study: Study) -> list[int]:
    """As NeMo nests its grid: tp, pp, micro batch (NVIDIA/NeMo@8cfedd72, training_config.py)."""
    rows = list(study.measured)
    return sorted(
        range(len(rows)), key=lambda i: (rows[i].tp, rows[i].pp, rows[i].micro_batch_size)
    )


def deepspeed(study: Study) -> list[int]:
    """As DeepSpeed tunes: ZeRO stage and micro batch, at the degrees of the user.

    Those are the ones of fewest GPUs for a replica. Source: deepspeedai/DeepSpeed@edaa7221,
    autotuner.py.
    """
    rows = list(study.measured)
    least = min((one.tp * one.pp, one.tp) for one in rows)
    mine = [i for i, one in enumerate(rows) if (one.tp * one.pp, one.tp) == least]
    return sorted(mine, key=lambda i: (rows[i].zero_stage, rows[i].micro_batch_size))


def replayed(study: Study) -> dict[str, object]:
    """Trials of every tuner."""
    count, near = len(study.measured), sum(study.near)
    return {
        "layouts": count,
        "near_the_best": near,
        "tune": tuned(study),
        "random, mean": round((count + 1) / (near + 1), 1),
        "by price": trials_in_order(study, by_price(study)),
        "NeMo grid": trials_in_order(study, nemo(study)),
        "DeepSpeed autotuner": trials_in_order(study, deepspeed(study)),
    }


def main() -> None:
    """Replay all studies."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true")
    request = parser.parse_args()
    found = {one.name: replayed(one) for one in studies([RUNS, *request.runs])}
    text = json.dumps(found, indent=1) + "\n"
    sys.stdout.write(text)
    if request.write:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
