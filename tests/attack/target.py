"""A plan under attack: figures of other layouts, and what none of them may be below."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf

import numpy as np

from tests.attack.declared import ANY_SPLIT, INSIDE, Declared, Tally, settings_of
from tests.attack.layouts import text_of
from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.run_costs.energy import energy_of
from trainplan.costmodel.runtimes import traits_of
from trainplan.planner.goals.cluster_sizes import scale_of
from trainplan.planner.plan.plan import Plan
from trainplan.planner.plan.target import Name
from trainplan.planner.questions.best_plan import SearchOptions
from trainplan.planner.questions.estimation import estimates
from trainplan.planner.tree.result import StepEnergy


@dataclass(frozen=True)
class Target:
    """A plan under attack: what is smaller is better."""

    job: Job
    plan: Plan
    options: SearchOptions
    tally: Tally = field(default_factory=Tally)

    @cached_property
    def declared(self) -> Declared:
        """What was searched."""
        return Declared(self.job, self.plan)

    @property
    def name(self) -> Name:
        return self.options.objective

    @property
    def floor(self) -> float:
        """Nothing may be below: the answer where it is proved, else the bound."""
        target = self.plan.certificate.objective
        if self.name == "time":
            proved = self.plan.certificate
            return self.answer if proved.optimal else proved.lower_bound_s
        return target.value if self.plan.certificate.optimal else target.lower_bound

    @property
    def step_limit_s(self) -> float:
        """How long a step of an answer may be."""
        limit = self.plan.certificate.objective.step_time_limit_s
        return np.inf if limit is None else limit

    @property
    def answer(self) -> float:
        """What the plan reaches."""
        if self.name == "time":
            return self.plan.best.estimate.step_time_s
        return self.plan.certificate.objective.value

    def figures(self, job: Job, layouts: list[Layout]) -> FloatColumn:
        """Figures of layouts of the job, maybe on fewer nodes; infinite where none is an answer."""
        if not layouts:
            return np.zeros(0)
        found = estimates(job, layouts, memory_margin=self.options.margin(job))
        seconds, limit = found.step_time_s, self.step_limit_s
        figure = {
            "time": lambda: seconds,
            "memory": lambda: found.peak_reserved_bytes,
            "gpus": lambda: np.full(len(layouts), float(job.cluster.num_gpus)),
            "cost": lambda: seconds * scale_of(job, "cost"),
            "energy": lambda: self._joules(job, layouts, seconds) * scale_of(job, "energy"),
        }[self.name]()
        return np.where(found.fits & (seconds <= limit), figure, inf)

    def tried(self, job: Job, layouts: list[Layout]) -> tuple[FloatColumn, FloatColumn]:
        """Figures of layouts, and what none of them may be below: nothing outside the space."""
        figures = self.figures(job, layouts)
        outside = self.declared.outside(job, layouts) if layouts else []
        for where, figure, layout in zip(outside, figures.tolist(), layouts, strict=True):
            finding = partial(self.finding, job, layout, figure)
            self.tally.add(where, figure, self.floor, finding)
        return figures, np.array([self.floor_of(where) for where in outside])

    def floor_of(self, where: str) -> float:
        """What no layout may be below, by what of it was not searched."""
        uneven = self.plan.certificate.uneven_stages
        any_split = (uneven and uneven.any_split_lower_bound_s) or -inf
        return {INSIDE: self.floor, ANY_SPLIT: any_split}.get(where, -inf)

    def _joules(self, job: Job, layouts: list[Layout], seconds: FloatColumn) -> FloatColumn:
        energy = StepEnergy(energy_of(job, machine_for(job), traits_of(job)))
        return energy.value(LayoutTable.of(layouts), seconds)

    def finding(self, job: Job, layout: Layout, figure: float) -> str:
        """A layout that should not be there."""
        better = f"{1 - figure / self.answer:.4%} better than {self.answer:.9g}"
        settings = "".join(f" --option {one.text}" for one in settings_of(self.job, job))
        return (
            f"{job.model.name} on {job.cluster.name} ({job.cluster.num_gpus} GPUs) with "
            f"{job.runtime}, {self.name}: {figure:.9g} is {better}, bound {self.floor:.9g}: "
            f"--layout {text_of(layout)!r}{settings}"
        )
