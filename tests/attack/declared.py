"""What a plan says it searched: which layouts, under which settings, and the bound of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable, layers_per_stage
from trainplan.costmodel.program.ops import placed
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.runtimes.traits import Setting
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.planner.plan.plan import Plan
from trainplan.planner.policies.offload import fractions_of
from trainplan.planner.policies.recompute import POLICY_COLUMNS, allows_any_split
from trainplan.planner.space import Space
from trainplan.planner.space.grid import NODE_COLUMNS, STAGING_COLUMNS, RuleFilter, skeletons

INSIDE, ANY_SPLIT = "", "any split"
"""Where `lower_bound_s` holds, and where the bound of all splits does."""
ANSWERS = (INSIDE, ANY_SPLIT, "chunks", "stages")
"""Of an answer: some splits are tried without a proof."""
Values = set[tuple[float, ...]]


def settings_of(original: Job, job: Job) -> tuple[Setting, ...]:
    """Settings of the runtime that a job has and the original job does not state."""
    return tuple(
        one
        for one in traits_of(original).settings
        if getattr(original.options, one.name) is None
        and getattr(job.options, one.name) == one.value
    )


@dataclass
class Declared:
    """The space of a certificate, on the cluster of a job and under any settings."""

    original: Job
    plan: Plan
    _known: dict[tuple[str, int, int], Values] = field(default_factory=dict)

    @cached_property
    def combinations(self) -> set[frozenset[str]]:
        """Options that were added to those of the job, as `--option` takes them."""
        found = self.plan.certificate.settings
        tried = [one.options for one in found.combinations] if found else []
        return {frozenset(options) for options in (*tried, found.chosen if found else ())}

    def outside(self, job: Job, layouts: list[Layout]) -> list[str]:
        """For each layout what of it was not searched; `INSIDE` or `ANY_SPLIT` where all was."""
        settings = frozenset(one.text for one in settings_of(self.original, job))
        if settings not in self.combinations:
            return ["settings"] * len(layouts)
        space, table = Space(context_for(job.model_copy(update=self._may))), LayoutTable.of(layouts)
        alone = allows_any_split(space.traits, table).tolist()
        return [
            next(self._unsearched(space, table, row), None) or self._split(space, layout, free=free)
            for row, (layout, free) in enumerate(zip(layouts, alone, strict=True))
        ]

    @property
    def _may(self) -> dict[str, bool]:
        names = ("may_offload_activations", "may_replicate_shards", "may_shard_matrices")
        return {name: getattr(self.plan.job, name) for name in names}

    def _unsearched(self, space: Space, table: LayoutTable, row: int) -> Iterator[str]:
        """Names of axes whose values no layout of the grid has, or not together."""
        layout, listed = table.row(row), self.plan.certificate.space
        for axis in AXES:
            tried = axis.tried(space.job, space.traits) if axis.column in NODE_COLUMNS else ()
            off = axis.name in listed or axis.name == "stages" or axis.is_off(layout)
            if not off or (tried and axis.of(layout) not in tried):
                yield axis.name
        if all(
            one.at_least(table.offload_optimizer)[row] != layout.offload.optimizer
            for one in fractions_of(space.traits, ())
        ):
            yield "offload.optimizer"
        for names in (STAGING_COLUMNS, POLICY_COLUMNS):
            own = tuple(float(getattr(table, name)[row]) for name in names)
            every = self._values(space, names, layout.pp, layout.vpp)
            if own not in every:
                yield min((_unlike(names, own, one) for one in every), key=len)

    def _values(self, space: Space, names: tuple[str, ...], pp: int, vpp: int) -> Values:
        """All values of some columns below a node, for a number of virtual stages."""
        key = (
            names[0],
            pp,
            -(-space.job.model.num_hidden_layers // (pp * vpp)) if names is POLICY_COLUMNS else 0,
        )
        if key not in self._known:
            if names is POLICY_COLUMNS:
                columns = list(space.memory_policies(key[2]))
            else:
                node = LayoutTable.of([Layout(pp=pp, dp=space.job.cluster.num_gpus // pp)])
                table = skeletons(space, RuleFilter(space.job, ()), node).table
                columns = [getattr(table, name) for name in names]
            self._known[key] = set(zip(*(map(float, one) for one in columns), strict=True))
        return self._known[key]

    def _split(self, space: Space, layout: Layout, *, free: bool) -> str:
        """Which splits of the layers were searched."""
        if layout.stages is None:
            return INSIDE
        layers = np.array([stage.layers for stage in layout.stages])
        if any(stage.recompute_num_layers is not None for stage in layout.stages):
            return "recomputation by stage"
        if tuple(layers) == layers_per_stage(space.job.model.num_hidden_layers, len(layers)):
            return INSIDE
        proof = self.plan.certificate.uneven_stages
        if proof is None or not free:
            return "stages"
        chunks = layers[placed(SCHEDULES[layout.schedule].placement, layout.pp, layout.vpp)]
        if (np.ptp(chunks, axis=1) <= 1).all():
            return INSIDE
        time = self.plan.certificate.objective.name == "time"
        return ANY_SPLIT if time and proof.any_split_lower_bound_s is not None else "chunks"


def _unlike(names: tuple[str, ...], own: tuple[float, ...], other: tuple[float, ...]) -> str:
    """Columns in which two differ; the nearest value of the grid has the shortest list."""
    pairs = zip(names, own, other, strict=True)
    return "+".join(name for name, mine, one in pairs if mine != one)


@dataclass
class Tally:
    """Layouts tried, by what of them was not searched."""

    tried: Counter[str] = field(default_factory=Counter)
    fit: int = 0
    gain: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By how much the best one is below the bound, and which it is."""

    def add(self, where: str, figure: float, floor: float, finding: Callable[[], str]) -> None:
        """Take note of one."""
        self.tried[where] += 1
        self.fit += figure < inf
        gain = 1 - figure / floor if floor else 0.0  # a stopped search may bound nothing
        if where not in (INSIDE, ANY_SPLIT) and gain > self.gain.get(where, (0.0, ""))[0]:
            self.gain[where] = gain, finding()

    def join(self, other: Tally) -> None:
        """With those of another target."""
        self.tried, self.fit = self.tried + other.tried, self.fit + other.fit
        for where, gain in other.gain.items():
            self.gain[where] = max(gain, self.gain.get(where, (0.0, "")))

    def lines(self) -> Iterator[str]:
        """As a run prints it."""
        inside, split = self.tried[INSIDE], self.tried[ANY_SPLIT]
        yield (
            f"{self.tried.total()} layouts tried, {self.fit} fit; "
            f"{inside} in the declared space, {split} more among all splits"
        )
        for where, (gain, finding) in sorted(self.gain.items(), key=lambda one: -one[1][0]):
            tried = self.tried[where]
            yield f"outside by {where}: {tried} tried, up to {gain:.2%} below the bound: {finding}"
