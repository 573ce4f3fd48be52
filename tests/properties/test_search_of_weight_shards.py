"""Weights cut beyond tensor parallelism: the search against brute force, and what a cut does."""

from functools import lru_cache

import numpy as np
import pytest

from tests.fractions import with_every_fraction
from tests.grids import EXACT
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory import RESERVE_FACTOR
from trainplan.costmodel.step import node_bound_seconds, price
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import Space, parse_choice, rules_of_job
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons
from trainplan.planner.tree.memory_bounds import states_bytes

pytestmark = pytest.mark.usefixtures("quarters")
CASES = {"small-dense": "2x2:h100-sxm", "small-moe": "1x2:h100-sxm"}


@lru_cache(maxsize=1)
def all_priced(job):
    """Every legal layout with its price."""
    space, rules = Space(context_for(job)), rules_of_job(job)
    rule_filter = RuleFilter(job, rules)
    parents = skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    table = with_every_fraction(space.traits, memory_policies(space, parents)[0])
    for rule in rules:
        table = table.take(~rule.broken(job, table))
    machine = machine_of(job.cluster, job.training.precision)
    return table, price(context_of(job, machine).with_table(table))


@pytest.mark.parametrize(
    ("fixed", "memory_gib"),
    [("gtp=4", 80), ("gtp=2", 2.2), ("gtp=free", 2.2), ("egtp=2", 80), ("egtp=2", 3)],
)
def test_the_search_finds_what_brute_force_finds(make_job, fixed, memory_gib):
    model = "small-moe" if fixed.startswith("egtp") else "small-dense"
    job = make_job(model, CASES[model], 8).model_copy(update={"may_shard_matrices": True})
    table, priced = all_priced(job)
    group = job.cluster.groups[0].model_copy(update={"memory_gib": memory_gib})
    job = job.model_copy(update={"cluster": job.cluster.model_copy(update={"groups": (group,)})})
    usable = machine_of(job.cluster, job.training.precision).memory_bytes
    fits = priced.memory.fits(usable * (1 - SearchOptions().margin(job)))
    fix = (parse_choice(fixed, excluded=False), parse_choice("stages=even", excluded=False))
    for choice in fix:
        fits &= ~choice.rule().broken(job, table)
    job = job.model_copy(update={"may_shard_matrices": False})  # the choice asks for it
    plan = search(job, SearchOptions(**EXACT, top=3, search_options="none", fix=fix))
    assert fits.any()
    assert priced.step_seconds[fits].min() <= plan.best.estimate.step_time_s * (1 + 1e-12)
    same = LayoutTable.of([plan.best.layout])
    assert plan.certificate.optimal
    assert not fix[0].rule().broken(job, same).any()


def test_no_layout_is_below_the_bound_of_its_node(make_job):
    job = make_job("small-dense", CASES["small-dense"], 8)
    job = job.model_copy(update={"may_shard_matrices": True})
    _, priced = all_priced(job)
    bound = node_bound_seconds(priced)
    assert (bound <= priced.step_seconds * (1 + 1e-12)).all()
    cut = priced.table.gtp > 1
    plain = priced.with_table(priced.table.replaced(gtp=np.ones_like(priced.table.gtp)))
    sharded = priced.memory.weights.max(axis=0)[cut]
    assert (sharded < price(plain).memory.weights.max(axis=0)[cut]).all()


def test_states_of_a_node_are_no_more_than_those_of_any_cut(make_job):
    job = make_job("small-dense", CASES["small-dense"], 8)
    job = job.model_copy(update={"may_shard_matrices": True})
    table, priced = all_priced(job)
    node = {name: getattr(table, name) for name in ("tp", "cp", "pp", "dp", "ep", "etp")}
    rows = LayoutTable.of_columns(len(table), node)
    least = states_bytes(Space(context_for(job)), rules_of_job(job), rows)
    memory = priced.memory
    states = (memory.weights + memory.gradients + memory.optimizer).max(axis=0)
    used = states * RESERVE_FACTOR + memory.outside_bytes
    assert (least <= used * (1 + 1e-12)).all()
    assert (table.gtp[table.pp > 1] > 1).any()
