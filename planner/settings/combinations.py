"""Combinations of settings that a search tries, and which layouts each is tried on.

A combination covers another where every value of it is known to be no slower and to take no more
memory (`Setting.rank`): of the other only layouts are searched that the first does not allow. One
that covers all of another leaves nothing of it, and is simply on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import Literal

import numpy as np

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule, legal_rows
from trainplan.costmodel.runtimes import Setting

DEFAULT = "default"
"""Of lists of values: what a runtime does where nothing is stated."""
Level = Literal["safe", "all", "none"]
"""Settings a search varies: safe ones, all, none. Source: `Setting.level`."""


@dataclass(frozen=True, slots=True, eq=False)
class Combination:
    """A job under some settings."""

    job: Job
    settings: tuple[Setting, ...]
    """Those that are not the runtime's default."""
    only: tuple[Rule, ...] = ()
    """Which layouts are searched: those that no combination allows that covers this one."""
    covered: bool = False
    """Another one allows all its layouts and is no slower on any: nothing is left to search."""
    required: tuple[Rule, ...] = ()
    """Which layouts the user allows under these settings."""

    @property
    def plain(self) -> Job:
        """The job under none of them."""
        options = dict.fromkeys((one.name for one in self.settings), None)
        return self.job.model_copy(update={"options": self.job.options.model_copy(update=options)})


def combinations(
    on: Context,
    level: Level,
    required: Callable[[Job], tuple[Rule, ...]] = lambda job: (),
    writes: Callable[[Job], bool] = lambda job: True,
) -> tuple[Combination, ...]:
    """All combinations of settings that the job does not state, its own options first.

    `required` is what the user wants of layouts under the settings of a job: what it refuses,
    another combination may still do. `writes` states under which settings a launch can be written.
    """
    job = on.job
    stated = {name for name, value in job.options if value is not None}
    free = [one for one in on.traits.settings if one.name not in stated]
    tried = [one for one in free if level != "none" and level in (one.level, "all")]
    names = groupby(sorted(tried, key=lambda one: one.name), key=lambda one: one.name)
    choices = [(None, *values) for _, values in names]
    chosen = [tuple(one for one in some if one) for some in product(*choices)]
    every = [Combination(with_settings(job, some), some) for some in chosen]
    legal = [
        replace(one, required=required(one.job))
        for one in every
        if all(value.refused(one.job) is None for value in one.settings) and writes(one.job)
    ]
    columns = _columns(legal)
    return tuple(_limited(place, legal, columns) for place in range(len(legal)))


def values_of(every: Iterable[Combination]) -> dict[str, list[str]]:
    """Values of each setting that some combinations have, as `--option` takes them."""
    found: dict[str, list[str]] = {}
    for one in (setting for combination in every for setting in combination.settings):
        values, text = found.setdefault(one.name, [DEFAULT]), one.text.partition("=")[2]
        values.extend([] if text in values else [text])
    return found


def with_settings(job: Job, settings: Iterable[Setting]) -> Job:
    """The job with more options."""
    options = job.options.model_copy(update={one.name: one.value for one in settings})
    return job.model_copy(update={"options": options})


Columns = list[tuple[str, list[Setting | None], IntColumn]]
"""An option, its values, and which of them each combination has."""


def _columns(every: Sequence[Combination]) -> Columns:
    columns: Columns = []
    for name in {value.name for one in every for value in one.settings}:
        stated = [_by_name(one).get(name) for one in every]
        values = list(dict.fromkeys(stated))
        columns.append((name, values, np.array([values.index(one) for one in stated])))
    return columns


def _limited(place: int, every: Sequence[Combination], columns: Columns) -> Combination:
    """The combination without the layouts that others take over."""
    one, likely = every[place], np.ones(len(every), dtype=bool)
    for name, values, column in columns:  # of those none is worse
        own = _by_name(one).get(name)
        likely &= np.array([a is own or _no_slower(a, own, one) for a in values])[column]
    needed = [
        _needed(every[other], one)
        for other in np.flatnonzero(likely).tolist()
        if _covers(every[other], one, first=other < place)
    ]
    idle = tuple(value.idle for value in one.settings if value.idle)
    only = (*idle, *(_beyond(other, rules) for other, rules in needed if rules))
    covered = any(not rules for _, rules in needed)
    return replace(one, only=only, covered=covered)


def covers(one: Combination, other: Combination) -> bool:
    """Does no layout take longer or more memory under `one`, whatever its rules?"""
    return _covers(one, other, first=True)


def _covers(one: Combination, other: Combination, *, first: bool) -> bool:
    """Does `one` never take more time or memory than `other`? Of equals, the first."""
    ours, theirs = _by_name(one), _by_name(other)
    pairs = [(ours.get(name), theirs.get(name)) for name in ours.keys() | theirs.keys()]
    unlike = [(a, b) for a, b in pairs if a is not b]
    if not unlike or not all(_no_slower(a, b, other) for a, b in unlike):
        return False
    return first or any(not _no_slower(b, a, other) for a, b in unlike)


def _by_name(one: Combination) -> Mapping[str, Setting]:
    return {value.name: value for value in one.settings}


def _no_slower(one: Setting | None, other: Setting | None, under: Combination) -> bool:
    """Of two values of one option; null is the default."""
    if one is None or one.rank is None:
        return False
    if other is None:
        return one.beats_default(under.job)
    return other.rank is not None and one.rank >= other.rank


def _needed(one: Combination, other: Combination) -> tuple[Combination, tuple[Rule, ...]]:
    """A combination that covers another, and what it needs of layouts that the other does not."""
    ours, theirs = _rules(one), _rules(other)
    return one, (*(rule for name, rule in ours.items() if name not in theirs), *one.required)


def _rules(one: Combination) -> Mapping[str, Rule]:
    return {rule.name: rule for value in one.settings for rule in value.rules(one.job)}


def _beyond(one: Combination, rules: tuple[Rule, ...]) -> Rule:
    """Refuses what the combination allows."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        return legal_rows(one.job, rules, table)

    return Rule(
        name=ELSEWHERE,
        columns=frozenset().union(*(rule.columns for rule in rules)),
        broken=broken,
        says="searched under settings that are no slower",
        source="costmodel/runtimes/traits/settings.py, Setting.rank",
    )


ELSEWHERE = "settings_no_slower"


def without_one(of: Combination, settings: tuple[Setting, ...]) -> Iterator[tuple[Setting, ...]]:
    """Combinations with one setting less, where the runtime has them."""
    plain = replace(of, settings=settings).plain
    for left in settings:
        rest = tuple(one for one in settings if one is not left)
        changed = with_settings(plain, rest)
        if all(one.refused(changed) is None for one in rest):
            yield rest
