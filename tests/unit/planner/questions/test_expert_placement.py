"""Experts placed by their rows: the price, what explain says it buys, what an export says."""

import pytest

from trainplan.cli.pages.parts.headline import chosen_lines
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case
from trainplan.planner.explanations.changes import applied, changes
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import check_model, estimate
from trainplan.planner.questions.best_plan import notes
from trainplan.planner.questions.unequal_experts import imbalance_notes
from trainplan.planner.runtimes import EXPORTERS

LAYOUT = Layout(dp=8, ep=8, zero_stage=1)


@pytest.fixture(scope="module", name="job_of")
def jobs(make_job):
    made = make_job("qwen3-30b-a3b", "1x8:h100-sxm", 64, 8192)
    return lambda **options: made.model_copy(
        update={"options": RuntimeOptions.model_validate(options)}
    )


@pytest.mark.parametrize("routing", ["balanced", "random", "zipf:0.7"])
def test_the_order_of_numbers_has_the_price_of_before_to_the_bit(job_of, routing):
    stated = job_of(routing=routing, expert_placement="order")
    assert estimate(stated, LAYOUT) == estimate(job_of(routing=routing), LAYOUT)
    if routing != "zipf:0.7":
        placed = job_of(routing=routing, expert_placement="best")
        assert estimate(placed, LAYOUT) == estimate(stated, LAYOUT)


STEPS = [[" ".join(str(1 + 9 * (i < 16) + (i == step)) for i in range(128))] for step in (0, 99)]
COUNTED = {
    "kind": "measured",
    "tokens_per_expert": [[2 + 18 * (i < 16) + (i in (0, 99)) for i in range(128)]],
    "steps": STEPS,
    "source": "counts.csv",
}


@pytest.mark.parametrize(
    ("placement", "routing"),
    [("best", "zipf:0.7"), ("best", COUNTED), ("worst_step", COUNTED)],
)
def test_experts_by_their_rows_take_less_time_and_memory(job_of, placement, routing):
    plain, placed = (job_of(routing=routing, expert_placement=p) for p in ("order", placement))
    before, after = estimate(plain, LAYOUT), estimate(placed, LAYOUT)
    assert after.step_time_s < 0.7 * before.step_time_s
    assert after.memory.peak_reserved_bytes < before.memory.peak_reserved_bytes
    line, held_out = list(imbalance_notes(placed, LAYOUT))[:2]
    name = routing if isinstance(routing, str) else "counts.csv"
    assert f"routing={name}, expert_placement={placement}: " in line
    assert f"(expert_placement={placement}), so its gain is not held-out: " in held_out
    known = "`plan explain` has it" if routing is COUNTED else "not known"
    assert f"{known} of later steps" in held_out
    assert held_out in chosen_lines(placed, [line, held_out])
    assert not any("held-out" in one for one in imbalance_notes(plain, LAYOUT))


@pytest.mark.parametrize("routing", ["zipf:0.7", {**COUNTED, "steps": []}])
def test_the_fullest_step_is_no_aim_where_no_steps_are_counted(job_of, routing):
    job = job_of(routing=routing, expert_placement="worst_step")
    with pytest.raises(SpecError, match=r"has no counts by step.*expert_placement=best") as caught:
        check_model(job)
    assert "\n" not in str(caught.value)
    check_model(job_of(routing=routing, expert_placement="best"))
    for alike in ("random", "balanced"):
        check_model(job_of(routing=alike, expert_placement="worst_step"))


@pytest.mark.parametrize(("groups", "priced_in_order"), [(4, False), (3, True), (None, False)])
def test_groups_that_are_not_whole_on_ranks_are_priced_in_order_with_a_note(
    make_job, groups, priced_in_order
):
    made = make_job("qwen3-30b-a3b", "1x8:h100-sxm", 64, 8192)
    moe = made.model.moe.model_copy(
        update={"num_experts": 96, "n_group": groups, "topk_group": groups and 2}
    )
    found = {}
    for one in ("order", "best"):
        options = RuntimeOptions.model_validate({"routing": "zipf:0.7", "expert_placement": one})
        update = {"model": made.model.model_copy(update={"moe": moe}), "options": options}
        job = made.model_copy(update=update)
        found[one] = estimate(job, LAYOUT).step_time_s, list(imbalance_notes(job, LAYOUT))
    assert (found["order"][0] == found["best"][0]) == priced_in_order
    line = "expert_placement=best is priced as order: 8 expert ranks have no whole groups of the 3"
    assert any(one.startswith(line) for one in found["best"][1]) == priced_in_order
    assert not any("priced as order" in one for one in found["order"][1])


def test_explain_offers_it_where_experts_are_unequal_and_lie_in_order(job_of):
    def offered(**options):
        case = Case(job_of(**options), SearchOptions())
        return {one.name: applied(one, case) for one in changes(case, LAYOUT)}

    found = offered(routing="zipf:0.7")["expert_placement"]
    assert found.job.options.expert_placement == "best"
    assert "expert_placement" not in offered(routing="zipf:0.7", expert_placement="worst_step")
    assert not any("expert_placement" in offered(routing=one) for one in ("balanced", "load:1.3"))
    assert "moe_capacity_factor" not in offered(routing="load:1.3")


def test_it_changes_nothing_where_all_experts_are_alike(job_of, make_job):
    line = "expert_placement=best changes nothing: no expert is known to have more rows"
    for routing in ({}, {"routing": "load:1.3"}):
        job = job_of(expert_placement="best", **routing)
        assert any(one.startswith(line) for one in notes(job))
        assert not any("permute" in one for one in EXPORTERS["megatron-lm"](job, LAYOUT).notes)
    assert not any(line in one for one in notes(job_of(routing="zipf:1", expert_placement="best")))


def test_an_export_writes_the_same_and_says_that_the_checkpoint_is_permuted(job_of):
    plain = EXPORTERS["megatron-lm"](job_of(routing="zipf:1"), LAYOUT)
    placed = EXPORTERS["megatron-lm"](job_of(routing="zipf:1", expert_placement="best"), LAYOUT)
    assert placed.arguments == plain.arguments
    (note,) = set(placed.notes) - set(plain.notes)
    assert "megatron-lm has no option for it" in note
    assert "permute their weights" in note
