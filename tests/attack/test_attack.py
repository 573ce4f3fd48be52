"""Nothing beats the proofs of the search: a few attacks, an hour of them by `make attack`."""

from functools import cache
from random import Random

import pytest

from tests.attack.attack import climb, exhaust, figures_hold, loosen, walk
from tests.attack.jobs import KNOWN, OBJECTIVES, Case, random_case
from tests.attack.layouts import Changes
from tests.attack.run import target_of
from tests.attack.target import Target
from tests.budgets import Steps
from tests.grids import number as draws
from tests.grids import some_cases
from trainplan.costmodel.hardware.cluster import DriveSpec, HostSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.questions import estimate

SEEDS = some_cases((10, 0, 1), 1)
"""The first is a small job of the runtime with most to choose."""
HARDER = some_cases((10, 0, 2, 3), 1)
"""Whose harder questions are answered in a second."""
QUICK = some_cases((0, 2, *range(13, 19)), 4)
"""Of `KNOWN`, those that are searched in a second."""


@cache
def known(number):
    """The answer of one of `KNOWN`."""
    return target_of(KNOWN[number], "time", Steps())


@pytest.mark.parametrize("number", QUICK)
def test_a_climb_from_the_answer_finds_nothing_better(number):
    target = known(number)
    assert target
    assert not climb(target, Random(number), draws(8, by_night=20))


@pytest.mark.grid
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_random_layout_beats_an_objective(objective, seed):
    random = Random(seed)
    target = target_of(random_case(random), objective, Steps())
    if target:
        assert not figures_hold(target)
        assert not [*climb(target, random, 4), *walk(target, random, 2)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_layout_or_split_of_a_small_space_is_faster(seed):
    random = Random(seed)
    case = random_case(random)
    target = target_of(case, "time", Steps())
    assert not target or not exhaust(target, random)


@pytest.mark.parametrize("seed", HARDER)
def test_a_harder_question_has_no_better_answer(seed):
    random = Random(seed)
    target = target_of(random_case(random), random.choice(OBJECTIVES), Steps())
    assert not target or not loosen(target, random, Steps())


def test_an_attack_sees_an_answer_that_is_not_the_best():
    """One whose proof is false is found by every kind of attack."""
    target = known(0)
    plan = target.plan
    bad = plan.best.layout.model_copy(update={"recompute": "full", "recompute_method": "uniform"})
    bad = Layout.model_validate({**dict(bad), "recompute_num_layers": 1})
    slow = estimate(target.job, bad, memory_margin=plan.memory_margin)
    best = plan.best.model_copy(update={"layout": bad, "estimate": slow})
    false = Target(target.job, plan.model_copy(update={"best": best}), target.options)
    assert climb(false, Random(1), 20)


def test_an_attack_moves_states_to_hosts_and_drives():
    drives = DriveSpec(tb=4, read_gb_per_s=6, write_gb_per_s=4)
    job = Case("small-dense", "1x2:h100-sxm", 8, runtime="deepspeed", host=HostSpec(drives=drives))
    changes = Changes(job.job, Random(3))
    wanted = {("cpu", None), ("cpu", "cpu"), ("nvme", "nvme")}
    for _ in range(40):
        if one := changes.any():
            wanted.discard((one.offload.tier, one.offload.parameters))
        if not wanted:
            break
    assert not wanted
