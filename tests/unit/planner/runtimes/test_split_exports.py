"""Stages that a layout gives: from the command line to the rules, the launch file and back."""

import json

import pytest

from trainplan.cli.values.layout_text import parse_layout
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import Layout, StageSpec, stage_specs
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.plan.plan import Candidate
from trainplan.planner.questions import check, estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.megatron_lm.write.pipeline import pipeline_arguments

CLUSTER = parse_cluster("1x8:h100-sxm")
DEEPSEEK = (5, *(4,) * 14, 0)
BLOCK = {"recompute": "full", "recompute_method": "block", "recompute_num_layers": 1}


@pytest.fixture(scope="module")
def job(make_job):
    return make_job("small-dense", "1x8:h100-sxm", 16)


def parsed(stages, **others):
    more = "".join(f",{name}={value}" for name, value in others.items())
    return parse_layout(f"tp=1,pp=4,stages={stages}{more}", CLUSTER)


def four(*layers, **others):
    return Layout(tp=1, pp=4, dp=2, stages=stage_specs(layers), **others)


def layout_option(model, layout):
    arguments = {one.flag: one.values for one in pipeline_arguments(model, layout)}
    return arguments.get("--pipeline-model-parallel-layout")


@pytest.mark.parametrize(
    ("text", "layers"),
    [("2+1+1+2", (2, 1, 1, 2)), ("2*3+0", (2, 2, 2, 0)), ("0+3*2+0", (0, 3, 3, 0))],
)
def test_stages_are_read_from_a_layout(text, layers):
    assert parsed(text).stages == stage_specs(layers)


def test_even_leaves_the_split_to_the_runtime():
    assert parsed("even").stages is None


def test_a_stage_may_say_how_many_of_its_layers_are_recomputed():
    stages = parsed("2/1+2/0+1*2", **BLOCK).stages
    assert [stage.recompute_num_layers for stage in stages] == [1, 0, None, None]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "stages=: expected a whole number"),
        ("2+x", "stages=x: expected a whole number"),
        ("2+-1", "stages=-1: expected a whole number"),
        ("3*0+6", "must be at least 1"),
        ("2*999999999", "at most 65536 stages"),
        ("2/+1+1+2", "stages=: expected a whole number"),
        ("3+3", "stages has 2 entries, pp \\* vpp is 4"),
        ("2/1+2+1+1", "recompute_num_layers of stages belong to recompute=full"),
    ],
)
def test_stages_that_make_no_sense_are_refused_in_one_line(text, says):
    with pytest.raises(SpecError, match=says) as error:
        parsed(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("layers", [(2, 2, 2, 2), (1, 1, 1, 1), (3, 0, 0, 3), (6, 0, 0, 0)])
def test_stages_that_do_not_hold_the_model_break_a_rule(job, layers):
    with pytest.raises(SpecError, match="stages_hold_the_model"):
        check(job, four(*layers))


@pytest.mark.parametrize("layers", [(0, 3, 3, 0), (1, 1, 1, 3), (3, 1, 1, 1)])
def test_the_ends_alone_may_be_empty_and_any_split_is_priced(job, layers):
    assert estimate(job, four(*layers)).step_time_s > 0


def test_a_split_that_is_the_even_one_costs_the_same(job):
    even = Layout(tp=1, pp=4, dp=2)
    assert estimate(job, four(1, 2, 2, 1)) == estimate(job, even)


def test_one_slow_stage_slows_the_step_down(job):
    assert estimate(job, four(1, 1, 3, 1)).step_time_s > estimate(job, four(1, 2, 2, 1)).step_time_s


def test_no_stage_is_too_short_for_what_is_recomputed_but_the_longest_may_be(job):
    more = {**BLOCK, "recompute_num_layers": 3}
    assert estimate(job, four(1, 1, 3, 1, **more)).memory.peak_allocated_bytes > 0
    with pytest.raises(SpecError, match="recompute_within_stage"):
        check(job, four(1, 2, 2, 1, **more))


def test_a_runtime_that_splits_by_itself_refuses_stages(job):
    other = job.model_copy(update={"runtime": "nanotron"})
    with pytest.raises(SpecError, match="runtime_splits_evenly"):
        check(other, four(2, 1, 1, 2))


def test_recomputation_of_single_stages_is_refused_by_name(job):
    stages = (StageSpec(layers=2, recompute_num_layers=1), *stage_specs((1, 1, 2)))
    layout = Layout(tp=1, pp=4, dp=2, stages=stages, **BLOCK)
    with pytest.raises(SpecError, match="runtime_recomputes_alike"):
        check(job, layout)
    with pytest.raises(UnsupportedError, match="--recompute-num-layers"):
        layout_option(job.model, layout)


def test_an_uneven_split_becomes_the_layout_option_of_megatron(job):
    assert layout_option(job.model, four(2, 1, 1, 2)) == ("Et*2|(t|)*2t*2L",)
    assert layout_option(job.model, four(0, 3, 3, 0)) == ("E|(t*3|)*2L",)


def test_the_stages_of_one_rank_are_exported_in_the_order_of_the_model(job):
    layout = Layout(
        tp=1, pp=2, dp=4, vpp=2, schedule="interleaved", stages=stage_specs((1, 2, 1, 2))
    )
    assert layout_option(job.model, layout) == ("Et|t*2|t|t*2L",)


def test_a_split_of_deepseek_keeps_its_prediction_layer_with_the_loss():
    layout = Layout(tp=1, pp=16, dp=1, stages=stage_specs(DEEPSEEK))
    assert layout_option(preset("deepseek-v3"), layout) == ("Et*5|(t*4|)*14mL",)


def test_an_exported_split_needs_no_other_option_for_the_layers(job):
    config = EXPORTERS["megatron-lm"](job, four(2, 1, 1, 2))
    names = {argument.flag for argument in config.arguments}
    assert "--pipeline-model-parallel-layout" in names
    assert not names & {
        "--num-virtual-stages-per-pipeline-rank",
        "--decoder-first-pipeline-num-layers",
        "--account-for-embedding-in-pipeline-split",
    }


def test_a_plan_with_stages_reads_back_as_it_was(job):
    plan, layout = search(job, SearchOptions(search_options="none")), four(2, 1, 1, 2)
    best = Candidate(rank=1, layout=layout, estimate=estimate(job, layout))
    document = json.dumps(plan_json(plan.model_copy(update={"best": best})))
    assert chosen_from_json(document) == (job, layout)
    stages = json.loads(document)["best"]["layout"]["stages"]
    assert [stage["layers"]["dense"] for stage in stages] == [2, 1, 1, 2]
    assert [stage["embedding"] for stage in stages] == [True, False, False, False]
    assert [stage["head"] for stage in stages] == [False, False, False, True]
