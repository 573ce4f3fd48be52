"""Combinations of settings that are bounded together, under the most optimistic of them.

A group has a top: no layout takes longer or more memory under the top than under any member
(`Setting.rank`), whatever the rules of the top say of it. So a bound of a branch under the top
holds for the branch under all members, which are told from each other when a layout is opened.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.costmodel.step import node_bound_seconds
from trainplan.planner.settings import Combination, covers
from trainplan.planner.space import NODE_COLUMNS, RuleFilter, Space, nodes

NEAR = 0.93
"""A combination joins a group whose top has at least this share of its own node bounds. Source:
measured; 1 bounds every combination by itself, and any value gives a valid bound."""
SAMPLED, COMPARED = 8192, 256
"""Nodes of the grid that are looked at, evenly spaced, and those of a member on which bounds are
compared, of its smallest bounds. Source: assumed."""


@dataclass(frozen=True, slots=True)
class Member:
    """One combination of settings, and what its layouts must respect."""

    combination: Combination
    context: Context
    """Of its job."""
    rules: tuple[Rule, ...]

    @property
    def job(self) -> Job:
        """The job under these settings."""
        return self.combination.job


@dataclass(frozen=True, slots=True)
class Group:
    """Combinations with one bound; the first is the top, whose settings are fastest."""

    members: tuple[Member, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What no member allows, of the rules that all members have: the others wait for a layout.

        A rule is told from others by its name and by its place among those of that name.
        """
        if len(self.members) == 1:
            return self.members[0].rules
        named = [_by_name(one.rules) for one in self.members]
        shared = [key for key in named[0] if all(key in other for other in named)]
        return tuple(self._joint([one[key] for one in named]) for key in shared)

    def _joint(self, rules: Sequence[Rule]) -> Rule:
        """Broken where every member breaks its own rule of that name."""
        jobs, first = [one.job for one in self.members], rules[0]

        def broken(job: Job, table: LayoutTable) -> BoolColumn:
            refused = np.array(first.broken(jobs[0], table))
            for own, rule in zip(jobs[1:], rules[1:], strict=True):
                if not refused.any():
                    break
                refused &= rule.broken(own, table)
            return refused

        return Rule(first.name, first.columns, broken, first.says, first.source, first.values)


def _by_name(rules: Sequence[Rule]) -> dict[tuple[str, int], Rule]:
    names = [one.name for one in rules]
    return {(one.name, names[:place].count(one.name)): one for place, one in enumerate(rules)}


def groups_of(members: Sequence[Member], plain: Context) -> tuple[Group, ...]:
    """All members in groups; each joins the first top that covers it and bounds it closely.

    `plain` is the job under the settings of none.
    """
    if len(members) == 1:
        return (Group(tuple(members)),)
    order = sorted(members, key=lambda one: -sum(_covers(one, other) for other in members))
    sample = _nodes(members, plain)
    grouped: list[list[Member]] = []
    for one in order:
        legal = _legal(one, sample)
        near = NEAR * _bound(one, legal)
        tops = (some for some in grouped if _covers(some[0], one))
        joined = next((some for some in tops if (_bound(some[0], legal) >= near).all()), None)
        if joined is None:
            grouped.append([one])
        else:
            joined.append(one)
    return tuple(Group(tuple(some)) for some in grouped)


def _covers(one: Member, other: Member) -> bool:
    return one is not other and covers(one.combination, other.combination)


def _nodes(members: Sequence[Member], plain: Context) -> LayoutTable:
    """Nodes of the grid that the rules allow which all members have."""
    table = nodes(Space(plain), RuleFilter(plain.job, Group(tuple(members)).rules)).table
    step = max(1, len(table) // SAMPLED)
    return table.take(np.arange(0, len(table), step))


def _legal(one: Member, table: LayoutTable) -> LayoutTable:
    """The nodes that the rules of a member allow which read no more; its fastest ones."""
    known = frozenset(NODE_COLUMNS)
    for rule in one.rules:
        if rule.columns <= known:
            table = table.take(~rule.broken(one.job, table))
    seconds = _bound(one, table)
    return table.take(np.argsort(seconds, kind="stable")[:COMPARED])


def _bound(one: Member, table: LayoutTable) -> np.ndarray:
    return node_bound_seconds(one.context.with_table(table))
