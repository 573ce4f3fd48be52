"""The next best plan against every layout of every part of what is left that loads a checkpoint."""

from random import Random

import numpy as np
import pytest

from tests.grids import number
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import stage_specs
from trainplan.costmodel.layouts.table import FIELDS, LayoutTable, layers_per_stage
from trainplan.costmodel.step import price
from trainplan.planner.cases import Case
from trainplan.planner.operations import checkpoint_move, loadable
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.policies import POLICY_COLUMNS
from trainplan.planner.questions import estimate
from trainplan.planner.replan import left_of, replan
from trainplan.planner.space import Space, memory_policies, nodes, rules_of_job, skeletons
from trainplan.planner.space.grid import RuleFilter
from trainplan.planner.work import Unlimited

KNOBS = ("micro_batch_size", "sequence_parallel", "tiled_loss", "tiled_mlp", *POLICY_COLUMNS)
"""Columns that no checkpoint knows of."""
RUNTIMES = ("megatron-lm", "torchtitan", "deepspeed", "accelerate", "megatron-bridge")


def legal(case, layout=None):
    """Every legal layout of a job with even stages, or with those of a layout.

    None offloads a part of the optimizer.
    """
    on = case.context
    rules = (*rules_of_job(case.job), *case.options.rules_of_layouts(on))
    space, rule_filter = Space(context_for(case.job)), RuleFilter(case.job, rules)
    rows = nodes(space, rule_filter).table
    rows = skeletons(space, rule_filter, rows).table if len(rows) else rows
    if not len(rows):
        return rows
    table, _ = memory_policies(space, rows)
    if layout and layout.stages:
        table = LayoutTable.concat([table, with_stages(table, layout)])
    return table.take(~np.any([rule.broken(case.job, table) for rule in rules], axis=0))


def bounds(case, table):
    """Of each row a bound of its step, and whether it may fit."""
    on = case.context
    priced = price(on.with_table(table))
    return priced.step_seconds, priced.memory.fits(on.machine.memory_bytes * (1 - case.margin))


def by_bound(case, table):
    """Layouts that may fit, each with a bound of its step, smallest first."""
    if len(table):
        bound, fits = bounds(case, table)
        order = np.argsort(bound, kind="stable")
        yield from ((bound[i], table.row(int(i))) for i in order if fits[i])


def with_stages(table, layout):
    """Those that have as many virtual stages as a layout, with its own."""
    same = table.take((table.pp == layout.pp) & (table.vpp == layout.vpp))
    stages = np.empty(len(same), dtype=object)
    stages[:] = [layout.stages] * len(same)
    return same.replaced(stages=stages)


def loading(case, layout, own, table):
    """How each row loads a checkpoint; knobs change nothing of it, so one of each is asked."""
    columns = [name for name in FIELDS if name not in KNOBS and name != "stages"]
    even = np.array([stages is None for stages in table.stages.tolist()], dtype=np.int64)
    keys = np.stack([*(getattr(table, name) for name in columns), even])
    _, first, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    loads = [checkpoint_move(case.job, layout, own.job, table.row(int(i))).loads for i in first]
    return np.array(loads)[number.reshape(-1)]


def brute(case, layout, left, loads):
    """Seconds of the fastest that loads so, or infinity."""
    best = np.inf
    (group,) = left.groups
    for count in range(1, group.num_nodes + 1):
        part = left.model_copy(update={"groups": (group.model_copy(update={"num_nodes": count}),)})
        own = case.with_job(case.job.model_copy(update={"cluster": part}))
        table = legal(own, layout)
        if not len(table):
            continue
        for bound, one in by_bound(own, table.take(loading(case, layout, own, table) == loads)):
            if bound >= best:
                break
            priced = estimate(own.job, one, memory_margin=own.margin)
            if priced.memory.fits:
                best = min(best, priced.step_time_s)
    return best


def drawn(seed):
    """A job with a random layout, and nodes that are lost."""
    random = Random(seed)
    count = random.choice((2, 3, 4, 5, 6))
    cluster = parse_cluster(f"{count}x{random.choice((2, 4))}:h100-sxm")
    memory = random.choice((3.0, 6.0, 80.0))
    group = cluster.groups[0].model_copy(update={"memory_gib": memory})
    name = random.choice(("small-dense", "small-moe"))
    return random, cluster.model_copy(update={"groups": (group,)}), name


def plan_of(random, case):
    """A random legal layout that fits, in some cases with stages of its own."""
    table = legal(case)
    some = np.flatnonzero(bounds(case, table)[1]).tolist() if len(table) else []
    if not some:
        return None
    layout = table.row(random.choice(some))
    counts = list(layers_per_stage(case.job.model.num_hidden_layers, layout.pp * layout.vpp))
    if len(counts) > 1 and counts[0] and random.random() < 0.5:
        counts[0], counts[-1] = counts[0] - 1, counts[-1] + 1
        uneven = layout.model_copy(update={"stages": stage_specs(counts)})
        try:
            if estimate(case.job, uneven, memory_margin=case.margin).memory.fits:
                return uneven
        except SpecError:
            return layout
    return layout


@pytest.fixture(scope="module")
def job_of(make_job):
    def make(name, cluster, runtime, batch):
        job = make_job(name, "1x1:h100-sxm", batch)
        return job.model_copy(update={"cluster": cluster, "runtime": runtime})

    return make


def test_no_layout_that_loads_is_faster(job_of):
    compared = 0
    for seed in range(number(3, 1000)):
        random, cluster, name = drawn(seed)
        job = job_of(name, cluster, random.choice(RUNTIMES), random.choice((12, 16, 24, 60)))
        case = Case(job, SearchOptions(search_options="none", memory_margin=0.05))
        layout = plan_of(random, case)
        if layout is None:
            continue
        lost = random.randint(1, cluster.groups[0].num_nodes - 1)
        left = left_of(cluster, [str(lost)])
        found = replan(case, layout, left, Unlimited())
        expected = brute(case, layout, left, "as it is")
        if not np.isfinite(expected) and not loadable(job, layout).under_the_first:
            expected = brute(case, layout, left, "after")  # else nothing can save once more
        got = found.best.plan.best.estimate.step_time_s if found.best else np.inf
        assert got == pytest.approx(expected, rel=1e-9), (seed, job.runtime, layout)
        compared += np.isfinite(expected)
    assert compared > number(3, 1000) / 3
