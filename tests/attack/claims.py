"""What an answer claims, and layouts that would prove it wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from tests.attack.moves import moved, start
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import Job, Layout
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.step.energy import energy_of
from trainplan.costmodel.step.money import price_per_second, run_steps
from trainplan.planner.goals.cluster_sizes import part_jobs
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions.search import estimate
from trainplan.planner.space import Space
from trainplan.planner.tree.objective import StepEnergy

ROUNDING = 1e-9
SOLVED_FOR = ("offload.optimizer",)
"""Axes whose values are not listed one by one."""
SMALLEST_STEP = 0.01
"""Of the start of a climb, how much worse a step may be: what is better lies behind it at times."""


@dataclass(frozen=True)
class Question:
    """A job with what was asked of its search."""

    job: Job
    options: SearchOptions
    rng: Random

    @property
    def jobs(self) -> tuple[Job, ...]:
        """The job on every part of its cluster that an answer may use."""
        whole = self.options.objective in ("time", "memory")
        return (self.job,) if whole else part_jobs(self.job)

    def figure(self, job: Job, layout: Layout, plan: Plan) -> float:
        """What the objective makes of a layout; infinite where it is no answer to the question."""
        target = plan.certificate.objective
        if not self._asked(job, layout, plan):
            return np.inf
        try:
            found = estimate(job, layout, memory_margin=self.options.memory_margin)
        except SpecError:
            return np.inf
        longest = target.step_time_limit_s or np.inf
        in_time = found.step_time_s <= longest * (1 + ROUNDING)
        return (
            _FIGURES[target.name](job, layout, found) if found.memory.fits and in_time else np.inf
        )

    def _asked(self, job: Job, layout: Layout, plan: Plan) -> bool:
        """Is it of the space that the certificate names, and of the user's choices?"""
        if layout.stages is not None and plan.certificate.uneven_stages is None:
            return False
        if layout.world_size != job.cluster.num_gpus:
            return False
        table = LayoutTable.of([layout])
        if any(choice.rule().broken(job, table)[0] for choice in self.options.choices):
            return False
        values = Space(job).axis_values()
        tried = [axis for axis in AXES if axis.name in values and axis.name not in SOLVED_FOR]
        set_ = [(axis, axis.of(layout)) for axis in tried if axis.of(layout) is not None]
        return all(axis.codec.listed(value) in values[axis.name] for axis, value in set_)

    def refutations(self, plan: Plan, tries: int) -> Iterator[str]:
        """Layouts that beat the answer or its bound, found by climbs from it and from elsewhere."""
        target = plan.certificate.objective
        least = target.value if plan.certificate.optimal else target.lower_bound
        best, layout = target.value, plan.best.layout
        places = [(plan.job, layout)]
        for number in range(tries):
            job, layout = places[0] if number % 4 else self._anywhere(places)
            rival = self._moved(job, layout)
            value = self.figure(job, rival, plan)
            if value < least * (1 - ROUNDING):
                yield f"{value} is less than the proved {least}: {rival!r}"
                least = value
            if value < best * (1 + SMALLEST_STEP):
                places = [(job, rival), *places[:8]]
                best = min(best, value)

    def _anywhere(self, places: list[tuple[Job, Layout]]) -> tuple[Job, Layout]:
        if self.rng.random() < 0.5:
            return self.rng.choice(places)
        job = self.rng.choice(self.jobs)
        return job, start(job, self.rng)

    def _moved(self, job: Job, layout: Layout) -> Layout:
        """Up to three moves at once."""
        free = traits_of(job).pipeline.splits_freely
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            layout = moved(job, layout, self.rng, stages=free) or layout
        return layout


def _joules(job: Job, layout: Layout, found: Estimate) -> float:
    """Of the run."""
    energy = energy_of(job, machine_of(job.cluster, job.training.precision), traits_of(job))
    seconds = np.array([found.step_time_s])
    joules = StepEnergy(energy).value(LayoutTable.of([layout]), seconds)
    return float(joules[0]) * (run_steps(job) or 1)


def _money(job: Job, layout: Layout, found: Estimate) -> float:
    """Of the run."""
    return found.step_time_s * (run_steps(job) or 1) * price_per_second(job.cluster)


_FIGURES: dict[str, Callable[[Job, Layout, Estimate], float]] = {
    "time": lambda job, layout, found: found.step_time_s,
    "memory": lambda job, layout, found: found.memory.peak_reserved_bytes,
    "cost": _money,
    "energy": _joules,
    "gpus": lambda job, layout, found: job.cluster.num_gpus,
}
