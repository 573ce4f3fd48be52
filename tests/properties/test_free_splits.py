"""The search for layouts and splits together against all layouts with all splits."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from tests.budgets import Steps
from tests.properties.every_split import every_layout_and_split
from trainplan.costmodel.blocks.candidates import Candidates
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.goals.any_chunks import any_chunks
from trainplan.planner.space import legality_rules, parse_choice
from trainplan.planner.stages.heuristics import try_promising
from trainplan.planner.stages.search import UnevenSearch
from trainplan.planner.stages.solve.tasks import SplitContext
from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.result import SearchLimits
from trainplan.planner.work.budget import Unlimited

pytestmark = pytest.mark.usefixtures("quarters")

ROUNDING = 1 + 1e-9
MANY = 1_000_000
"""Steps of a search that goes on to its proof."""
CASES = {
    "dense": (
        "small-dense",
        6,
        "1x8:h100-sxm",
        "megatron-lm",
        ("pp=4", "micro_batch_size=1", "tp=1"),
    ),
    "seeing": ("small-seeing", 5, "1x4:h100-sxm", "megatron-lm", ("pp=2", "cp=1", "tp=1")),
    "dense in two": ("small-dense", 5, "1x4:l4", "megatron-lm", ("pp=2", "cp=1")),
    "moe": (
        "small-moe",
        5,
        "1x4:h100-sxm",
        "megatron-lm",
        ("pp=4", "micro_batch_size=2", "recompute=full"),
    ),
    "moe in two": ("small-moe", 5, "1x4:l4", "torchtitan", ("pp=2", "micro_batch_size=1", "ep=2")),
    "other schedules": (
        "small-dense",
        6,
        "1x4:h100-sxm",
        "torchtitan",
        ("pp=4", "micro_batch_size=1"),
    ),
}
PLAIN = {"torchtitan": {"num_nextn_predict_layers": 0}}
"""What a model does without, since the runtime does not pipeline it."""
SHARES = (0.0, 0.1, 1.0)
"""Of all layouts and splits, those that need no more memory than there is."""


@dataclass(frozen=True, eq=False)
class Small:
    """A job small enough to price everything."""

    job: object
    rules: list
    table: object
    bound: np.ndarray
    used: np.ndarray

    @property
    def surroundings(self):
        return self.job, machine_of(self.job.cluster, self.job.training.precision)

    def memory(self, share):
        return float(np.quantile(self.used, share, method="lower"))

    def best(self, memory):
        """Step time of the best split of any layout: all that could be it are simulated."""
        fits = np.flatnonzero(self.used <= memory)
        order, best = fits[np.argsort(self.bound[fits], kind="stable")], np.inf
        for start in range(0, len(order), 500):
            some = order[start : start + 500]
            if self.bound[some[0]] >= best:
                break
            traits, rows = traits_of(self.job), self.table.take(some)
            best = min(best, step_seconds(Candidates(*self.surroundings, traits, rows)).min())
        return best

    def even(self, memory):
        return Search(*self.surroundings, self.rules, SearchLimits(memory, 1)).run(Unlimited())

    def uneven_result(self, memory, below=np.inf, steps=None):
        budget = Steps(MANY if steps is None else steps)
        of = SplitContext(*self.surroundings, traits_of(self.job), memory)
        alike = UnevenSearch(of, self.rules, below, budget)
        return any_chunks(alike, alike.run(), None, MANY)


best, even, uneven_result = cache(Small.best), cache(Small.even), cache(Small.uneven_result)


@pytest.fixture(scope="module", params=CASES, name="small")
def _small(request, make_job):
    model, layers, cluster, runtime, fixed = CASES[request.param]
    job = make_job(model, cluster, 8)
    shape = job.model.model_copy(update={"num_hidden_layers": layers, **PLAIN.get(runtime, {})})
    job = job.model_copy(update={"model": shape, "runtime": runtime})
    rules = [*(parse_choice(text, excluded=False).rule() for text in fixed), *legality_rules(job)]
    table = every_layout_and_split(job, rules)
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    priced = price(Candidates(job, machine, traits, table))
    return Small(job, rules, table, priced.step_seconds, priced.memory.used)


@pytest.mark.parametrize("share", SHARES)
def test_the_best_split_of_all_layouts_is_found_and_proved(small, share):
    memory = small.memory(share)
    found = uneven_result(small, memory)
    truth = pytest.approx(best(small, memory), rel=1e-9)
    assert found.step_time_s == found.any_split_lower_bound_s == truth
    traits = traits_of(small.job)
    again = step_seconds(Candidates(*small.surroundings, traits, found.table))
    assert again == pytest.approx([found.step_time_s], rel=1e-12)
    assert price(Candidates(*small.surroundings, traits, found.table)).memory.used <= memory
    assert not any(rule.broken(small.job, found.table).any() for rule in small.rules)


@pytest.mark.grid
@pytest.mark.parametrize("share", SHARES)
def test_free_splits_never_make_the_best_plan_worse(small, share):
    memory = small.memory(share)
    first = even(small, memory)
    found = uneven_result(small, memory, first.value)
    assert found.step_time_s == pytest.approx(min(first.value, best(small, memory)), rel=1e-9)
    assert (found.table is None) == (found.step_time_s == first.value)
    assert found.any_split_lower_bound_s == pytest.approx(found.step_time_s, rel=1e-9)


def test_more_memory_never_makes_the_best_split_worse(small):
    times = [uneven_result(small, small.memory(share)).step_time_s for share in SHARES]
    assert all(more <= less * ROUNDING for less, more in pairwise(times))


@pytest.mark.grid
@pytest.mark.parametrize("steps", [0, 2, 8])
def test_a_search_cut_short_says_so_and_its_bound_still_holds(small, steps):
    memory = small.memory(0.1)
    below = even(small, memory).value
    found, truth = uneven_result(small, memory, below, steps), min(below, best(small, memory))
    assert found.any_split_lower_bound_s <= truth * ROUNDING
    assert truth <= found.step_time_s * ROUNDING
    if found.any_split_lower_bound_s == found.step_time_s:
        assert found.step_time_s == pytest.approx(truth, rel=1e-9)
    if steps == 0:
        assert found.table is None


@pytest.mark.grid
@pytest.mark.parametrize("max_expanded", [1, 2, 3])
@pytest.mark.parametrize("share", SHARES)
def test_what_is_tried_at_last_is_a_layout_and_leaves_the_bound_true(small, share, max_expanded):
    memory = small.memory(share)
    of = SplitContext(*small.surroundings, traits_of(small.job), memory)
    run = UnevenSearch(of, small.rules, np.inf, Unlimited())
    alike = run.run(max_expanded, at_last=try_promising)
    found, truth = any_chunks(run, alike, None, max_expanded), best(small, memory)
    assert found.any_split_lower_bound_s <= truth * ROUNDING
    assert truth <= found.step_time_s * ROUNDING
    if found.table is not None:
        again = step_seconds(Candidates(*small.surroundings, traits_of(small.job), found.table))
        assert again == pytest.approx([found.step_time_s], rel=1e-12)
        used = price(Candidates(*small.surroundings, traits_of(small.job), found.table)).memory.used
        assert used <= memory
        assert not any(rule.broken(small.job, found.table).any() for rule in small.rules)
