"""What is refused before it is priced could not have been an answer."""

import numpy as np
import pytest

from tests.fractions import every_fraction, with_every_fraction
from trainplan.costmodel.calibration import context_for, machine_for
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import price
from trainplan.planner.policies.recompute import POLICY_COLUMNS
from trainplan.planner.space import Space
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons
from trainplan.planner.tree import Pool
from trainplan.planner.tree.memory_bounds import (
    POLICY_CLASSES,
    class_extremes,
    policies_of,
    skeleton_bytes,
    states_bytes,
)
from trainplan.planner.tree.result import StepTime
from trainplan.planner.tree.tasks import PriceClasses, PricingContext
from trainplan.planner.work.budget import Unlimited

pytestmark = pytest.mark.usefixtures("quarters")

CASES = (
    ("small-dense", "1x8:h100-sxm", "megatron-lm"),
    ("small-dense", "1x2:l4", "megatron-bridge"),
    ("small-seeing", "1x4:h100-sxm", "megatron-lm"),
    ("frozen-eyes", "1x4:h100-sxm", "torchtitan"),
    ("small-moe", "1x8:h100-sxm", "megatron-lm"),
    ("small-moe", "1x4:l4", "torchtitan"),
    ("small-moe", "1x8:a100-sxm-40gb", "megatron-deepspeed"),
    ("small-dense", "1x4:h100-sxm", "deepspeed"),
)
ROUNDING = 1 + 1e-12
SOME = 60
"""Skeletons of each job."""


class Case:
    """Some skeletons of a job with all their policies and shares of offload."""

    def __init__(self, job):
        job = job.model_copy(update={"may_offload_activations": True})
        self.job, self.machine, self.traits = job, machine_for(job), traits_of(job)
        self.rules, self.space = rules_of_job(job), Space(context_for(job))
        rule_filter = RuleFilter(job, self.rules)
        every = skeletons(self.space, rule_filter, nodes(self.space, rule_filter).table).table
        rows = np.random.default_rng(7).choice(len(every), min(SOME, len(every)), replace=False)
        self.skeletons = every.take(rows)
        table, owner = memory_policies(self.space, self.skeletons)
        self.table = with_every_fraction(self.space.traits, table)
        self.owner = np.tile(owner, len(self.table) // len(table))
        legal = ~np.any([rule.broken(job, self.table) for rule in self.rules], axis=0)
        self.table, self.owner = self.table.take(legal), self.owner[legal]
        self.priced = self.price(self.table)

    @property
    def num_classes(self):
        return len(POLICY_CLASSES) + bool(self.space.offloads)

    def price(self, table):
        return price(Candidates(self.job, self.machine, self.traits, table))


@pytest.fixture(scope="module", params=CASES, ids=" ".join, name="case")
def _case(request, make_job):
    model, cluster, runtime = request.param
    job = make_job(model, cluster, 32)
    return Case(job.model_copy(update={"runtime": runtime}))


@pytest.mark.parametrize("least", [states_bytes, skeleton_bytes])
def test_no_layout_uses_less_than_its_skeleton_is_said_to_need(case, least):
    bytes_ = least(case.space, case.rules, case.skeletons)
    assert len(case.table)
    assert (bytes_[case.owner] <= case.priced.memory.used * ROUNDING).all()
    assert (bytes_ > 0).any()


def test_a_class_that_is_left_out_holds_no_layout_that_fits_and_wins(case):
    used, seconds = case.priced.memory.used, case.priced.step_seconds
    fast, min_memory = class_extremes(case.space, case.skeletons)
    own = np.tile(np.arange(len(case.skeletons)), case.num_classes)
    fractions = np.full(len(own), max(every_fraction(case.space.traits)))
    left_out = 0
    for share in (0.05, 0.3, 0.8):
        memory, below = np.quantile(used, share), np.quantile(seconds, share)
        wanted = PricingContext(case.job, case.machine, case.traits, StepTime(), float(memory))
        bound = PriceClasses(wanted, fast, min_memory, fractions)(Unlimited())
        kept = Pool.of(min_memory, bound, own).prune(float(below))
        table, row = policies_of(case.space, kept.table)
        known = {key(table, i, kept.branch[row[i]]): kept.bound[row[i]] for i in range(len(table))}
        for i in np.flatnonzero((used <= memory) & (seconds < below)).tolist():
            bound = known[key(case.table, i, case.owner[i])]
            assert bound <= seconds[i] * ROUNDING
        left_out += len(own) - len(kept.bound)
    assert left_out


def key(table, row, owner):
    return (int(owner), *(int(getattr(table, name)[row]) for name in POLICY_COLUMNS))
