"""Recompute modules that a model does not have."""

import pytest

from trainplan import planner
from trainplan.costmodel.base.errors import SpecError
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
