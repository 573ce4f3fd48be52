"""Files of trainers are taken by their own parsers and schemas, at the commits that they name."""

from functools import cache

import pytest

from tests.runtimes.launches import launch
from tests.runtimes.test_exports_are_taken import planned
from tests.runtimes.trainer_plans import TRAINED
from tests.runtimes.verdicts import by_checker, without_checkout

pytestmark = pytest.mark.runtime


@pytest.fixture(scope="module")
def of(tmp_path_factory):
    """Verdicts of a trainer on its plans, by their names."""

    def verdicts(trainer):
        if absent := without_checkout(trainer):
            pytest.skip(absent)
        folder = tmp_path_factory.mktemp("plans")
        launches = []
        for number, plan in enumerate(TRAINED[trainer]):
            (folder / f"plan{number}").mkdir()
            made = launch(plan, trainer, folder / f"plan{number}")
            launches.append(made)
        first = launches[0]
        launches.append(first | {"name": "lacks a rank", "ranks": first["ranks"] - 1})
        return by_checker(f"sft-by-{trainer}", launches)

    return cache(verdicts)


def intended(plan):
    trained = plan.job("").model.trained
    return planned(plan) | {
        "seq_length": plan.training["seq_length"],
        "rank": trained.rank if trained else 0,
        "bits": 4 if trained and trained.quantised else 16,
    }


@pytest.mark.parametrize(
    ("trainer", "plan"),
    [
        pytest.param(trainer, plan, id=f"{trainer}: {plan.name}")
        for trainer, plans in TRAINED.items()
        for plan in plans
    ],
)
def test_the_trainer_takes_the_plan_and_understands_it(trainer, plan, of):
    verdict = of(trainer)[plan.name]
    assert verdict["refusal"] is None
    understood, wanted = verdict["understood"], intended(plan)
    assert understood == {name: wanted[name] for name in understood}


@pytest.mark.parametrize("trainer", TRAINED)
def test_a_launch_that_lacks_a_rank_is_refused(trainer, of):
    assert of(trainer)["lacks a rank"]["refusal"]


@pytest.mark.parametrize("trainer", TRAINED)
def test_there_are_twenty_plans_or_more_unlike_one_another(trainer):
    plans = TRAINED[trainer]
    assert len({plan.name for plan in plans}) == len(plans) >= 20
