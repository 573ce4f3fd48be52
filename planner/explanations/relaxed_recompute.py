"""What it costs that a runtime recomputes as many layers on every stage.

Two searches without that rule, and nothing else changed:

    same split   every layout with even stages, best first; the plan's degrees with its own split
    any split    the degrees of the plan and of the best of those, their layers split anew

No supported runtime runs such a layout, so this is a price and no answer.
"""

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.costmodel.step import node_bound_seconds, price, step_seconds
from trainplan.costmodel.timeline import EQUALS
from trainplan.planner.cases import Case
from trainplan.planner.goals import splits_freely
from trainplan.planner.plan import SearchOptions
from trainplan.planner.policies import (
    allows_any_split,
    fractions_of_splits,
    in_parts,
    with_fraction,
    with_least_offload,
)
from trainplan.planner.space import RuleFilter, Space, legality_rules, nodes, skeletons
from trainplan.planner.stages import (
    ByStage,
    EvenLayouts,
    PathPool,
    StageProblem,
    best_by_stage,
    by_stage,
    simulated_choice,
    stage_problems,
)
from trainplan.planner.tree import Pool
from trainplan.planner.work import Deadline, parts_of

SHARE_OF_TIME = 0.2
"""Of a time limit that all of this may take. Source: assumed; 6 of the 30 s of `plan explain`."""
MOST_SECONDS = 10.0
"""Of a long time limit; the rest belongs to the other prices. Source: assumed."""
SHARE_OF_EVEN = 0.6
"""Of the seconds, for even stages where splits are searched too. Source: assumed."""
EXPANDED_WITHOUT_LIMIT = 100
"""Layouts opened where no time limit states when to stop: some seconds, and always the same."""
MOST_STAGES = 16
"""Virtual stages of layouts that are split anew without a limit: the integer program of more of
them may take minutes (docs/decisions/0012)."""
REFINED_AT_ONCE = 64
ROUGH, CLOSE = 0, 1
"""What is known of a bound: nothing of memory, or what has to be recomputed at least."""


@dataclass(frozen=True, slots=True)
class RelaxedRule:
    """The fastest step without a rule, as far as it is known."""

    plan_step_time_s: float
    layout: Layout | None
    """A layout that breaks the rule and is faster than the plan; None where none was found."""
    step_time_s: float
    """Its step time; without one, the plan's."""
    lower_bound_s: float
    """No layout without the rule is faster; 0 where not all of them were searched."""

    @property
    def proved(self) -> bool:
        """Is nothing faster?"""
        return self.lower_bound_s * EQUALS >= self.step_time_s

    @property
    def cost_fraction(self) -> float:
        """By how much the plan takes longer, at least."""
        return self.plan_step_time_s / self.step_time_s - 1

    @property
    def most_cost_fraction(self) -> float:
        """By how much it may take longer; infinite where nothing is proved."""
        bound = self.lower_bound_s
        return self.plan_step_time_s / bound - 1 if bound else np.inf


@dataclass(frozen=True, slots=True)
class RecomputeRule:
    """What the same recomputation on every stage costs."""

    same_split: RelaxedRule
    """The split of layers is kept."""
    any_split: RelaxedRule | None
    """A layout that is faster still with another split of the layers; None where none was found."""


class Until:
    """A deadline some seconds from now, or that of another one if it comes first."""

    def __init__(self, whole: Deadline, seconds: float) -> None:
        self.whole = whole
        self.rest = whole.seconds_left() - seconds

    def seconds_left(self) -> float:
        """Infinite without a limit."""
        left = self.whole.seconds_left()
        return max(0.0, left - self.rest) if np.isfinite(left) else left


def recompute_rule(
    case: Case, layout: Layout, step_time_s: float, deadline: Deadline
) -> RecomputeRule | None:
    """Price the rule for a plan of so many seconds a step.

    None where the runtime has no such rule, node groups or layers offloaded to the host make it
    another problem, or no time is left.
    """
    if deadline.seconds_left() <= 0:
        return None
    on = case.context
    unknown = len(on.job.cluster.groups) > 1 or on.traits.footprint.offloaded_layers > 0
    if on.traits.recompute.by_stage or unknown:
        return None
    seconds = min(SHARE_OF_TIME * deadline.seconds_left(), MOST_SECONDS)
    whole = Until(deadline, seconds)
    search = _Search(on, case.options, step_time_s)
    own = LayoutTable.of([layout])
    free = splits_freely(on, case.options)
    same = search.even(Until(whole, SHARE_OF_EVEN * seconds if free else seconds), own)
    anew = search.anew(own, same, whole) if free else same
    return RecomputeRule(same, anew if anew.step_time_s < same.step_time_s else None)


class _Search:
    """Layouts that recompute stage by stage and are faster than a plan."""

    def __init__(self, on: Context, options: SearchOptions, plan_s: float) -> None:
        self.on, self.plan_s, self.pool = on, plan_s, PathPool()
        self.memory_bytes = on.machine.memory_bytes * (1 - options.margin(on.job))
        chosen = [choice for choice in options.choices if choice.field != "stages"]
        self.rules: list[Rule] = [
            *(choice.rule() for choice in chosen),
            *options.rules_of_evidence(on),
            *legality_rules(on.traits),
        ]
        self.ranges = in_parts(fractions_of_splits(on.traits, self.rules))
        self.layouts = EvenLayouts(*on.shared, self.memory_bytes, self.ranges)

    def even(self, deadline: Deadline, own: LayoutTable) -> RelaxedRule:
        """Even stages of all degrees; and the split of one layout, if that is another."""
        best = RelaxedRule(self.plan_s, None, self.plan_s, self.plan_s)
        if own.stages[0] is not None:
            split = np.array([stage.layers for stage in own.stages[0]])
            best = self._all(self._policies(own), best, deadline, split)
        space = Space(self.on)
        rule_filter = RuleFilter(self.on.job, self.rules)
        table = nodes(space, rule_filter).table
        table = table.take((table.pp > 1) & (self._node_bound(table) < self.plan_s))
        table = skeletons(space, rule_filter, table).table
        return self._best_first(self._policies(table), best, deadline)

    def anew(self, own: LayoutTable, same: RelaxedRule, deadline: Deadline) -> RelaxedRule:
        """The layers of one layout, and of the best with even stages, split anew."""
        tables = [self._policies(own)]
        if same.layout is not None:
            tables.append(LayoutTable.of([same.layout]))
        table = by_stage(LayoutTable.concat(tables))
        bound = self._node_bound(table)
        best = replace(same, lower_bound_s=0.0)
        endless = np.isinf(deadline.seconds_left())
        possible = (table.pp * table.vpp <= MOST_STAGES) | (not endless)
        for number in np.flatnonzero(possible)[np.argsort(bound[possible], kind="stable")].tolist():
            if bound[number] < best.step_time_s and deadline.seconds_left() > 0:
                row = self._row(table.take(np.array([number])))
                best = _better(best, row, self._settled(row, best, deadline, None))
        return best

    def _policies(self, table: LayoutTable) -> LayoutTable:
        """Every offload of layouts that recompute by stage, those that break no rule."""
        table = by_stage(table.take(allows_any_split(self.on.traits, table)))
        every = with_least_offload(table, self.ranges)
        return every.take(legal_rows(self.on.job, self.rules, every))

    def _best_first(self, table: LayoutTable, best: RelaxedRule, deadline: Deadline) -> RelaxedRule:
        """Settle layouts with even stages in the order of their bounds."""
        waiting = self._waiting(table, best.step_time_s, deadline)
        open_s, expanded = best.lower_bound_s, 0
        while waiting.smallest < best.step_time_s:
            if deadline.seconds_left() <= 0 or expanded >= EXPANDED_WITHOUT_LIMIT:
                break
            one, rest = waiting.pop_smallest(1)
            if one.branch[0] == ROUGH:
                best, waiting = self._refined(best, waiting)
                continue
            expanded, waiting = expanded + bool(np.isinf(deadline.seconds_left())), rest
            pp, vpp = int(one.table.pp[0]), int(one.table.vpp[0])
            row = self._row(one.table)
            found = self._settled(row, best, deadline, self.layouts.even(pp, vpp))
            open_s = min(open_s, max(one.smallest, found.lower_bound_s))
            best = _better(best, row, found)
        bound = min(open_s, waiting.smallest, best.step_time_s)
        return replace(best, lower_bound_s=bound)

    def _waiting(self, table: LayoutTable, below_s: float, deadline: Deadline) -> Pool:
        """Layouts that may fit, as if nothing were recomputed; where no time is left, all."""
        waiting = self._pool(table.take(np.arange(0)), np.zeros(0))
        for part in parts_of(table):
            late = deadline.seconds_left() <= 0
            bound = self._node_bound(part) if late else self._plain_bound(part)
            some = self._pool(part, bound).prune(below_s)
            if len(some.bound) and not late:
                some = some.take(self.layouts.may_fit(some.table))
            waiting = waiting.joined(some)
        return waiting

    def _pool(self, table: LayoutTable, bound: FloatColumn) -> Pool:
        return Pool.of(table, bound, np.full(len(bound), ROUGH))

    def _node_bound(self, table: LayoutTable) -> FloatColumn:
        return node_bound_seconds(self.layouts.with_table(table))

    def _refined(self, best: RelaxedRule, waiting: Pool) -> tuple[RelaxedRule, Pool]:
        """Closer bounds of the first ones, and maybe a faster layout.

        Bounds are what has to be recomputed, and the schedule without that.
        """
        first, rest = waiting.pop_smallest(REFINED_AT_ONCE)
        found = self.layouts.refined(first.table)
        bound = np.maximum(first.bound, found.bound)
        left = np.flatnonzero(bound < best.step_time_s)
        if len(left):
            some = self._simulated(_plain(first.table.take(left)))
            bound[left] = np.maximum(bound[left], some)
        best = self._primal_heuristic(
            best, found.min_memory.take(bound[found.rows] < best.step_time_s)
        )
        close = Pool.of(first.table, bound, np.full(len(bound), CLOSE)).joined(rest)
        return best, close.prune(best.step_time_s)

    def _primal_heuristic(self, best: RelaxedRule, table: LayoutTable) -> RelaxedRule:
        """The fastest of some layouts that fits: a good answer soon."""
        if not len(table):
            return best
        seconds = self._simulated(table)
        for number in np.argsort(seconds, kind="stable").tolist():
            if seconds[number] >= best.step_time_s:
                break
            layout = table.row(number)
            row = self._row(by_stage(table.take(np.array([number]))))
            found = layout.stages and simulated_choice(row, layout.stages)
            if found and found.step_time_s < best.step_time_s:
                return _better(best, row, found)
        return best

    def _simulated(self, table: LayoutTable) -> FloatColumn:
        return step_seconds(self.layouts.with_table(table))

    def _plain_bound(self, table: LayoutTable) -> FloatColumn:
        return price(self.layouts.with_table(_plain(table))).step_seconds

    def _all(
        self, table: LayoutTable, best: RelaxedRule, deadline: Deadline, split: IntColumn | None
    ) -> RelaxedRule:
        """Settle some layouts one by one."""
        for number in range(len(table)):
            row = self._row(table.take(np.array([number])))
            found = self._settled(row, best, deadline, split)
            bound = min(best.lower_bound_s, found.lower_bound_s)
            best = replace(_better(best, row, found), lower_bound_s=bound)
        return best

    def _settled(
        self, row: StageProblem, best: RelaxedRule, deadline: Deadline, split: IntColumn | None
    ) -> ByStage:
        return best_by_stage(row, self.pool, best.step_time_s, deadline, split)

    def _row(self, table: LayoutTable) -> StageProblem:
        return stage_problems(self.layouts.with_table(table), [self.memory_bytes], self.ranges)[0]


def _better(best: RelaxedRule, row: StageProblem, found: ByStage) -> RelaxedRule:
    if found.stages is None or found.step_time_s >= best.step_time_s:
        return best
    layout = with_fraction(row.table, found.offload).row(0)
    layout = layout.model_copy(update={"stages": found.stages})
    return replace(best, layout=layout, step_time_s=found.step_time_s)


def _plain(table: LayoutTable) -> LayoutTable:
    """Nothing recomputed."""
    nothing = np.zeros(len(table), dtype=np.int64)
    return table.replaced(recompute=nothing, recompute_method=nothing, recompute_num_layers=nothing)
