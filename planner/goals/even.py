"""The fastest even stages over settings: groups of combinations, opened as one tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable
from trainplan.planner.goals.context import SearchContext
from trainplan.planner.settings import Combination, covers
from trainplan.planner.tree import Group, Member, Pool, Search, SearchResult, groups_of
from trainplan.planner.work import run_together


@dataclass(frozen=True, slots=True)
class EvenAnswer:
    """The best layout with even stages of some groups, and what is proved of all of them."""

    groups: tuple[Group, ...]
    nodes: tuple[Pool, ...]
    """Of each group those that may fit, with their bounds."""
    place: tuple[int, int]
    """Of the answer's combination: its group, and its number there."""
    finalists: LayoutTable | None
    """Of that combination, fastest first."""
    value: float
    """Seconds of the first; infinite where nothing fits."""
    lower_bound_s: float
    """No layout with even stages of any group is faster."""
    step_bound_s: float
    """No layout is."""

    @classmethod
    def of(cls, group: Group, found: SearchResult) -> EvenAnswer:
        """What a search of one combination found."""
        return cls(
            (group,),
            (found.roots,),
            (0, 0),
            found.finalists,
            found.value,
            found.lower_bound_s,
            found.step_bound_s,
        )

    @property
    def combination(self) -> Combination:
        """Of the answer."""
        group, number = self.place
        return self.groups[group].members[number].combination

    def place_of(self, job: Job) -> tuple[int, int]:
        """Where the combination of a job is."""
        every = enumerate(one.members for one in self.groups)
        places = (
            (group, number)
            for group, members in every
            for number, one in enumerate(members)
            if one.job is job or one.job == job
        )
        return next(places)


@dataclass(frozen=True, slots=True)
class EvenTree:
    """Searches of all groups, with what is known of each."""

    groups: tuple[Group, ...]
    searches: tuple[Search, ...]

    @classmethod
    def begin(
        cls,
        context: SearchContext,
        every: Sequence[Combination],
        top: int,
        like: EvenTree | None = None,
    ) -> EvenTree:
        """One search for each group of combinations that is not covered by others, not begun.

        They are grouped as those of the same job on another part of its cluster, if they may be.
        """
        members = [context.member(one) for one in every if not one.covered]
        groups = (like and like._grouped(members)) or groups_of(members, context)
        return cls(groups, tuple(context.search_group(one, top=top) for one in groups))

    def _grouped(self, members: Sequence[Member]) -> tuple[Group, ...]:
        """Combinations of another job in groups with the same settings; none if they differ."""
        own = {one.combination.settings: one for one in members}
        known = [[one.combination.settings for one in group.members] for group in self.groups]
        if own.keys() != {one for some in known for one in some}:
            return ()
        groups = [[own[one] for one in some] for some in known]
        holds = (covers(some[0].combination, x.combination) for some in groups for x in some[1:])
        return tuple(Group(tuple(some)) for some in groups) if all(holds) else ()

    @property
    def best(self) -> int:
        """Number of the group with the best answer; the first of equals has fewer settings."""
        found = [(one.value, self._settings(place)) for place, one in enumerate(self.searches)]
        return found.index(min(found))

    def _settings(self, place: int) -> int:
        answer = self.searches[place].incumbent
        members = self.groups[place].members
        return len(members[answer.member if answer else 0].combination.settings)

    def run(self, context: SearchContext) -> SearchResult:
        """Open branches until the best answer is proved, or the time is over.

        Run again, it goes on.
        """
        for one in self.searches:
            one.budget = context.budget
            one.lower(context.beat_s)
        best = run_together(self.searches, context.budget, best=context.beat_s)
        order = sorted(self.searches, key=lambda one: one.smallest)
        while np.isinf(best) and order and order[0].smallest < np.inf:
            one = order.pop(0)
            one.primal_heuristic()
            best = one.value
        return self.searches[self.best].result(complete=not context.budget.spent())

    @property
    def lower_bound_s(self) -> float:
        """No layout with even stages under any combination is faster."""
        best = min(one.value for one in self.searches)
        return min(best, *(one.smallest for one in self.searches))

    def values(self) -> dict[Combination, float]:
        """Seconds of the best layout of each combination of which one was simulated."""
        found: dict[Combination, float] = {}
        for group, search in zip(self.groups, self.searches, strict=True):
            for answer in search.best.values():
                one = group.members[answer.member].combination
                found[one] = min(found.get(one, np.inf), answer.value)
        return found

    def answer(self) -> EvenAnswer:
        """The best of all groups, with the layouts of its combination."""
        place = self.best
        search = self.searches[place]
        best = sorted(search.best.values(), key=lambda one: one.value)
        number = best[0].member if best else 0
        own = [one.layout for one in best if one.member == number]
        return EvenAnswer(
            groups=self.groups,
            nodes=tuple(one.nodes for one in self.searches),
            place=(place, number),
            finalists=LayoutTable.concat(own) if own else None,
            value=search.value,
            lower_bound_s=self.lower_bound_s,
            step_bound_s=min(one.step_bound_s for one in self.searches),
        )
