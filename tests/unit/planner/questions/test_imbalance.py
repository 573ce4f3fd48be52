"""What is told of unequal experts, and what they cost."""

import json

import pytest

from trainplan.cli.documents.explain import ExplainDocument
from trainplan.cli.pages.explain import imbalance_line
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.written_plan import written
from trainplan.planner.explanations.explanation import explain
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Infeasible
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import notes, search
from trainplan.planner.questions.unequal_experts import imbalance, imbalance_notes
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.space import parse_choice
from trainplan.planner.work.budget import Unlimited

ZIPF = {"routing": "zipf:1"}
LAYOUT = Layout(dp=8, ep=8)


@pytest.fixture(scope="module", name="job_of")
def jobs(make_job):
    def job(model="small-moe", gpus="1x8:h100-sxm", **options):
        made = make_job(model, gpus)
        stated = RuntimeOptions.model_validate(options)
        return made.model_copy(update={"options": stated})

    return job


def test_balanced_experts_cost_nothing_and_nothing_is_told(job_of):
    for job in (job_of(), job_of(routing="balanced"), job_of("small-dense", routing="random")):
        assert imbalance(job, LAYOUT, 1.0) is None
        assert list(imbalance_notes(job, LAYOUT)) == []


def test_the_cost_is_the_step_less_that_of_balanced_experts(make_job):
    plain, busy = make_job("qwen3-30b-a3b", "1x8:h100-sxm", 64, 8192), Layout(dp=8, ep=8)
    uneven = plain.model_copy(update={"options": RuntimeOptions.model_validate(ZIPF)})
    even, step = (estimate(one, busy).step_time_s for one in (plain, uneven))
    found = imbalance(uneven, busy, step)
    assert found.seconds == pytest.approx(step - even)
    assert found.cost_fraction == pytest.approx(step / even - 1)
    assert found.seconds > 0
    assert found.ranks == 8
    line = imbalance_line(found)
    assert line.startswith("Imbalance of experts (routing=zipf:1) costs ")
    assert f"the fullest of 8 expert ranks computes {found.fullest_rank:.3f} times" in line


def test_experts_on_one_rank_are_full_whatever_tokens_choose(job_of):
    job, alone = job_of(routing="zipf:1"), Layout(dp=8, ep=1)
    found = imbalance(job, alone, estimate(job, alone).step_time_s)
    assert found.seconds == 0
    assert "costs nothing" in imbalance_line(found)


def test_drops_are_said_to_change_the_training(job_of):
    options = {"routing": "zipf:0.5", "moe_capacity_factor": 1.0}
    given = list(imbalance_notes(job_of(**options), LAYOUT))
    (line,) = [one for one in given if one.startswith("changes the training: ")]
    found = imbalance(job_of(**options), LAYOUT, 1.0)
    assert found.dropped_fraction > 0.01
    assert f"{found.dropped_fraction:.1%} of the rows" in line
    padded = list(imbalance_notes(job_of(**options, moe_pad_to_capacity=True), LAYOUT))
    assert any("are padding" in one for one in padded)
    random = imbalance_notes(job_of(routing="random"), LAYOUT)
    assert not any("changes the training" in one for one in random)


def test_a_plan_tells_and_keeps_its_routing_and_explain_prices_it(make_job, only_changes):
    only_changes("routing")
    counts = RoutingSpec(
        kind="measured", tokens_per_expert=(tuple(range(1, 129)),), source="counts.csv"
    )
    job = make_job("qwen3-30b-a3b", "1x8:h100-sxm", 64, 8192)
    job = job.model_copy(update={"options": RuntimeOptions(routing=counts)})
    held = ("ep=8", "tp=1", "pp=1", "cp=1", "micro_batch_size=1", "recompute=full")
    fix = tuple(parse_choice(text, excluded=False) for text in held)
    options = SearchOptions(search_options="none", fix=fix, top=1, slack=0.0)
    plan = search(job, options)
    assert any(note.startswith("routing=counts.csv: in every layer") for note in plan.notes)
    again = written(json.dumps(plan_json(plan)))
    assert again.job == plan.job
    found = explain(Case(plan.job, options), plan.best.layout, (), Unlimited())
    (price,) = found.shadow_prices
    assert price.text == "balanced experts (routing=balanced)"
    assert found.imbalance.cost_fraction > 0.1
    kept = 1 + price.kept.throughput_gain_fraction
    assert kept == pytest.approx(1 + found.imbalance.cost_fraction, rel=1e-9)
    assert ExplainDocument.of(found).json()["imbalance"] == found.imbalance.json()


def test_how_tokens_choose_is_not_offered_to_be_dropped(job_of):
    found = search(job_of("mixtral-8x7b", "1x1:h100-sxm", routing="random"))
    assert isinstance(found, Infeasible)
    assert not any("routing" in change for changes in found.relaxations for change in changes)


def test_options_of_experts_mean_nothing_without_any(job_of):
    given = notes(job_of("small-dense", routing="random", moe_capacity_factor=1.0))
    assert "routing and moe_capacity_factor changes nothing: small-dense has no experts" in given


def test_a_model_of_ones_own_with_biased_experts_is_told_of_both_biases(make_job):
    job = make_job("small-moe", "1x8:h100-sxm")
    moe = job.model.moe.model_copy(update={"expert_bias": True})
    biased = job.model.model_copy(update={"moe": moe})
    (line,) = [
        one for one in notes(job.model_copy(update={"model": biased})) if "expert_bias" in one
    ]
    assert "moe.router_bias" in line
    assert not any("expert_bias" in one for one in notes(job))
    assert not any("expert_bias" in one for one in notes(make_job("gpt-oss-20b", "1x8:h100-sxm")))


def flags(job):
    return {a.flag: a.values for a in EXPORTERS["megatron-lm"](job, LAYOUT).arguments}


def test_megatron_is_told_of_capacity_and_padding_but_not_of_routing(make_job):
    job = make_job("qwen3-30b-a3b", "1x8:h100-sxm", precision="fp8")

    def stated(**options):
        return flags(job.model_copy(update={"options": RuntimeOptions.model_validate(options)}))

    assert stated(routing="random") == stated()
    one = stated(moe_capacity_factor=1.25, moe_pad_to_capacity=True)
    assert one["--moe-expert-capacity-factor"] == ("1.25",)
    assert one["--moe-token-drop-policy"] == ("probs",)
    assert "--moe-pad-expert-input-to-capacity" in one
    other = stated(moe_capacity_factor=2, moe_token_drop_policy="position", moe_router_padding=True)
    assert other["--moe-token-drop-policy"] == ("position",)
    assert "--moe-router-padding-for-quantization" in other
    assert "--moe-pad-expert-input-to-capacity" not in other


@pytest.mark.parametrize("runtime", ["torchtitan", "fsdp2", "deepspeed", "accelerate"])
def test_other_runtimes_take_any_routing_and_refuse_a_capacity_by_name(make_job, runtime):
    dense = runtime != "torchtitan"
    job = make_job("llama3-8b" if dense else "qwen3-30b-a3b", "1x8:h100-sxm")
    layout = Layout(dp=8, zero_stage=3)
    job = job.model_copy(update={"runtime": runtime})

    def export(**options):
        stated = RuntimeOptions.model_validate(options)
        return EXPORTERS[runtime](job.model_copy(update={"options": stated}), layout)

    assert export(routing="random") == export()
    with pytest.raises(UnsupportedError, match=r"moe_capacity_factor=1\.25"):
        export(moe_capacity_factor=1.25)
