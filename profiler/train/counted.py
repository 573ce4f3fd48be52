"""Runs of which every byte is counted, as `planner.verify` asks for them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.profiler.train.client import Trainers
from trainplan.profiler.train.request import RankReport, TrainerName, TrainingRequest
from trainplan.profiler.train.trainers import refusal


class HasLayout(Protocol):
    """What is run."""

    @property
    def job(self) -> Job:
        """On a cluster with one GPU for each process."""

    @property
    def layout(self) -> Layout:
        """Of all processes."""


@dataclass(frozen=True, slots=True)
class CountedRuns:
    """Trains some steps of a layout, and counts in the last of them."""

    trainers: Trainers
    steps: int = 3
    deadline_seconds: float = 300.0

    def __call__(self, one: HasLayout) -> tuple[Sequence[RankReport], float]:
        """What each rank saw, and seconds from start to end.

        Raises:
            TrainingFailedError: A rank died, hung or computed no number.
        """
        started = time.monotonic()
        request = _request(self.trainers.trainer, one.job, one.layout, self.steps)
        reports = self.trainers.run(request, one.layout.world_size, self.deadline_seconds)
        return reports, time.monotonic() - started


def refusing(trainer: TrainerName) -> Callable[[Job, Layout], str | None]:
    """What the trainer cannot run of a job and a layout, and why."""
    return lambda job, layout: refusal(_request(trainer, job, layout, 1))


def _request(trainer: TrainerName, job: Job, layout: Layout, steps: int) -> TrainingRequest:
    return TrainingRequest(trainer=trainer, job=job, layout=layout, steps=steps, count=True)
