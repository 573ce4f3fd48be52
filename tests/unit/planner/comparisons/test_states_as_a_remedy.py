"""States in bf16 are offered where they make a job fit, by name and as a change of the training."""

import pytest

from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases import Case
from trainplan.planner.comparisons import remedies
from trainplan.planner.launch_checks.cures import cures
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.work.budget import Unlimited

WHOLE = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
SHARDED = Layout(dp=8, zero_stage=3, **WHOLE)


@pytest.fixture
def large(make_job):
    def job(runtime, cluster="1x8:a100-sxm-80gb", tokens=8192, **training):
        made = make_job("qwen3-32b", cluster, 16, tokens, **training)
        return made.model_copy(update={"runtime": runtime})

    return job


def options(job, layout=SHARDED):
    case = Case(job, SearchOptions(search_options="none", only_written=False))
    return [one.option for one in remedies(case, layout, Unlimited())]


@pytest.mark.parametrize(
    ("runtime", "cluster", "training", "offered"),
    [
        ("accelerate", "1x8:a100-sxm-40gb", {}, False),  # 32 GiB of states, and the rest
        ("accelerate", "1x8:a100-sxm-80gb", {}, True),
        ("accelerate", "1x8:a100-sxm-80gb", {"state_precision": "bf16"}, False),  # has them
        ("megatron-lm", "1x8:a100-sxm-80gb", {}, False),  # which has none
    ],
)
def test_states_in_bf16_are_a_remedy_where_they_suffice(large, runtime, cluster, training, offered):
    found = options(large(runtime, cluster, **training))
    assert ("--state-precision bf16 (changes the training)" in found) == offered


def test_a_search_without_an_answer_offers_them(large):
    answer = search(
        large("accelerate", "1x4:a100-sxm-80gb", 2048), SearchOptions(search_options="none")
    )
    assert "keep states in bf16: --state-precision bf16 (changes the training)" in answer.changes


def test_a_launch_is_cured_by_them_in_one_edit(large):
    case = Case(large("accelerate"), SearchOptions(search_options="none"))
    found = [one for one in cures(case, SHARDED).found if "options.state_precision" in one.units]
    assert [one.units for one in found] == [("options.state_precision",)]
    assert found[0].run.job.training.state_precision == "bf16"
