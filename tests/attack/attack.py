"""Attacks on the proofs of `plan search`: each returns what it finds, as sentences.

climb        from the answer, by random changes, over `plan estimate`: nothing legal that fits may
             be better than the bound, or than the answer where that is proved
walk         the same from a random layout, or from one on fewer nodes
exhaust      every layout of a small space, with every split of its layers
loosen       more memory, faster links, one choice less: never a worse answer

All is drawn from a seed, so a finding can be seen again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from random import Random

import numpy as np

from tests.attack.layouts import Changes, compositions, text_of
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.blocks.candidates import context_of
from trainplan.costmodel.layouts import FloatColumn, LayoutTable
from trainplan.costmodel.layouts.table import objects
from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.spec import ClusterSpec, Job, Layout
from trainplan.costmodel.spec.cluster import FabricTier
from trainplan.costmodel.spec.host import HostSpec
from trainplan.costmodel.spec.layout import stage_specs
from trainplan.costmodel.step import price
from trainplan.costmodel.step.energy import energy_of
from trainplan.costmodel.step.simulate import explicit, step_seconds
from trainplan.planner.goals.cluster_sizes import part_jobs, scale_of
from trainplan.planner.plan import Plan
from trainplan.planner.plan.target import Name
from trainplan.planner.questions.search import SearchOptions, estimate, search
from trainplan.planner.space import Space, legality_rules, parse_choice
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons
from trainplan.planner.tree.objective import StepEnergy
from trainplan.planner.work import Budget

ROUNDING = 1 - 1e-9
AT_ONCE = 32
"""Changes looked at before the best of them is taken."""
WORSE = 1.02
"""How much worse a step of a climb may be than where it is: hills are small."""
MOST_SPLITS = 40_000
"""Layouts and splits of a space that is exhausted; a larger one is left alone."""


@dataclass(frozen=True)
class Target:
    """A plan under attack: what is smaller is better."""

    job: Job
    plan: Plan
    options: SearchOptions

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
        table = LayoutTable.of(layouts)
        context = context_of(job, machine_for(job))
        found = explicit(context.with_table(table), memory_margin=self.options.memory_margin)
        seconds = np.array([one.step_time_s for one in found])
        used = np.array([one.memory.peak_reserved_bytes for one in found])
        limit = self.plan.certificate.objective.step_time_limit_s or inf
        figure = {
            "time": lambda: seconds,
            "memory": lambda: used,
            "gpus": lambda: np.full(len(layouts), float(job.cluster.num_gpus)),
            "cost": lambda: seconds * scale_of(job, "cost"),
            "energy": lambda: self._joules(job, table, seconds) * scale_of(job, "energy"),
        }[self.name]()
        fits = np.array([one.memory.fits for one in found])
        return np.where(fits & (seconds <= limit), figure, inf)

    def _joules(self, job: Job, table: LayoutTable, seconds: FloatColumn) -> FloatColumn:
        return StepEnergy(energy_of(job, machine_for(job), traits_of(job))).value(table, seconds)

    def finding(self, job: Job, layout: Layout, figure: float) -> str:
        """A layout that should not be there."""
        better = f"{1 - figure / self.floor:.4%} below {self.floor:.9g}"
        return (
            f"{job.model.name} on {job.cluster.name} ({job.cluster.num_gpus} GPUs), {self.name}: "
            f"{figure:.9g} is {better}: --layout {text_of(layout)!r}"
        )


def climb(target: Target, random: Random, steps: int, start: Layout | None = None) -> list[str]:
    """What is found on a way of random changes from the answer, or from another layout."""
    job = target.plan.job
    changes, at = Changes(job, random, target.options.choices), start or target.plan.best.layout
    here = float(target.figures(job, [at])[0])
    worst: tuple[float, Layout] | None = None
    for _ in range(steps):
        near = changes.of(at, AT_ONCE)
        figures = target.figures(job, near)
        if not len(figures):
            continue
        best = int(np.argmin(figures))
        if figures[best] < target.floor * ROUNDING and (not worst or figures[best] < worst[0]):
            worst = float(figures[best]), near[best]
        if figures[best] < inf and figures[best] <= here * random.uniform(1.0, WORSE):
            at, here = near[best], float(figures[best])
    return [_confirmed(target, job, *worst)] if worst else []


def _confirmed(target: Target, job: Job, figure: float, layout: Layout) -> str:
    """The finding, as the public question sees it."""
    one = estimate(job, layout, memory_margin=target.options.memory_margin)
    assert one.memory.fits
    return target.finding(job, layout, figure)


def walk(target: Target, random: Random, steps: int) -> list[str]:
    """What is found from random layouts, on the whole cluster or a part of it."""
    job, findings = target.job, list[str]()
    whole = target.name in ("time", "memory")
    for _ in range(steps):
        part = job if whole else random.choice(part_jobs(job))
        changes = Changes(part, random, target.options.choices)
        first = changes.any()
        layouts = [first, *changes.of(first, AT_ONCE)] if first else []
        figures = target.figures(part, layouts)
        for row in np.flatnonzero(figures < target.floor * ROUNDING)[:1].tolist():
            findings.append(target.finding(part, layouts[row], float(figures[row])))
    return findings


def exhaust(target: Target) -> list[str]:
    """What is found among all layouts and splits of a small space, for the step time."""
    job, margin = target.job, target.options.memory_margin
    table = _every_layout(job)
    context = context_of(job, machine_for(job))
    splits = traits_of(job).pipeline.splits_freely
    rows, stages = list[int](), list[object]()
    for row in range(len(table)):
        count = int(table.pp[row] * table.vpp[row])
        every: Iterator[tuple[int, ...]] = iter(())
        if count > 1 and splits:
            every = compositions(job.model.num_hidden_layers, count)
        some = [None, *(stage_specs(one) for one in every)]
        rows += [row] * len(some)
        stages += some
        if len(rows) > MOST_SPLITS:
            return []
    whole = table.take(np.array(rows)).replaced(stages=objects(stages))
    for rule in legality_rules(job):
        whole = whole.take(~rule.broken(job, whole))
    priced = price(context.with_table(whole), merged=False)
    fits = priced.memory.fits(context.machine.memory_bytes * (1 - margin))
    near = np.flatnonzero(fits & (priced.step_seconds < target.floor * ROUNDING))
    if not len(near):
        return []
    seconds = step_seconds(context.with_table(whole.take(near)))
    best = int(np.argmin(seconds))
    if seconds[best] >= target.floor * ROUNDING:
        return []
    return [target.finding(job, whole.row(int(near[best])), float(seconds[best]))]


def _every_layout(job: Job) -> LayoutTable:
    """The grid, with the fractions of the optimizer in tenths beside."""
    space, rule_filter = Space(job), RuleFilter(job, legality_rules(job))
    below = skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    table, _ = memory_policies(space, below)
    known = space.traits.offloading.optimizer_step is not None
    return LayoutTable.concat(
        table.replaced(offload_optimizer=np.full(len(table), tenth / 10))
        for tenth in (range(11) if known else (0,))
    )


def loosen(target: Target, random: Random, budget: Budget) -> list[str]:
    """A search of a harder question, whose answer may not be better.

    It may where a step may last longer: the slack of `memory` is that of the fastest step, which a
    harder question makes slower.
    """
    harder = {
        "less memory": (_with_memory(target.job, random.uniform(0.6, 0.95)), target.options),
        "slower links": (_with_slower_links(target.job, random), target.options),
        "a choice more": (target.job, _held(target, random)),
        "a slower host": (_with_less_of_the_host(target.job, random), target.options),
    }
    findings = []
    for name, (job, options) in harder.items():
        found = search(job, options, budget)
        if not isinstance(found, Plan):
            continue
        other = Target(job, found, options)
        if other.step_limit_s <= target.step_limit_s and other.answer < target.floor * ROUNDING:
            told = [*(c.rule().name for c in options.choices)]
            findings.append(
                f"{name} {told}: {target.finding(job, found.best.layout, other.answer)}"
            )
    return findings


def _on(job: Job, cluster: ClusterSpec) -> Job:
    return job.model_copy(update={"cluster": cluster})


def _with_memory(job: Job, share: float) -> Job:
    machine = machine_for(job)
    gib = machine.memory_bytes * share / 2**30
    groups = tuple(one.model_copy(update={"memory_gib": gib}) for one in job.cluster.groups)
    return _on(job, job.cluster.model_copy(update={"groups": groups}))


def _with_slower_links(job: Job, random: Random) -> Job:
    """With a thinner network between nodes."""
    tier = FabricTier(
        reach_gpus=job.cluster.groups[0].gpus_per_node, oversubscription=random.uniform(1.2, 8.0)
    )
    return _on(job, job.cluster.model_copy(update={"fabric": (tier,)}))


def _with_less_of_the_host(job: Job, random: Random) -> Job:
    """Without its drives, with less memory, or with slower processors, where it has such."""
    host = job.cluster.groups[0].host or HostSpec()
    less = random.uniform(0.3, 0.95)
    name = random.choice(("drives", "memory_gib", "adam_params_per_s"))
    now = getattr(host, name)
    host = host.model_copy(update={name: None if name == "drives" or not now else now * less})
    groups = tuple(one.model_copy(update={"host": host}) for one in job.cluster.groups)
    return _on(job, job.cluster.model_copy(update={"groups": groups}))


def _held(target: Target, random: Random) -> SearchOptions:
    """One choice more: a value of some layout is held, or one of the answer left out."""
    axis = random.choice([one for one in AXES if one.option not in ("stages", "offload_modules")])
    excluded = random.random() < 0.5
    layout = target.plan.best.layout if excluded else Changes(target.job, random).any()
    if layout is None:
        return target.options
    choice = parse_choice(f"{axis.option}={axis.text(layout)}", excluded=excluded)
    name = "exclude" if excluded else "fix"
    held = (*getattr(target.options, name), choice)
    return target.options.model_copy(update={name: held})
