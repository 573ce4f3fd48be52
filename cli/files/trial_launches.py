"""How a trial of `plan tune` is launched: in processes here, from exported files, or on paper."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Protocol

from trainplan.cli.files.disk import NewFile, errors_of, write_folder
from trainplan.cli.files.documents import read_document
from trainplan.costmodel.base import PlanError, SpecError
from trainplan.costmodel.measured import Measured
from trainplan.costmodel.spec import Job, Layout
from trainplan.costmodel.spec.evidence.trial import Outcome, Trial
from trainplan.planner.exporters import EXPORTERS, LaunchConfig
from trainplan.planner.exporters.trial_steps import trial_launch
from trainplan.planner.launchers import LAUNCHERS
from trainplan.planner.launchers.trials import FOLDER
from trainplan.planner.tuning.simulated import SimulatedMachine, machine_document
from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.train.client import Trainers, slowest_seconds
from trainplan.profiler.train.messages import TrainingFailedError
from trainplan.profiler.train.request import TrainerName, TrainingRequest
from trainplan.profiler.train.trainers import need, refusal
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.run import Limits, TrialRun, Way
from trainplan.profiler.trials.steady import WARM_UP_STEPS, steps_to_run


class TrialLauncher(Protocol):
    """One way to run trials."""

    def can_run(self, job: Job, layout: Layout) -> bool:
        """May the layout be a contender?"""
        ...

    def command(self, trial: Trial) -> str:
        """What would be run, as text; nothing is run."""
        ...

    def launch(self, trial: Trial) -> Outcome:
        """Run it.

        Raises:
            PlanError: Nothing can be run that way.
        """
        ...


@dataclass(frozen=True, slots=True)
class InProcesses:
    """Training in processes of this machine, without launch files."""

    nproc: int
    steps: int
    timeout_s: float
    run: Callable[[TrainingRequest, int, float], tuple[object, ...]] | None = None
    trainer: TrainerName = "megatron-core"

    def _request(self, job: Job, layout: Layout) -> TrainingRequest:
        steps = WARM_UP_STEPS + self.steps
        return TrainingRequest(trainer=self.trainer, job=job, layout=layout, steps=steps)

    def can_run(self, job: Job, layout: Layout) -> bool:
        """Does the trainer run all of it?"""
        return refusal(self._request(job, layout)) is None

    def command(self, trial: Trial) -> str:
        """There is no command: what is trained."""
        steps = WARM_UP_STEPS + self.steps
        return f"{steps} steps of {self.trainer} in {self.nproc} processes of this machine"
