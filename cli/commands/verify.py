"""`plan verify`: a plan shrunk to a few processes, run and compared."""

from __future__ import annotations

from pathlib import Path

import click

from trainplan.cli.files.trial_launches import trainer_of
from trainplan.cli.options.written_plans import load_written
from trainplan.cli.render.verify import (
    ended_event,
    equal,
    ran_event,
    started_event,
    verify_page,
)
from trainplan.cli.terminal.output import json_line, show, write
from trainplan.cli.terminal.progress import watched
from trainplan.planner.questions.verify.asked import combinations
from trainplan.planner.questions.verify.verify import verify
from trainplan.profiler.train.client import Trainers
from trainplan.profiler.train.counted import CountedRuns, refusing
from trainplan.profiler.train.trainers import need

UNEQUAL = 3
"""Exit code: neither bad input nor a bug."""


def command(plan: Path, nproc: str, steps: int, timeout: float, *, as_json: bool) -> None:
    """Run a plan, shrunk, and print what differs."""
    found = load_written(plan)
    trainer = trainer_of(found.job)
    need(trainer)
    asked = combinations(found.job, found.layout, int(nproc), refusing(trainer))
    if as_json:
        write(json_line(started_event(asked, int(nproc), trainer)))
    ran = []
    with Trainers(trainer) as trainers:
        others = asked.others if as_json else watched(asked.others, "verifying")
        for one in verify(asked.reference, others, CountedRuns(trainers, steps, timeout)):
            ran.append(one)
            if as_json:
                write(json_line(ran_event(one)))
    if as_json:
        write(json_line(ended_event(ran, asked.not_run)))
    else:
        show(*verify_page(ran, asked.not_run))
    if not equal(ran):
        click.get_current_context().exit(UNEQUAL)
