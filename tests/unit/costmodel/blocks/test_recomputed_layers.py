"""Full recomputation covers the layers that a runtime can be told to recompute, and no others."""

import pytest

from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.planner.plan.plan import Plan
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space.choices import broken_rules, parse_choice

NAME = "runtime_recomputes_layers"
ENGINE = "pipeline_engine_recomputes_groups"


def broken(make_job, runtime, method, number, **others):
    """Names of the rules that a layout of 32 layers breaks."""
    job = make_job("llama3-8b", "1x8:h100-sxm", 32)
    layout = Layout(
        **{"dp": 8, **others},
        recompute="full",
        recompute_method=method,
        recompute_num_layers=number,
    )
    job = job.model_copy(update={"runtime": runtime})
    return {rule.name for rule in broken_rules(job, LayoutTable.of([layout]))[0]}


@pytest.mark.parametrize(
    ("runtime", "method", "number", "allowed"),
    [
        ("nanotron", "uniform", 1, True),
        ("nanotron", "uniform", 2, False),
        ("nanotron", "block", 16, False),
        ("maxtext", "block", 32, False),
        ("llm-foundry-fsdp", "block", 7, True),
        ("fms-fsdp", "block", 7, True),
        ("fms-fsdp", "uniform", 4, False),
        ("torchtitan", "uniform", 1, True),
        ("torchtitan", "uniform", 2, False),
        ("torchtitan", "block", 16, True),
        ("torchtitan", "block", 12, False),
        ("megatron-lm", "block", 12, True),
        ("megatron-lm", "uniform", 4, True),
    ],
)
def test_layers_are_recomputed_as_the_runtime_can_be_told(
    make_job, runtime, method, number, allowed
):
    assert (NAME not in broken(make_job, runtime, method, number)) is allowed


def test_every_kth_layer_is_as_many_on_every_virtual_stage(make_job):
    """32 layers on 4 ranks: 8 each, or 4 on each of two virtual stages."""
    assert NAME not in broken(make_job, "torchtitan", "block", 4, pp=4, dp=2)
    assert NAME in broken(make_job, "torchtitan", "block", 3, pp=4, dp=2)
    two = {"pp": 4, "vpp": 2, "dp": 2, "schedule": "interleaved"}
    assert NAME not in broken(make_job, "torchtitan", "block", 2, **two)
    assert NAME in broken(make_job, "torchtitan", "block", 3, **two)


def test_every_kth_layer_goes_with_stages_of_one_length(make_job):
    uneven = {"pp": 2, "dp": 4, "stages": stage_specs([15, 17])}
    assert "runtime_recomputes_stages" in broken(make_job, "torchtitan", "block", 8, **uneven)
    assert not broken(make_job, "torchtitan", "uniform", 1, **uneven)


def test_the_pipeline_of_deepspeed_recomputes_in_groups_of_layers(make_job):
    assert ENGINE in broken(make_job, "megatron-deepspeed", "block", 4, pp=2, dp=4)
    assert ENGINE not in broken(make_job, "megatron-deepspeed", "uniform", 4, pp=2, dp=4)
    assert ENGINE not in broken(make_job, "megatron-deepspeed", "block", 4)


def test_plans_for_torchtitan_recompute_what_it_can_be_told(make_job):
    """The job is one that its own policy over operations wins."""
    job = make_job("llama3-70b", "4x8:h100-sxm", 64, 8192)
    held = tuple(parse_choice(one, excluded=False) for one in ("cp=1", "micro_batch_size=1"))
    options = SearchOptions(top=10, fix=held)
    plan = search(job.model_copy(update={"runtime": "torchtitan"}), options)
    assert isinstance(plan, Plan)
    layouts = [one.layout for one in plan.candidates]
    for layout in layouts:
        number = layout.recompute_num_layers or 1
        if layout.stages is not None or layout.recompute_method != "block":
            assert number == 1
            assert layout.recompute_method in (None, "uniform")
        else:
            assert 80 % (layout.pp * layout.vpp * number) == 0
    assert any("torchtitan_selective_op" in layout.recompute_modules for layout in layouts)
