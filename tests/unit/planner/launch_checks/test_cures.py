"""A launch that does not fit: the fewest edits that make it run come first."""

import pytest

from trainplan.cli.words import setting_words
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.planner.cases import Case
from trainplan.planner.comparisons.neighbours import neighbours
from trainplan.planner.launch_checks.changed import Run
from trainplan.planner.launch_checks.check import check_launch
from trainplan.planner.launch_checks.cures import cures
from trainplan.planner.launch_checks.edits import fewest_edits
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import estimate, estimates
from trainplan.planner.runtimes import Field, Reading, SettingChange
from trainplan.planner.space import broken_rules, parse_choice
from trainplan.planner.work.budget import Unlimited

LAUNCHES = [
    ("llama3-70b", "4x8:h100-sxm", {"tp": 8, "pp": 2, "dp": 2, "micro_batch_size": 2}, 2),
    ("llama3-70b", "4x8:h100-sxm", {"tp": 8, "pp": 2, "dp": 2}, 1),
    ("llama3-8b", "1x8:h100-sxm", {"dp": 8, "zero_stage": 0}, 1),
    ("llama3-8b", "1x8:h100-sxm", {"dp": 8, "micro_batch_size": 4}, 1),
    ("qwen3-30b-a3b", "2x8:h100-sxm", {"dp": 16, "ep": 8}, 1),
    ("llama3-8b", "1x8:a100-sxm-40gb", {"tp": 2, "dp": 4}, 1),
]


def changed(one, other):
    axes = [axis for axis in AXES if axis.name not in ("dp", "schedule")]
    return sum(axis.of(one) != axis.of(other) for axis in axes)


@pytest.mark.parametrize(("model", "cluster", "values", "fewest"), LAUNCHES)
def test_the_first_edit_is_the_smallest_that_makes_it_run(make_job, model, cluster, values, fewest):
    job, layout = make_job(model, cluster, 128, 8192), Layout.model_validate(values)
    assert not estimate(job, layout).memory.fits
    options = SearchOptions(memory_margin=0.0)
    found = cures(Case(job, options), layout).found
    cure = fewest_edits(Run(job, layout), None, None, memory_margin=0.0, cures=found)[0]
    assert cure.saved_s is None
    assert estimate(job, cure.run.layout).memory.fits
    assert changed(layout, cure.run.layout) == fewest
    if fewest > 1:
        near = list(neighbours(Case(job, options).context, layout))
        legal = broken_rules(job, LayoutTable.of(near))
        one = [x for x, rules in zip(near, legal, strict=True) if not rules]
        alone = [x for x in one if changed(layout, x) < fewest]
        assert alone
        assert not estimates(job, alone).fits.any()


def test_kernels_of_liger_are_an_edit_with_the_tiles_that_they_bring(make_job):
    job = make_job("llama3.1-8b", "1x8:a100-sxm-80gb", 8, 32_768)
    job = job.model_copy(update={"runtime": "accelerate"})
    full = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    layout = Layout(dp=8, zero_stage=3, **full)
    assert not estimate(job, layout).memory.fits
    options = SearchOptions(memory_margin=0.0, only_answer=True, only_written=False)
    found = check_launch(Reading("accelerate", "", job, layout, (), ()), options, Unlimited()).edits
    (liger,) = [one.run for one in found if one.run.job.options.liger]
    assert liger.layout == layout.model_copy(update={"tiled_loss": True})


def test_edits_are_written_as_they_are_typed():
    changes = (
        SettingChange("--pipeline-model-parallel-layout", None, "Et|(t*2|)*3tL"),
        SettingChange("--recompute-modules", None, "core_attn mlp"),
        SettingChange("--sequence-parallel", None, ""),
        SettingChange("--tp-comm-overlap", "", None),
        SettingChange("zero_optimization.stage", "1", "3"),
    )
    assert setting_words(changes) == (
        "--pipeline-model-parallel-layout 'Et|(t*2|)*3tL' --recompute-modules core_attn mlp "
        "--sequence-parallel zero_optimization.stage=3; without --tp-comm-overlap"
    )


def test_a_flag_that_the_launch_states_stays_where_the_layout_changes(make_job):
    job = make_job("qwen3-30b-a3b", "4x8:h100-sxm", 512, 4096)
    layout = Layout(dp=32, ep=8, micro_batch_size=2)
    assert not estimate(job, layout).memory.fits
    field = Field("options.overlap_param_gather", None, "stated", "--overlap-param-gather", None)
    reading = Reading("megatron-lm", "", job, layout, (field,), ())
    fix = tuple(parse_choice(text, excluded=False) for text in ("tp=1", "pp=2", "cp=1", "ep=8"))
    options = SearchOptions(memory_margin=0.0, only_answer=True, only_written=False, fix=fix)
    found = check_launch(reading, options, Unlimited()).edits
    staged = [one for one in found if one.run.layout.pp == 2 and one.run.layout.vpp == 1]
    assert staged
    assert all(one.name != "--overlap-param-gather" for some in staged for one in some.settings)
