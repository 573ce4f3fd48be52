"""Where experts should lie: how sure that is, in which steps it holds, what copies would do."""

import numpy as np
import pytest

from trainplan.cli.pages.explain import placement_sentences
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.routing import place
from trainplan.planner.cases.case import Case
from trainplan.planner.explanations.expert_placement import NEAR, expert_placement
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.questions import estimate
from trainplan.planner.work.budget import Unlimited

EXPERTS, STEPS = 128, 4


NO_END = Unlimited()


class Over(Unlimited):
    """No time is left."""

    def seconds_left(self) -> float:
        return 0.0


def counts(layers=1, noise=0.1):
    rng = np.random.default_rng(2)
    skew = np.exp(rng.normal(0, 0.6, (layers, EXPERTS)))
    steps = np.exp(rng.normal(0, noise, (STEPS, layers, EXPERTS)))
    return np.round(4000 * skew * steps)


def measured(each, *, steps=True):
    total = tuple(map(tuple, each.sum(axis=0).tolist()))
    of_steps = tuple(tuple(map(tuple, one)) for one in each.tolist()) if steps else ()
    return RoutingSpec(kind="measured", tokens_per_expert=total, steps=of_steps, source="c.csv")


@pytest.fixture(scope="module", name="found_for")
def founds(make_job):
    made = make_job("qwen3-30b-a3b", "4x8:h100-sxm", 64, 4096)

    def found(ep=8, deadline=NO_END, **options):
        stated = RuntimeOptions(**options)
        case = Case(made.model_copy(update={"options": stated}), SearchOptions())
        layout = Layout(dp=32, ep=ep, zero_stage=1)
        return case, layout, expert_placement(case, layout, deadline)

    return found


def test_a_placement_is_a_permutation_that_has_the_price_of_the_option(found_for):
    """A checkpoint whose experts are permuted so has the counts in that order."""
    each = counts()
    case, layout, found = found_for(ep=32, routing=measured(each))
    slots = list(map(int, found.slots[0].split()))
    assert sorted(slots) == list(range(EXPERTS))
    permuted = measured(each[:, :, slots])
    plain = case.job.model_copy(update={"options": RuntimeOptions(routing=permuted)})
    options = {"routing": measured(each), "expert_placement": "best"}
    placed = case.job.model_copy(update={"options": RuntimeOptions(**options)})
    step, best = (estimate(one, layout).step_time_s for one in (plain, placed))
    assert step == pytest.approx(best, rel=2e-3)
    assert step < 0.9 * estimate(case.job, layout).step_time_s
    head, line = found.lines.splitlines()
    assert head.split(",")[:6] == ["layer", "rank0", "rank0", "rank0", "rank0", "rank1"]
    assert line == ",".join(["all", *map(str, slots)])


def test_it_is_near_its_bound_and_better_than_the_order_in_later_steps(found_for):
    _, _, found = found_for(ep=32, routing=measured(counts()))
    assert found.nodes == 4
    assert 1.0 <= found.least <= found.fullest < found.in_order
    assert found.gap_fraction <= NEAR
    assert found.fullest < found.later < found.later_in_order
    said = " ".join(placement_sentences(found))
    assert (
        f"{found.fullest:.3f} times the mean, in the order of numbers {found.in_order:.3f}" in said
    )
    assert f"it has {found.later:.3f} in the others" in said


def test_one_count_of_all_steps_does_not_say_whether_it_holds(found_for):
    _, _, found = found_for(routing=measured(counts(), steps=False))
    assert (found.later, found.later_in_order) == (None, None)
    assert "Whether it holds for later steps is not known" in " ".join(placement_sentences(found))


def test_the_fullest_step_is_made_small_where_that_is_chosen(found_for):
    each = counts(noise=0.3)
    (_, _, mean), (_, _, worst) = (
        found_for(deadline=Over(), routing=measured(each), expert_placement=one)
        for one in ("best", "worst_step")
    )
    rows = [
        each[:, 0, list(map(int, one.slots[0].split()))].reshape(STEPS, 8, -1).sum(axis=2)
        for one in (mean, worst)
    ]
    fullest = [float((one.max(axis=1) / one.mean(axis=1)).max()) for one in rows]
    assert worst.fullest == pytest.approx(fullest[1])
    assert fullest[1] < fullest[0]
    assert "(expert_placement=worst_step)" in next(iter(placement_sentences(worst)))


def test_later_steps_and_copies_are_of_the_aim_that_is_chosen(found_for):
    """Of the fullest step: no less than the mean of all, later and with copies."""
    each = counts(noise=0.5)
    (_, _, mean), (case, layout, worst) = (
        found_for(deadline=Over(), routing=measured(each), expert_placement=one)
        for one in ("best", "worst_step")
    )
    after = each[STEPS // 2 :, 0].reshape(STEPS // 2, 8, -1).sum(axis=2)
    fullest = (after.max(axis=1) / after.mean(axis=1)).max()
    assert worst.later_in_order == pytest.approx(fullest)
    assert mean.later_in_order < worst.later_in_order
    steps = each / each.sum(axis=2, keepdims=True)
    moe = case.job.model.moe
    placed = place(steps, moe, layout.ep, copies=layout.ep, aim="worst")
    assert worst.copies.fullest == pytest.approx(placed.fullest.mean())
    assert mean.copies.fullest < worst.copies.fullest < worst.fullest


def test_a_whole_program_makes_better_what_is_far_from_its_bound(found_for):
    """Without time greedy rules and swaps answer; with some no worse, and never below the bound."""
    each = counts(noise=0.0) ** 1.5
    each[:, :, :16] *= 4
    (_, _, quick), (_, _, slow) = (
        found_for(ep=32, deadline=one, routing=measured(each)) for one in (Over(), NO_END)
    )
    assert quick.least <= slow.least <= slow.fullest <= quick.fullest + 1e-12


def test_copies_on_every_rank_are_priced_with_their_memory_and_gradients(found_for):
    each = counts()
    each[:, :, 5] *= 7
    case, layout, found = found_for(ep=32, routing=measured(each))
    copies = found.copies
    assert copies.fullest < 0.75 * found.fullest
    assert copies.gradients_s > 0
    options = {"routing": measured(each), "expert_placement": "best"}
    placed = case.job.model_copy(update={"options": RuntimeOptions(**options)})
    without = estimate(placed, layout)
    assert copies.step_time_s - copies.gradients_s < without.step_time_s
    says = "Whether a runtime trains with copies: Megatron-LM has none; others were not read"
    assert says in (text := " ".join(placement_sentences(found)))
    assert "With one redundant copy on every rank (more are not priced): " in text


def test_a_second_copy_on_every_rank_gains_less_than_a_hundredth(make_job):
    """Where ranks have four experts: why no more than one is priced."""
    moe = make_job("qwen3-30b-a3b", "1x8:h100-sxm").model.moe
    each = np.exp(np.random.default_rng(1).normal(0, 1.0, (1, 4, EXPERTS)))
    one, two = (place(each, moe, 32, copies=n).fullest.mean() for n in (32, 64))
    assert two <= one < 1.01 * two


def test_a_copy_takes_the_memory_of_an_expert_on_every_rank(found_for):
    """Full ranks without copies: bf16 weights, fp32 gradients, and states of four replicas."""
    routing = measured(counts(noise=0.0))
    case, layout, found = found_for(routing=routing)
    assert found.fullest == pytest.approx(1.0, abs=1e-3)
    options = RuntimeOptions(routing=routing, expert_placement="best")
    without = estimate(case.job.model_copy(update={"options": options}), layout)
    held = found.copies.peak_reserved_bytes - without.memory.peak_reserved_bytes
    assert held == pytest.approx(48 * 3 * 2048 * 768 * (2 + 4 + 12 / 4), rel=0.1)


@pytest.mark.parametrize("options", [{}, {"routing": "random"}, {"routing": "balanced"}])
def test_nothing_is_placed_where_experts_are_alike_or_on_one_rank(found_for, options):
    stated = {name: RoutingSpec.model_validate(value) for name, value in options.items()}
    assert found_for(**stated)[2] is None
    assert found_for(ep=1, routing=measured(counts()))[2] is None
