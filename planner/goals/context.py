"""Searches of one job under changing limits: what goals other than the step time are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trainplan.costmodel.calibration import Measured, context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import Rule
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import energy_of
from trainplan.costmodel.runtimes import Setting
from trainplan.planner.plan import SearchOptions
from trainplan.planner.settings import Combination, with_settings
from trainplan.planner.space import legality_rules, no_even_stages, ranks_straddle
from trainplan.planner.tree import (
    Group,
    Member,
    Objective,
    Search,
    SearchLimits,
    SearchResult,
    StepEnergy,
    StepTime,
)
from trainplan.planner.work import ALONE, Budget, DeadlineBudget, Workers

Figure = Literal["time", "energy"]
"""What a single search makes small."""


class UntilFeasible(DeadlineBudget):
    """A budget that is spent as soon as one answer is known, or with the budget around it."""

    def __init__(self, search: Search, whole: Budget) -> None:
        super().__init__(whole)
        self._search = search

    def spent(self) -> bool:
        """Is there an answer, or is the time over?"""
        return bool(self._search.best) or super().spent()


@dataclass(frozen=True, slots=True)
class SearchContext(Context):
    """A job, resolved once, with what all searches of its question share."""

    options: SearchOptions
    measured: Measured
    budget: Budget
    workers: Workers = ALONE
    only: tuple[Rule, ...] = ()
    """Which layouts are looked at, with the choices of the user."""
    beat_s: float = np.inf
    """Seconds of a step that is known: the fastest layout is looked for among faster ones."""

    @classmethod
    def of(
        cls,
        job: Job,
        options: SearchOptions,
        measured: Measured,
        budget: Budget,
        workers: Workers = ALONE,
    ) -> SearchContext:
        """A question about a job.

        Raises:
            PlanError: As `context_for`.
        """
        return cls(*context_for(job, measured).shared, options, measured, budget, workers)

    def with_job(self, job: Job) -> SearchContext:
        """The same question about another job."""
        if job is self.job:
            return self
        return self._on(context_for(job, self.measured))

    def with_settings(self, best: Combination, settings: Iterable[Setting]) -> SearchContext:
        """The same question under some of the settings of a combination."""
        job = with_settings(best.plain, settings)
        return self._on(context_for(job, self.measured))

    def _on(self, one: Context) -> SearchContext:
        return replace(self, job=one.job, machine=one.machine, traits=one.traits)

    @property
    def held_off(self) -> frozenset[str]:
        """Columns that `only` reads."""
        return frozenset().union(*(rule.columns for rule in self.only))

    @property
    def margin(self) -> float:
        """Share of device memory that must stay free."""
        return self.options.margin(self.job)

    @property
    def usable_bytes(self) -> float:
        """Device memory a rank may use. Source: `SearchOptions.memory_margin`."""
        return self.usable_of(self.machine)

    def usable_of(self, machine: Machine) -> float:
        """As `usable_bytes`, of another machine."""
        return machine.memory_bytes * (1 - self.margin)

    def search(
        self,
        figure: Figure | Objective = "time",
        *,
        memory_bytes: float = np.inf,
        most_seconds: float = np.inf,
        top: int = 1,
        exhaustive: bool = False,
    ) -> Search:
        """A search for `top` answers that use no more than `memory_bytes`, not begun.

        `most_seconds` is for energy; for the time, `run` takes `cutoff`. An exhaustive one counts
        why each layout is refused.

        Raises:
            PlanError: A number of the machine is unknown.
        """
        objective: Objective = StepTime()
        if figure == "energy":
            objective = StepEnergy(energy_of(*self.shared), most_seconds)
        elif figure != "time":
            objective = figure
        limits = SearchLimits(min(self.usable_bytes, memory_bytes), top)
        return Search(
            self, self.rules_of_grid, limits, objective, workers=self.workers, exhaustive=exhaustive
        )

    @property
    def rules_of_grid(self) -> tuple[Rule, ...]:
        """What layouts must respect before their layers are split."""
        job = self.job
        rules = (*self.options.rules_of_grid(self), *self.only, *legality_rules(self.traits))
        if self.options.objective == "time" and is_heterogeneous(job.cluster):
            uneven = any(choice.only_uneven for choice in self.options.choices)
            return (*rules, no_even_stages() if uneven else ranks_straddle())
        return rules

    def member(self, one: Combination) -> Member:
        """A combination of settings, to be searched with others."""
        own = self._on(context_for(one.job, self.measured))
        return Member(one, own, (*one.only, *own.rules_of_grid))

    @property
    def group(self) -> Group:
        """The job under its own settings alone."""
        return Group((self.member(Combination(self.job, ())),))

    def search_group(self, group: Group, *, top: int = 1) -> Search:
        """A search for the fastest layouts of a group of combinations, not begun."""
        first = group.members[0].context
        limits = SearchLimits(self.usable_of(first.machine), top)
        return Search(first, group.rules, limits, group=group, workers=self.workers)

    def best(self, search: Search, cutoff: float = np.inf) -> SearchResult:
        """The best answer of a search whose objective is less than `cutoff`."""
        return search.run(DeadlineBudget(self.budget), cutoff)

    def any(self, search: Search, cutoff: float) -> SearchResult:
        """Some answer of a search whose objective is less than `cutoff`."""
        return search.run(UntilFeasible(search, self.budget), cutoff)
