"""The part of the cluster that is best by an objective: numbers of nodes, and groups alone.

Each part is one question, searched as if it were the whole cluster. A part whose bound is no better
than the best answer so far is not searched. The others are searched briefly, and the best in full:
its stages may be uneven and its settings its own, but not for energy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np

from trainplan.costmodel.job import Job
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import stretch_of
from trainplan.costmodel.step import step_seconds
from trainplan.planner.goals.after_even import with_uneven_stages
from trainplan.planner.goals.cluster_sizes import (
    ending,
    island_jobs,
    longest_step,
    lower_bound_of,
    part_jobs,
    scale_of,
    tries_all,
    value_of,
)
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.goals.even import EvenTree
from trainplan.planner.goals.fastest import fastest, num_finalists, settings_of_fastest
from trainplan.planner.goals.reach import UNITS, Reached, out_of_reach
from trainplan.planner.goals.uneven import Splits, faster_splits, looks_for_uneven, splits_of
from trainplan.planner.goals.with_groups import bound_in_groups, with_groups
from trainplan.planner.plan import Target, Tried
from trainplan.planner.tree import SearchResult, UnevenResult
from trainplan.planner.work import Budget, DeadlineBudget, part_of

OPENED = 240
"""Layouts that brief searches for uneven stages open on all parts together, but for `time`. Source:
assumed; seconds."""
SHARES = (1 / 4, 9 / 10, 3 / 4)
"""Of what is left of a time limit, for one of different groups alone, for the whole cluster, and
for any other part: the rest is for others, and for the full search on the best. Source: assumed."""


class Alone(NamedTuple):
    """A part of the cluster that may be faster alone than all of it."""

    job: Job
    """On the part."""
    step_s: float | None
    """Of its fastest layout; null: it is not known whether one is faster."""


class _Part(Protocol):
    """A part of the cluster, searched for what an objective makes small: seconds or joules."""

    @property
    def context(self) -> SearchContext:
        """The question on it."""

    @property
    def bound(self) -> float:
        """No layout of it goes below."""

    @property
    def expanded(self) -> int:
        """Layouts that its search opened for uneven stages."""

    def search(self, cutoff: float, budget: Budget, most: float) -> tuple[float, float]:
        """Of its best layout below some value, and what none goes below.

        It opens no more than `most` layouts for uneven stages.
        """

    def reached(self) -> Reached:
        """Its best layouts, in full."""


class _Timed:
    """A part that is searched for its fastest step, over settings, uneven stages and groups."""

    def __init__(self, context: SearchContext, like: EvenTree | None, *, in_full: bool) -> None:
        self.context = context
        self._every = context.options.combinations(context)
        top = num_finalists(context) if in_full else 1
        self.tree = EvenTree.begin(context, self._every, top, like)
        self.bound = self.tree.lower_bound_s
        groups = is_heterogeneous(context.job.cluster)
        if groups:
            self.bound = min(self.bound, bound_in_groups(context, self.tree.groups))
        self._in_full = in_full or groups
        self._splits: Splits | None = None
        self._known: UnevenResult | None = None
        self._reached: Reached | None = None

    def search(self, cutoff: float, budget: Budget, most: float) -> tuple[float, float]:
        """Briefly, where that is another search than the full one."""
        own = replace(self.context, beat_s=cutoff, budget=budget)
        if self._in_full:
            self._reached = self._whole(own)
            found = self._reached.found
            return found.value, min(found.lower_bound_s, found.value)
        own = replace(own, budget=DeadlineBudget(budget))  # in silence
        self.tree.run(own)
        even = self.tree.answer()
        if looks_for_uneven(own):
            self._splits = splits_of(own, even, cutoff)
            self._known = faster_splits(own, even, self._splits, most=most, brief=True)
        return value_of(even, self._known), lower_bound_of(even, self._known)

    @property
    def expanded(self) -> int:
        """Layouts that were opened for uneven stages."""
        return self._known.expanded if self._known else 0

    def reached(self) -> Reached:
        """Those that are known, where the search was not brief."""
        return self._reached or self._whole(self.context)

    def _whole(self, own: SearchContext) -> Reached:
        """What was begun goes on; even stages without an answer below the cutoff anew."""
        tree = self.tree
        if self._known and not np.isfinite(tree.answer().value):
            tree = EvenTree.begin(own, self._every, num_finalists(own), tree)
        found = Reached.of(fastest(own, self._every, tree, self._splits))
        return with_uneven_stages(with_groups(own, found))


class _Joules:
    """A part that is searched for least energy, with even stages and the settings of the job."""

    expanded = 0

    def __init__(self, context: SearchContext) -> None:
        self.context, self._most_s = context, longest_step(context)
        self._search = context.search("energy", most_seconds=self._most_s)
        in_time = self._search.step_bound_s <= self._most_s
        self.bound = self._search.nodes.smallest if in_time else np.inf
        self._found: SearchResult | None = None

    def search(self, cutoff: float, budget: Budget, most: float) -> tuple[float, float]:
        """For one layout alone."""
        self._found = replace(self.context, budget=budget).best(self._search, cutoff)
        return self._found.value, self._found.lower_bound_s

    def reached(self) -> Reached:
        """With alternatives; what is known if time is short."""
        own, top = self.context, num_finalists(self.context)
        found = own.search("energy", most_seconds=self._most_s, top=top).run(own.budget)
        assert self._found is not None
        return Reached(own, found if found.complete else self._found, None)


class _Choice:
    """The best part so far, and all that were tried."""

    def __init__(self, context: SearchContext) -> None:
        self._context, self._options = context, context.options
        self._name = self._options.objective
        self._late = self._name in ("cost", "gpus")
        self._may_open = np.inf if self._name == "time" else OPENED
        timed = self._options.model_copy(update={"objective": "time"})
        self._timed = replace(context, options=timed)
        self._like: EvenTree | None = None
        self.whole: _Part | None = None
        self.best: _Part | None = None
        self.value = np.inf
        """Of the best part: seconds or joules of a step."""
        self._tried: list[tuple[_Part, float, float]] = []
        """Each with the value of its best layout, and what none goes below."""

    def part(self, job: Job) -> _Part:
        """The job on a part of the cluster, or on all of it, with a bound."""
        whole = job == self._context.job
        if self._name == "energy":
            return _Joules(self._context if whole else self._context.with_job(job))
        own = self._timed if whole else self._timed.with_job(job)
        part = _Timed(own, self._like, in_full=whole and self._name == "time")
        self._like = self._like or part.tree
        self.whole = part if whole else self.whole
        return part

    def _limit(self, part: _Part) -> float:
        """What a step must stay below to be in time; infinite where that is no matter yet."""
        return float(np.nextafter(longest_step(part.context), np.inf)) if self._late else np.inf

    def figure(self, part: _Part, value: float) -> float:
        """The objective of a layout; infinite where its step is too long.

        Of `time`, seconds that pass for a step with its share of what does not train.
        """
        if value >= self._limit(part):
            return np.inf
        job = part.context.job
        if self._name == "gpus":
            return float(job.num_gpus)
        return value * (stretch_of(job) if self._name == "time" else scale_of(job, self._name))

    def cutoff(self, part: _Part) -> float:
        """What a layout of a part must stay below to matter."""
        if self.best is None:
            return self._limit(part)
        gpus, fewest = part.context.job.cluster.num_gpus, self.best.context.job.cluster.num_gpus
        if self._name == "gpus":
            return self.value if gpus == fewest else 0.0
        if self._name == "time":
            slack = (
                0.0 if self._options.only_answer or gpus >= fewest else self._options.slack_fraction
            )
            least = self.figure(self.best, self.value) / stretch_of(part.context.job)
            return least * (1 + slack)
        least = self.figure(self.best, self.value) / scale_of(part.context.job, self._name)
        return min(least, self._limit(part))

    def search(self, part: _Part, budget: Budget) -> None:
        """Search a part, if it may matter and there is time."""
        cutoff, value, bound = self.cutoff(part), np.inf, part.bound
        if bound < cutoff and not (self.best and budget.spent()):
            value, bound = part.search(cutoff, budget, self._may_open)
            self._may_open -= part.expanded
            if cutoff < self._limit(part):  # what is no better was not looked at
                bound = min(bound, cutoff)
        self._tried.append((part, value, min(bound, value)))
        best = self.figure(self.best, self.value) if self.best else np.inf
        figure = self.figure(part, value)
        if figure < best or (figure == best < np.inf and value < self.value):
            self.best, self.value = part, value

    def tried(self, found: SearchResult) -> tuple[Tried, ...]:
        """All parts, fewest GPUs first; of the best is known what its search in full found."""
        figures = [
            (part, min(value, found.value), max(bound, min(found.lower_bound_s, found.value)))
            if part is self.best
            else (part, value, bound)
            for part, value, bound in self._tried
        ]
        tried = [
            Tried.of(one.context.job.cluster, self.shown(one, value), self.shown(one, bound))
            for one, value, bound in figures
        ]
        return tuple(sorted(tried, key=lambda one: one.num_gpus))

    def shown(self, part: _Part, value: float) -> float:
        """As `figure`; of `time`, seconds of a step on the best part that take as long."""
        assert self.best is not None
        own = stretch_of(self.best.context.job) if self._name == "time" else 1.0
        return self.figure(part, value) / own


def best_part(context: SearchContext) -> Reached:
    """The layouts of a plan, on the part of the cluster that is best.

    Raises:
        PlanError: The objective lacks a number, or no layout meets the deadline.
    """
    name, settings = context.options.objective, None
    if name == "energy" and not is_heterogeneous(context.job.cluster):
        context, settings = settings_of_fastest(context)
    choice = _Choice(context)
    every = ending([context.job]) if context.options.whole_cluster else part_jobs(context.job)
    for part in _in_order(context, choice, every):
        share = 1.0 if len(every) == 1 else SHARES[_place(context.job, part.context.job)]
        choice.search(part, part_of(context.budget, share))
    if choice.best is None:
        return choice.whole.reached() if choice.whole and name == "time" else out_of_reach(context)
    found = choice.best.reached()
    reached = _with_target(context, choice, found)
    return replace(reached, settings=settings) if settings else reached


def fastest_island(context: SearchContext, step_s: float, work_s: float) -> Alone | None:
    """Of the groups or levels of the network alone, the one that ends a run first.

    In less time than all nodes take, where a step lasts `step_s`: with failures, each has its own
    share of the time that trains. `work_s` of it are products and attention, of which fewer equal
    GPUs have more each. Null: none does.
    """
    whole, best = context.job.cluster, None
    alike = len({group.gpu for group in whole.groups}) == 1
    only = {"objective": "time", "deadline_days": None, "only_answer": True}
    context = replace(context, options=context.options.model_copy(update=only))
    least = step_s * stretch_of(context.job)
    jobs = [job for job in island_jobs(context.job) if np.isfinite(stretch_of(job))]
    for place, job in enumerate(jobs):
        below = least / stretch_of(job)
        if alike and work_s * whole.num_gpus >= below * job.cluster.num_gpus:
            continue
        part = _Timed(context.with_job(job), None, in_full=False)
        if part.bound >= below:
            continue
        value, bound = np.inf, part.bound
        if not context.budget.spent():
            value, bound = part.search(below, part_of(context.budget, 1 / (len(jobs) - place)), 0)
        if value < below:
            best, least = Alone(job, value), value * stretch_of(job)
        elif best is None and bound < below:
            best = Alone(job, None)
    return best


def _in_order(context: SearchContext, choice: _Choice, every: Sequence[Job]) -> Iterator[_Part]:
    """In the order in which they are searched; those that no time is left for are left out.

    For fewest GPUs by their number. Else groups alone before all, if they differ, then the
    whole cluster, then the others; those with the smallest bound first.
    """
    name = context.options.objective
    order: Callable[[Job], int] = _gpus if name == "gpus" else partial(_place, context.job)
    for _, some in groupby(sorted(every, key=order), key=order):
        parts = [choice.part(job) for job in some if not (choice.best and context.budget.spent())]
        if name == "gpus" and choice.best:
            return
        yield from sorted(parts, key=lambda one: one.bound * scale_of(one.context.job, name))


def _gpus(job: Job) -> int:
    return job.cluster.num_gpus


def _place(job: Job, part: Job) -> int:
    """Of a part in that order."""
    own, cluster = part.cluster, job.cluster
    if own == cluster:
        return 1
    return 0 if is_heterogeneous(cluster) and not is_heterogeneous(own) else 2


def _with_target(context: SearchContext, choice: _Choice, reached: Reached) -> Reached:
    """The question, of the best part."""
    assert choice.best is not None
    found, job, name = reached.found, reached.job, context.options.objective
    value, limit = choice.shown(choice.best, found.value), longest_step(reached.context)
    tried, cluster = choice.tried(found), context.job.cluster
    if not np.isfinite(stretch_of(context.job)):  # all nodes never end the run
        tried = (*tried, Tried.of(cluster, np.inf, np.inf))
    smaller = name == "gpus" and not is_heterogeneous(cluster)
    every = smaller and len(tried) == job.cluster.num_nodes
    target = Target(
        name=name,
        unit=UNITS.get(name, job.cluster.currency),
        per="run" if job.training.tokens and name != "time" else "step",
        value=value,
        lower_bound=min(value, *(one.bound for one in tried)),
        step_time_limit_s=limit if np.isfinite(limit) else None,
        tried=tried,
        tried_all=every or context.options.whole_cluster or tries_all(cluster),
    )
    if name == "time":
        found = replace(found, lower_bound_s=min(found.lower_bound_s, target.lower_bound))
    elif name != "energy" and found.finalists is not None and np.isfinite(limit):
        in_time = step_seconds(reached.context.with_table(found.finalists)) <= limit
        found = replace(found, finalists=found.finalists.take(in_time))
    own = replace(reached.context, options=context.options, budget=context.budget, beat_s=np.inf)
    return replace(reached, context=own, found=found, target=target)
