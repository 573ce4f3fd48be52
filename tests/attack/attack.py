"""Attacks on the proofs of `plan search`: each returns what it finds, as sentences.

figures_hold the answer is what `plan estimate` says of it, and every layout is counted once
climb        from the answer, by random changes of layout and settings, over `plan estimate`:
             nothing legal of the declared space that fits may be better than the bound, or than the
             answer where that is proved
walk         the same from a random layout, or from one on fewer nodes
exhaust      every layout of a small space, with every split of its layers
loosen       more memory, faster links, one choice less: never a worse answer

All is drawn from a seed, so a finding can be seen again.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

import numpy as np

from tests.attack.declared import ANSWERS
from tests.attack.layouts import Changes, compositions, with_other_settings
from tests.attack.target import Target
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.calibration import context_for, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import objects
from trainplan.costmodel.hardware.cluster import ClusterSpec, FabricTier, HostSpec
from trainplan.costmodel.job.job import Job
from trainplan.costmodel.layout.layout import stage_specs
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.goals.cluster_sizes import part_jobs
from trainplan.planner.plan.plan import Plan
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice, rules_of_job
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons
from trainplan.planner.work import Budget

ROUNDING = 1 - 1e-9
AT_ONCE = 32
"""Changes looked at before the best of them is taken."""
SETTINGS = 0.3
"""How often a step of a climb changes settings, with or without the layout."""
WORSE = 1.02
"""How much worse a step of a climb may be than where it is: hills are small."""
MOST_SPLITS = 40_000
"""Layouts and splits of a space that is exhausted; a larger one is left alone."""


def figures_hold(target: Target) -> list[str]:
    """What is wrong with the figures of a plan by themselves."""
    plan, proof, findings = target.plan, target.plan.certificate, list[str]()
    if estimate(plan.job, plan.best.layout, memory_margin=plan.memory_margin) != plan.best.estimate:
        findings.append("is not what `plan estimate` says")
    counted = sum(plan.refused.values()) + proof.bounded + proof.evaluated
    if counted != proof.space_size:
        findings.append(f"{counted} layouts refused, bounded or simulated of {proof.space_size}")
    if target.declared.outside(plan.job, [plan.best.layout])[0] not in ANSWERS:
        findings.append("is outside the declared space")
    return [f"{target.finding(plan.job, plan.best.layout, target.answer)} {f}" for f in findings]


def climb(target: Target, random: Random, steps: int) -> list[str]:
    """What is found on a way of random changes from the answer.

    It tries layouts outside the declared space, too, and never goes there.
    """
    original, job = target.job, target.plan.job
    at, here = target.plan.best.layout, inf
    found = list[str]()
    for _ in range(steps):
        changed = with_other_settings(original, job, random) if random.random() < SETTINGS else job
        changes = Changes(changed, random, target.options.choices)
        near = [*changes.legal([at]), *changes.of(at, AT_ONCE)]
        figures, floors = target.tried(changed, near)
        for row in np.flatnonzero(figures < floors * ROUNDING)[:1].tolist():
            found.append(target.finding(changed, near[row], float(figures[row])))
        figures[floors == -inf] = inf
        best = int(np.argmin(figures)) if near else 0
        if near and figures[best] < inf and figures[best] <= here * random.uniform(1.0, WORSE):
            job, at, here = changed, near[best], float(figures[best])
    return found[-1:]


def walk(target: Target, random: Random, steps: int) -> list[str]:
    """What is found from random layouts, on the whole cluster or a part of it."""
    findings = list[str]()
    whole = target.name in ("time", "memory")
    for _ in range(steps):
        job = with_other_settings(target.job, target.job, random)
        part = job if whole else random.choice(part_jobs(job))
        changes = Changes(part, random, target.options.choices)
        first = changes.any()
        layouts = [first, *changes.of(first, AT_ONCE)] if first else []
        figures, floors = target.tried(part, layouts)
        for row in np.flatnonzero(figures < floors * ROUNDING)[:1].tolist():
            findings.append(target.finding(part, layouts[row], float(figures[row])))
    return findings


def exhaust(target: Target, random: Random) -> list[str]:
    """What is found among all layouts and splits of a small space, for the step time."""
    job = with_other_settings(target.job, target.job, random)
    margin = target.options.margin(job)
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
    for rule in rules_of_job(job):
        whole = whole.take(~rule.broken(job, whole))
    priced = price(context.with_table(whole), merged=False)
    fits = priced.memory.fits(context.machine.memory_bytes * (1 - margin))
    near = np.flatnonzero(fits & (priced.step_seconds < target.floor * ROUNDING))
    if not len(near):
        return []
    near = near[step_seconds(context.with_table(whole.take(near))) < target.floor]
    layouts = [whole.row(row) for row in near.tolist()]
    figures, floors = target.tried(job, layouts)
    found = np.flatnonzero(figures < floors * ROUNDING)[:1].tolist()
    return [target.finding(job, layouts[row], float(figures[row])) for row in found]


def _every_layout(job: Job) -> LayoutTable:
    """The grid, with the fractions of the optimizer in tenths beside."""
    space, rule_filter = Space(context_for(job)), RuleFilter(job, rules_of_job(job))
    below = skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    if not len(below):  # under other settings nothing may be legal
        return below
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
        floor = target.floor_of(target.declared.outside(found.job, [found.best.layout])[0])
        if other.step_limit_s <= target.step_limit_s and other.answer < floor * ROUNDING:
            held = [*(c.rule().name for c in options.choices)]
            finding = target.finding(found.job, found.best.layout, other.answer)
            findings.append(f"{name} {held}: {finding}")
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
