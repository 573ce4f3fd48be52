"""The search for layouts and splits together against all layouts with all splits."""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from tests.budgets import Steps
from tests.grids import some_cases
from tests.properties.every_split import chunks_alike, every_layout_and_split
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.goals.uneven import all_splits
from trainplan.planner.space import parse_choice
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.stages.contexts import SplitContext
from trainplan.planner.stages.search import UnevenSearch
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
    "seeing": ("small-seeing", 5, "1x4:h100-sxm", "megatron-lm", ("pp=2", "cp=1", "tp=1", "vpp=1")),
    "dense in two": ("small-dense", 5, "1x4:l4", "megatron-lm", ("pp=2", "cp=1")),
    "moe": (
        "small-moe",
        5,
        "1x4:h100-sxm",
        "megatron-lm",
        ("pp=4", "micro_batch_size=2", "recompute=full"),
    ),
    "moe in two": (
        "small-moe",
        5,
        "1x4:l4",
        "torchtitan",
        ("pp=2", "micro_batch_size=1", "ep=2", "tp=1"),
    ),
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
    alike: np.ndarray
    """Which rows have chunks alike: the search splits no others, but moves their layers."""

    @property
    def surroundings(self):
        return self.job, machine_of(self.job.cluster, self.job.training.precision)

    def memory(self, share):
        return float(np.quantile(self.used, share, method="lower"))

    def best(self, memory, *, alike=False):
        """Step time of the best split of any layout: all that could be it are simulated."""
        fits = np.flatnonzero((self.used <= memory) & (self.alike | (not alike)))
        order, best = fits[np.argsort(self.bound[fits], kind="stable")], np.inf
        for start in range(0, len(order), 500):
            some = order[start : start + 500]
            if self.bound[some[0]] >= best:
                break
            traits, rows = traits_of(self.job), self.table.take(some)
            best = min(best, step_seconds(Candidates(*self.surroundings, traits, rows)).min())
        return best

    def even(self, memory):
        on = context_of(*self.surroundings)
        return Search(on, self.rules, SearchLimits(memory, 1)).run(Unlimited())

    def uneven_result(self, memory, below=np.inf, steps=MANY, most=np.inf):
        budget = Steps(steps)
        of = SplitContext(*self.surroundings, traits_of(self.job), memory)
        return all_splits(UnevenSearch(of, self.rules, below, budget), budget, most)


best, even, uneven_result = cache(Small.best), cache(Small.even), cache(Small.uneven_result)


@pytest.fixture(scope="module", params=CASES, name="small")
def _small(request, make_job):
    model, layers, cluster, runtime, fixed = CASES[request.param]
    job = make_job(model, cluster, 8)
    shape = job.model.model_copy(update={"num_hidden_layers": layers, **PLAIN.get(runtime, {})})
    job = job.model_copy(update={"model": shape, "runtime": runtime})
    rules = [*(parse_choice(text, excluded=False).rule() for text in fixed), *rules_of_job(job)]
    table = every_layout_and_split(job, rules)
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    priced = price(Candidates(job, machine, traits, table))
    alike = chunks_alike(job, table)
    return Small(job, rules, table, priced.step_seconds, priced.memory.used, alike)


def assert_legal(small, found, memory):
    """The answer, if any, is a layout that breaks no rule, fits and takes as long as is said."""
    if found.table is None:
        return
    rows = Candidates(*small.surroundings, traits_of(small.job), found.table)
    assert step_seconds(rows) == pytest.approx([found.step_time_s], rel=1e-12)
    assert price(rows).memory.used <= memory
    assert not any(rule.broken(small.job, found.table).any() for rule in small.rules)


@pytest.mark.grid
@pytest.mark.parametrize("share", some_cases(SHARES, 2))
def test_the_best_split_of_all_layouts_with_chunks_alike_is_found_and_proved(small, share):
    memory = small.memory(share)
    found = uneven_result(small, memory)
    alike, truth = best(small, memory, alike=True), best(small, memory)
    assert truth <= found.step_time_s * ROUNDING
    assert found.step_time_s <= alike * ROUNDING
    assert found.lower_bound_s == found.step_time_s
    assert found.any_split_lower_bound_s <= truth * ROUNDING
    assert (found.table is None) == np.isinf(found.step_time_s)
    assert_legal(small, found, memory)


@pytest.mark.grid
@pytest.mark.parametrize("share", SHARES)
def test_free_splits_never_make_the_best_plan_worse(small, share):
    memory = small.memory(share)
    first = even(small, memory)
    found = uneven_result(small, memory, first.value)
    assert found.step_time_s <= min(first.value, best(small, memory, alike=True)) * ROUNDING
    assert min(first.value, best(small, memory)) <= found.step_time_s * ROUNDING
    assert (found.table is None) == (found.step_time_s == first.value)
    assert found.lower_bound_s == found.step_time_s


def test_more_memory_never_makes_the_best_split_worse(small):
    times = [uneven_result(small, small.memory(share)).step_time_s for share in SHARES]
    assert all(more <= less * ROUNDING for less, more in pairwise(times))


@pytest.mark.grid
@pytest.mark.parametrize("steps", [0, 2, 8])
def test_a_search_cut_short_says_so_and_its_bound_still_holds(small, steps):
    memory = small.memory(0.1)
    below = even(small, memory).value
    found, truth = uneven_result(small, memory, below, steps), min(below, best(small, memory))
    alike = min(below, best(small, memory, alike=True))
    assert found.any_split_lower_bound_s <= truth * ROUNDING
    assert found.lower_bound_s <= alike * ROUNDING
    assert truth <= found.step_time_s * ROUNDING
    if found.lower_bound_s == found.step_time_s:
        assert found.step_time_s <= alike * ROUNDING
    if steps == 0:
        assert found.table is None


@pytest.mark.grid
@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("share", SHARES)
def test_what_is_tried_at_last_is_a_layout_and_leaves_the_bound_true(small, share, most):
    memory = small.memory(share)
    found = uneven_result(small, memory, most=most)
    truth = best(small, memory)
    assert found.any_split_lower_bound_s <= truth * ROUNDING
    assert found.lower_bound_s <= best(small, memory, alike=True) * ROUNDING
    assert truth <= found.step_time_s * ROUNDING
    assert_legal(small, found, memory)
