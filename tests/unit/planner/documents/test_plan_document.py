"""The public document: what is written can be read, and nothing else."""

import json

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import plan_json
from trainplan.planner.documents.layout import (
    LATER,
    LATER_OF_OFFLOAD,
    layout_from_json,
    layout_json,
)
from trainplan.planner.documents.written_plan import written
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice


@pytest.fixture(scope="module")
def plan(make_job):
    options = SearchOptions(
        slack=0.0, fix=tuple(parse_choice(one, excluded=False) for one in ("cp=1", "tp=1"))
    )
    return search(make_job("small-moe", "1x4:h100-sxm", 16), options)


def test_a_plan_read_back_gives_its_job_and_layout(plan):
    job, layout = chosen_from_json(json.dumps(plan_json(plan)))
    assert job == plan.job
    assert layout == plan.best.layout


def test_the_document_has_the_promised_keys(plan):
    document = plan_json(plan)
    assert set(document) >= {
        "schema",
        "model",
        "training",
        "cluster",
        "runtime",
        "best",
        "candidates",
        "certificate",
        "refused",
        "provenance",
    }
    assert set(document["best"]["estimate"]) >= {
        "step_time_s",
        "tokens_per_s_per_gpu",
        "tflops_per_gpu",
        "mfu",
        "terms",
        "memory",
        "uncertainty",
    }
    assert document["model"]["num_parameters"] > document["model"]["num_active_parameters"] > 0
    ranks = document["best"]["estimate"]["memory"]["pipeline_ranks"]
    assert [r["rank"] for r in ranks] == list(range(plan.best.layout.pp))


def test_an_uneven_split_is_spelled_out_and_an_even_one_is_null(make_job):
    job = make_job("small-moe", "1x8:h100-sxm", 16)
    even = layout_json(job, Layout(pp=1, dp=8))
    uneven = layout_json(job, Layout(pp=2, dp=4))
    assert even["stages"] is None
    assert [s["layers"] for s in uneven["stages"]] == [
        {"dense": 1, "moe": 2, "mtp": 0},
        {"dense": 0, "moe": 2, "mtp": 1},
    ]


@pytest.mark.parametrize(
    "layout",
    [
        Layout(tp=2, dp=4, sequence_parallel=True, zero_stage=2),
        Layout(pp=2, vpp=2, dp=4, schedule="interleaved", offload=OffloadSpec(optimizer=0.5)),
        Layout(dp=8, dp_replicate=2, recompute="selective", recompute_modules=("mlp", "moe_act")),
        Layout(dp=8, recompute="full", recompute_method="block", recompute_num_layers=2),
    ],
)
def test_a_layout_survives_json(make_job, layout):
    job = make_job("small-moe", "1x8:h100-sxm", 16)
    assert layout_from_json(json.loads(json.dumps(layout_json(job, layout)))) == layout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema="trainplan/plan/v9"), "make the plan again"),
        (lambda d: d.pop("schema"), "the key 'schema' is missing"),
        (lambda d: d.pop("cluster"), "'cluster' is missing"),
        (lambda d: d["model"].update(hidden_size=-1), "hidden_size"),
        (lambda d: d["best"]["layout"].update(tp="two"), "tp"),
        (lambda d: d["best"]["layout"].update(colour="red"), "colour"),
        (lambda d: d["best"].update(layout=7), "wrong kind"),
        (lambda d: d["best"]["layout"].update(stages=[{"layers": 1}]), "'layers'"),
    ],
)
def test_a_damaged_plan_is_refused_with_the_reason(plan, change, message):
    document = json.loads(json.dumps(plan_json(plan)))
    change(document)
    with pytest.raises(SpecError, match=message):
        chosen_from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d["best"]["layout"]["offload"].update(activations=1.0), "offload.activations"),
        (lambda d: d["best"]["layout"].update(num_microbatches=777), "num_microbatches"),
        (lambda d: d["best"]["layout"].update(dp_shard=3), "dp_shard"),
        (lambda d: d["best"]["layout"].pop("dp_shard"), "dp_shard"),
        (lambda d: d["best"]["layout"]["offload"].update(colour="red"), "offload.colour"),
    ],
)
def test_a_derived_number_that_contradicts_the_layout_is_refused(plan, change, field):
    document = json.loads(json.dumps(plan_json(plan)))
    change(document)
    with pytest.raises(SpecError, match=rf"'best\.layout\.{field}' is .* but the layout means"):
        chosen_from_json(json.dumps(document))


def test_the_refusal_names_both_values_and_the_way_out(plan):
    document = json.loads(json.dumps(plan_json(plan)))
    intended = document["best"]["layout"]["num_microbatches"]
    document["best"]["layout"]["num_microbatches"] = 777
    with pytest.raises(SpecError) as refusal:
        chosen_from_json(json.dumps(document))
    assert str(refusal.value) == (
        f"field 'best.layout.num_microbatches' is 777 but the layout means {intended}: "
        "edit the plan through `plan search`/`plan estimate`"
    )


@pytest.mark.parametrize("count", ["num_parameters", "num_active_parameters"])
def test_a_parameter_count_that_contradicts_the_model_is_refused(plan, count):
    document = json.loads(json.dumps(plan_json(plan)))
    document["model"][count] = 1
    with pytest.raises(SpecError, match=f"'model.{count}' is 1 but the model means"):
        chosen_from_json(json.dumps(document))


def test_text_that_is_no_json_is_refused():
    with pytest.raises(SpecError, match="not JSON"):
        chosen_from_json('{"schema": "trainplan')


@pytest.mark.parametrize(
    "choices",
    [("--fix stages=even",), ("--fix tp=1", "--exclude tp=16"), ("--exclude stages=even",)],
)
def test_a_plan_read_back_keeps_choices_that_refused_no_layout(make_job, choices):
    parsed = [(text.startswith("--exclude"), text.split()[1]) for text in choices]
    read = [parse_choice(text, excluded=excluded) for excluded, text in parsed]
    options = SearchOptions(
        fix=tuple(choice for choice in read if not choice.excluded),
        exclude=tuple(choice for choice in read if choice.excluded),
        search_options="none",  # a plan that is read back has the settings it was given
    )
    plan = search(make_job("small-dense", "1x8:h100-sxm", 16), options)
    margin = {"memory_margin": plan.memory_margin}
    assert written(json.dumps(plan_json(plan))).options == options.model_copy(update=margin)


def test_a_plan_without_a_list_of_choices_has_those_that_refused_layouts(make_job):
    held = parse_choice("tp=2", excluded=False)
    plan = search(
        make_job("small-dense", "1x8:h100-sxm", 16), SearchOptions(fix=(held,), slack=0.0)
    )
    document = plan_json(plan)
    del document["provenance"]["choices"]
    assert written(json.dumps(document)).options.fix == (held,)


def test_a_plan_of_an_earlier_version_lacks_the_choices_it_did_not_know(plan):
    document = json.loads(json.dumps(plan_json(plan)))
    layout = document["best"]["layout"]
    for key in LATER:
        del layout[key]
    for key in LATER_OF_OFFLOAD:
        del layout["offload"][key]
    layout["offload"]["parameters"] = 0.0
    assert chosen_from_json(json.dumps(document))[1] == plan.best.layout
    del layout["tp"]
    with pytest.raises(SpecError, match="tp"):
        chosen_from_json(json.dumps(document))
