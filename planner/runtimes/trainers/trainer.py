"""A project that trains what stands in files of its own, on the engine of a runtime."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import Rule
from trainplan.planner.launch import LaunchConfig
from trainplan.planner.runtimes.trainers.tried import (
    has_words_for_settings,
    on_its_runtime,
    rules_of_words,
    under_trainer,
)


@dataclass(frozen=True, slots=True)
class Trainer:
    """One project."""

    title: str
    """As its authors call it."""
    version: str
    """Commit whose keys are written."""
    runtimes: tuple[str, ...]
    """Those whose plans it takes."""
    export: Callable[[Job, Layout], LaunchConfig]
    """What writes its files; the job is of one of the runtimes."""
    always: Callable[[Job], Mapping[str, object]] = lambda job: {}
    """Options of the runtime that it has whatever a plan says."""
    kept_free: Callable[[Job], int] = lambda job: 0
    """Bytes of each GPU that it needs for more than what trains, at least."""

    def __call__(self, job: Job, layout: Layout) -> LaunchConfig:
        """The files of one layout, and what starts them.

        Raises:
            UnsupportedError: The project has no word for the runtime, or for a setting.
            PlanError: As the exporter of the runtime.
        """
        if job.runtime not in self.runtimes:
            raise UnsupportedError(
                f"{self.title} trains plans of {' and '.join(self.runtimes)}, not of {job.runtime}:"
                f" search with --runtime {self.runtimes[0]}, or leave --trainer out"
            )
        return self.export(job, layout)

    def runs(self, job: Job) -> Job:
        """The job as it is trained here.

        Raises:
            UnsupportedError: No layout of it can be written; the message says why.
        """
        return under_trainer(self, job)

    def chosen(self, job: Job) -> Job:
        """The job on one of its runtimes: the first for which some layout can be written."""
        return on_its_runtime(self, job)

    def writes(self, job: Job) -> bool:
        """Are there words for the settings of a job?"""
        return has_words_for_settings(self, job)

    def rules(self, job: Job) -> tuple[Rule, ...]:
        """What layouts must respect for there to be words for them, under whatever settings."""
        return rules_of_words(self, job)


def joined(first: Trainer, *others: Trainer) -> Trainer:
    """A project that stands on several engines: each writes plans of its own runtimes."""
    of_runtime = {runtime: one for one in (first, *others) for runtime in one.runtimes}

    def export(job: Job, layout: Layout) -> LaunchConfig:
        return of_runtime[job.runtime].export(job, layout)

    return replace(first, runtimes=tuple(of_runtime), export=export)
