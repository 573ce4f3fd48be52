"""Recompute modules that a model does not have."""

import pytest

from trainplan import planner
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.questions import layout_notes


def recomputing(*modules):
    return Layout(dp=16, recompute="selective", recompute_modules=modules)


def test_a_module_without_effect_costs_nothing_and_is_noted(make_job):
    job = make_job("small-dense", "2x8:a100-sxm-80gb", 64)
    alone, both = (
        planner.estimate(job, recomputing(*modules))
        for modules in (("core_attn",), ("core_attn", "layernorm", "moe_act"))
    )
    assert both == alone
    noted = [
        note
        for note in layout_notes(job, recomputing("core_attn", "layernorm", "moe_act"), both)
        if "none to recompute" in note
    ]
    assert len(noted) == 1
    assert "layernorm, moe_act" in noted[0]
    assert not [
        note
        for note in layout_notes(job, recomputing("core_attn"), alone)
        if "none to recompute" in note
    ]


def test_a_module_that_the_runtime_refuses_is_refused(make_job):
    job = make_job("small-dense", "2x8:a100-sxm-80gb", 64)
    with pytest.raises(SpecError, match="recompute_modules_exist"):
        planner.estimate(job, recomputing("mla_up_proj"))


@pytest.mark.parametrize(
    ("layout", "options", "says"),
    [
        ({"dp": 16}, {}, ["compare sizes with each other (152.6 is megatron-lm's own)"]),
        (
            {"dp": 16},
            {"overlap_grad_reduce": False, "overlap_param_gather": False},
            ["changes nothing"],
        ),
        ({"dp": 16, "zero_stage": 3}, {}, ["reduces layer by layer"]),
        ({"dp": 8, "pp": 2}, {}, ["priced as left out"]),
    ],
)
def test_a_size_of_buckets_that_means_nothing_is_noted(make_job, layout, options, says):
    job = make_job("small-dense", "2x8:a100-sxm-80gb", 64)
    job = job.model_copy(update={"options": RuntimeOptions(bucket_mb=25, **options)})
    notes = layout_notes(job, Layout(**layout), planner.estimate(job, Layout(**layout)))
    found = [note for note in notes if note.startswith("bucket_mb")]
    assert len(found) == len(says)
    assert all(word in note for word, note in zip(says, found, strict=True))
