"""Settings that an answer is priced with, each with what it saves."""

import pytest

from trainplan.costmodel.job import RuntimeOptions
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import estimate, search
from trainplan.planner.settings import Assumed, assumed_text
from trainplan.planner.space import parse_choice

EVEN = (parse_choice("stages=even", excluded=False),)
OFF = {"cuda_graph": "none", "moe_dispatcher": "alltoall"}


@pytest.mark.parametrize(
    ("runtime", "model"),
    [
        *((one, "small-dense") for one in ("megatron-lm", "megatron-bridge", "fsdp2")),
        *((one, "small-moe") for one in ("megatron-lm", "megatron-bridge", "torchtitan")),
    ],
)
def test_a_plan_names_all_that_its_price_hangs_on(runtime, model, make_job):
    job = make_job(model, "1x8:h100-sxm").model_copy(update={"runtime": runtime})
    plan = search(job, SearchOptions(fix=EVEN, slack=0.0))
    named = {one.option: one for one in plan.assumed}
    stated = plan.job.options.arguments()
    searched = plan.certificate.settings.chosen if plan.certificate.settings else ()
    assert set(searched) <= set(named)
    for one in plan.assumed:
        name = one.option.partition("=")[0]
        assert one.default == (name not in stated)
        if one.saves_fraction is None or one.needing or name == "overlap_grad_reduce":
            continue
        options = plan.job.options.model_copy(update={name: OFF.get(name, False)})
        without = estimate(plan.job.model_copy(update={"options": options}), plan.best.layout)
        saved = 1 - plan.best.estimate.step_time_s / without.step_time_s
        assert one.saves_fraction == pytest.approx(saved, abs=1e-9)


def test_a_default_dispatcher_is_named_with_what_it_saves(make_job):
    job = make_job("small-moe", "2x8:h100-sxm").model_copy(
        update={"runtime": "megatron-bridge", "options": RuntimeOptions(cuda_graph="partial")}
    )
    plan = search(job, SearchOptions(fix=(parse_choice("ep=4", excluded=False), *EVEN), slack=0.0))
    assert any(one.option.startswith("moe_dispatcher=") for one in plan.assumed)
    assert any(one.option == "cuda_graph=partial" and not one.default for one in plan.assumed)


def test_what_a_graph_needs_is_named_with_what_both_save(make_job):
    options = RuntimeOptions(cuda_graph="full_iteration", moe_dispatcher="hybridep")
    job = make_job("small-moe", "2x8:h100-sxm").model_copy(
        update={"runtime": "megatron-bridge", "options": options}
    )
    plan = search(job, SearchOptions(fix=(parse_choice("ep=4", excluded=False), *EVEN), slack=0.0))
    saved = {one.option: one for one in plan.assumed}
    both = saved["moe_dispatcher=hybridep"]
    assert both.needing == "cuda_graph=full_iteration"
    off = {"cuda_graph": "none", "moe_dispatcher": "alltoall"}
    options = plan.job.options.model_copy(update=off)
    plain = plan.job.model_copy(update={"options": options})
    without = estimate(plain, plan.best.layout).step_time_s
    assert both.saves_fraction == pytest.approx(1 - plan.best.estimate.step_time_s / without)


def test_a_setting_reads_as_its_option_with_its_share():
    some = [
        Assumed(option="cuda_graph=partial", default=False, saves_fraction=0.0412),
        Assumed(option="overlap_grad_reduce=true", default=True, saves_fraction=-0.002),
        Assumed(option="moe_dispatcher=alltoall", default=True, saves_fraction=None),
    ]
    assert assumed_text(some) == (
        "cuda_graph=partial saves 4.1 %, overlap_grad_reduce=true costs 0.2 % (default), "
        "moe_dispatcher=alltoall (default)"
    )
