"""Two plans side by side."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.cases.case import Case, with_batch, with_gpus
from trainplan.planner.comparisons.comparison import compare
from trainplan.planner.questions.best_plan import SearchOptions


@pytest.fixture(scope="module")
def case(make_job):
    return Case(make_job("small-moe", "2x8:h100-sxm", 32, 2048), SearchOptions())


ONE = Layout(tp=2, dp=8, ep=4, sequence_parallel=True)
OTHER = Layout(pp=5, vpp=1, dp=1, tp=1, cp=1)


def test_a_plan_does_not_differ_from_itself(case):
    found = compare(case, ONE, case, ONE)
    assert (found.job, found.layout) == ((), ())
    assert found.throughput_ratio == 1
    assert found.probability_second_faster == 0.5
    assert all(term.difference_s == 0 for term in found.terms)


def test_the_terms_sum_to_the_difference_of_the_steps(case):
    other = ONE.model_copy(update={"tp": 1, "dp": 16, "sequence_parallel": False})
    found = compare(case, ONE, case, other)
    whole = found.second.estimate.step_time_s - found.first.estimate.step_time_s
    assert sum(t.difference_s for t in found.terms) == pytest.approx(whole, rel=1e-9)
    assert {f.field for f in found.layout} >= {"tp", "dp", "sequence_parallel"}


def test_swapping_the_plans_swaps_the_signs(case):
    other = ONE.model_copy(update={"micro_batch_size": 2})
    there, back = compare(case, ONE, case, other), compare(case, other, case, ONE)
    for one in there.terms:
        twin = next(term for term in back.terms if term.term == one.term)
        assert twin.difference_s == -one.difference_s
    assert there.throughput_ratio == pytest.approx(1 / back.throughput_ratio)
    assert there.probability_second_faster == pytest.approx(1 - back.probability_second_faster)


def test_throughput_counts_the_batch_and_two_jobs_have_no_odds(case):
    larger = with_batch(with_gpus(case, 32), 64)
    found = compare(case, ONE, larger, ONE.model_copy(update={"dp": 16}))
    steps = found.first.estimate.step_time_s / found.second.estimate.step_time_s
    assert found.throughput_ratio == pytest.approx(2 * steps)
    assert found.probability_second_faster is None
    fields = {field.field: (field.before, field.after) for field in found.job}
    assert fields["training.global_batch_size"] == ("32", "64")
    assert fields["cluster.groups[0].num_nodes"] == ("2", "4")


def test_an_illegal_layout_is_refused_with_the_plan_it_is_of(case):
    with pytest.raises(SpecError, match="the second plan"):
        compare(case, ONE, case, OTHER)


def test_the_terms_of_any_two_layouts_sum_to_their_difference(case, legal_table):
    table = legal_table(case.job, 12, seed=5)
    for row in range(1, len(table)):
        found = compare(case, table.row(0), case, table.row(row))
        whole = found.second.estimate.step_time_s - found.first.estimate.step_time_s
        assert sum(t.difference_s for t in found.terms) == pytest.approx(whole, rel=1e-9, abs=1e-12)


def test_throughput_is_of_all_islands(case):
    """A job on islands is that of one of them."""
    joined = case.with_job(
        case.job.model_copy(update={"outer": OuterSpec(islands=2, every=100, gb_per_s=1e6)})
    )
    found = compare(case, ONE, joined, ONE)
    steps = found.first.estimate.step_time_s / found.second.estimate.step_time_s
    assert found.throughput_ratio == pytest.approx(2 * steps)
