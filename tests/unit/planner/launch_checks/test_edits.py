"""Edits of a launch: the fewest that bring most of the gain, legal, and priced as any layout is."""

from dataclasses import replace
from itertools import combinations

import pytest

from trainplan.cli.pages.check import optimum_text
from trainplan.cli.words import seconds
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launch_checks.changed import Run
from trainplan.planner.launch_checks.check import check_launch, with_faster
from trainplan.planner.launch_checks.edits import MOST, fewest_edits, with_units
from trainplan.planner.launch_checks.lints import lints
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.plan.plan import Candidate
from trainplan.planner.questions.best_plan import search
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.runtimes import Field, Reading
from trainplan.planner.shell import Place, Problem
from trainplan.planner.work.budget import Unlimited

JOB = Job(
    model=preset("llama3-8b"),
    training=TrainingSpec(seq_length=8192, global_batch_size=64),
    cluster=parse_cluster("2x8:h100-sxm"),
)
SLOW = Layout(
    tp=8, pp=2, recompute="full", recompute_method="uniform", recompute_num_layers=1, dp=1
)
FAST = Layout(tp=2, pp=1, dp=8, sequence_parallel=True)


def run(layout: Layout, **options: object) -> Run:
    return Run(JOB.model_copy(update={"options": RuntimeOptions(**options)}), layout)


def step(one: Run) -> float:
    return estimate(one.job, one.layout).step_time_s


def test_the_last_edit_is_the_whole_optimum_and_the_first_brings_most_of_its_gain() -> None:
    own = step(run(SLOW))
    few, whole = fewest_edits(run(SLOW), run(FAST), own)
    assert whole.run.layout == FAST
    assert whole.step_time_s == pytest.approx(step(run(FAST)))
    assert own - few.step_time_s >= MOST * (own - whole.step_time_s)
    assert len(few.units) < len(whole.units)
    assert few.step_time_s == pytest.approx(step(few.run))


def test_no_smaller_set_of_edits_does() -> None:
    own = step(run(SLOW))
    few, whole = fewest_edits(run(SLOW), run(FAST), own)
    for count in range(len(few.units)):
        for units in combinations(whole.units, count):
            one = with_units(run(SLOW), run(FAST), units)
            if one is not None and estimate(one.job, one.layout).memory.fits:
                assert own - step(one) < MOST * (own - whole.step_time_s)


def test_an_edit_is_said_in_the_options_of_the_runtime() -> None:
    few, _ = fewest_edits(run(SLOW), run(FAST), step(run(SLOW)))
    names = {setting.name: setting for setting in few.settings}
    assert "--recompute-granularity" in names
    assert names["--recompute-granularity"].after is None


def test_options_are_edits_too() -> None:
    slow = run(FAST, overlap_grad_reduce=False, overlap_param_gather=False)
    (edit,) = fewest_edits(slow, run(FAST), step(slow))
    assert edit.units == ("options.overlap_grad_reduce",)
    assert {"--overlap-grad-reduce", "--overlap-param-gather"} <= {s.name for s in edit.settings}
    assert edit.saved_s is not None and edit.saved_s > 0


def test_of_a_launch_that_cannot_run_the_first_edit_makes_it_run() -> None:
    changes = {"model": preset("llama3-70b"), "cluster": parse_cluster("4x8:h100-sxm")}
    big = Run(JOB.model_copy(update=changes), FAST.model_copy(update={"dp": 16}))
    every_layer = {"recompute_method": "uniform", "recompute_num_layers": 1}
    small = Layout(tp=8, pp=4, sequence_parallel=True, recompute="full", **every_layer)
    fits = replace(big, layout=small)
    assert not estimate(big.job, big.layout).memory.fits
    edits = fewest_edits(big, fits, None)
    assert edits
    assert edits[0].saved_s is None
    assert estimate(big.job, edits[0].run.layout).memory.fits


def test_a_lint_says_what_its_one_change_saves() -> None:
    slow = run(SLOW)
    found = {one.name: one for one in lints(slow, estimate(slow.job, slow.layout))}
    lint = found["recomputation_without_need"]
    assert lint.saved_s is not None and lint.saved_s > 0
    assert lint.fits


def test_what_pays_nothing_is_no_lint() -> None:
    fast = run(FAST)
    names = [one.name for one in lints(fast, estimate(fast.job, fast.layout))]
    assert "sequence_parallel_off" not in names
    assert "recomputation_without_need" not in names


@pytest.mark.parametrize(
    ("layout", "options", "name"),
    [
        (Layout(tp=16, dp=1, sequence_parallel=True), {}, "tensor_parallel_across_nodes"),
        (Layout(tp=8, dp=2), {}, "sequence_parallel_off"),
        (Layout(tp=8, pp=2, dp=1, sequence_parallel=True), {}, "no_virtual_stages"),
        (FAST, {"overlap_grad_reduce": False, "overlap_param_gather": False}, "overlap_off"),
        (FAST, {"attention": "unfused"}, "unfused_attention"),
        (FAST, {"cross_entropy": "unfused"}, "unfused_cross_entropy"),
    ],
)
def test_slips_are_named(layout: Layout, options: dict[str, object], name: str) -> None:
    own = run(layout, **options)
    assert name in [one.name for one in lints(own, estimate(own.job, own.layout))]


def test_odd_widths_and_padding_are_said_without_a_price() -> None:
    model = JOB.model.model_copy(
        update={"vocab_size": 1000, "head_dim": 100, "intermediate_size": 4 * 1000}
    )
    own = Run(JOB.model_copy(update={"model": model}), Layout(tp=4, dp=4, sequence_parallel=True))
    found = {one.name: one for one in lints(own, estimate(own.job, own.layout))}
    assert "intermediate_size / tp = 4000 / 4" in found["odd_widths"].says
    assert "head_dim 100 runs on kernels 128 wide" in found["off_the_grid"].says
    assert found["padded_vocabulary"].saved_s is None


SMALL = JOB.model_copy(
    update={"model": preset("gpt2"), "cluster": parse_cluster("1x8:h100-sxm")}
    | {"training": TrainingSpec(seq_length=1024, global_batch_size=8)}
)


def reading(layout: Layout, *problems: Problem, options: RuntimeOptions | None = None) -> Reading:
    job = SMALL.model_copy(update={"options": options or RuntimeOptions()})
    field = Field("layout.pp", layout.pp, "stated", "--pp", Place("a.sh", 7))
    return Reading("megatron-lm", "x", job, layout, (field,), problems)


def test_a_rule_that_the_reader_did_not_name_is_a_problem_with_its_line() -> None:
    broken = Layout(tp=1, pp=8, vpp=4, dp=1, schedule="interleaved")
    found = check_launch(reading(broken), SearchOptions(only_answer=True), Unlimited())
    assert found.estimate is None
    assert found.fits is None
    problem = found.reading.problems[-1]
    assert problem.place == Place("a.sh", 7)
    assert found.edits


def test_the_best_layout_needs_no_edits() -> None:
    slow = Layout(tp=4, pp=2)
    first = check_launch(reading(slow), SearchOptions(only_answer=True), Unlimited())
    assert first.optimum is not None
    best, options = first.optimum.best.layout, first.optimum.job.options
    again = check_launch(
        reading(best, options=options), SearchOptions(only_answer=True), Unlimited()
    )
    assert again.edits == ()


def test_a_flag_that_is_refused_leaves_the_price_and_what_edits_save() -> None:
    problem = Problem("unknown_flag", "illegal", "take it out")
    found = check_launch(
        reading(Layout(tp=4, pp=2), problem), SearchOptions(only_answer=True), Unlimited()
    )
    assert not found.reading.legal
    assert found.edits[0].saved_s is not None
    assert found.edits[0].saved_s > 0


def test_what_a_search_finds_is_never_slower_than_an_edit_of_its_space() -> None:
    """Its time limit may leave out what an edit of the launch has."""
    job = JOB.model_copy(update={"cluster": parse_cluster("1x8:h100-sxm")})
    fast, slow = Layout(tp=2, dp=4, sequence_parallel=True), Layout(tp=8, dp=1)
    (quick, late) = (estimate(job, one) for one in (fast, slow))
    whole = search(job, SearchOptions(only_answer=True, search_options="none"))
    struck = whole.model_copy(
        update={"best": Candidate(rank=1, layout=slow, estimate=late), "notes": ()}
    )
    runs = [(late.step_time_s, Run(job, slow)), (quick.step_time_s, Run(job, fast))]
    found = with_faster(struck, runs)
    assert (found.best.layout, found.best.estimate) == (fast, quick)
    bound = found.certificate.lower_bound_s
    assert found.certificate.gap_fraction == pytest.approx(1 - bound / quick.step_time_s)
    assert with_faster(whole, runs) is whole
    assert with_faster(struck, [(0.9 * bound, Run(job, fast))]) is struck
    text = optimum_text(struck, 0.9 * bound)
    assert text.startswith("The edits are the fastest known for this job, ")
    assert f"none takes less than {seconds(bound)}" in text
    assert optimum_text(found, quick.step_time_s).startswith("`plan search` finds ")
