"""What a search answers, the exporter of its runtime writes; or nothing is searched, and why."""

import random
import re

import numpy as np
import pytest

from tests.golden.decoder_counts import recorded
from tests.grids import some_cases
from trainplan.costmodel.base import PlanError, UnsupportedError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.families.reading import model_from_config
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.presets.presets import preset, preset_names
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions import search
from trainplan.planner.runtimes import EXPORTERS, launch_rules, runtime_chosen
from trainplan.planner.runtimes.able import able_runtimes, check_able, unwritten
from trainplan.planner.space import Space, memory_policies, nodes, rules_of_job, skeletons
from trainplan.planner.space.grid import RuleFilter

CLUSTER = parse_cluster("1x8:h100-sxm")
AT_ONCE = 30
"""Rows of a level that are followed, and layouts that are exported."""


def models():
    """Presets, and every class of transformers that is read whole."""
    for name in preset_names():
        yield name, preset(name)
    for one in recorded():
        if one.variant == "small":
            try:
                yield one.model_type, model_from_config(one.config, one.model_type)
            except PlanError:
                continue


MODELS = dict(models())
OPTIONS = ({}, {"attention": "flash"}, {"gradient_dtype": "bf16"})


def job_of(name, runtime, **options):
    return Job(
        model=MODELS[name],
        training=TrainingSpec(seq_length=128, global_batch_size=16),
        cluster=CLUSTER,
        runtime=runtime,
        options=RuntimeOptions.model_validate(options),
    )


def some(table, seed):
    rows = random.Random(seed).sample(range(len(table)), min(len(table), AT_ONCE))
    return table.take(np.array(rows, dtype=int))


def layouts(job, seed):
    """Some layouts that no rule of a search refuses."""
    space, rules = Space(context_for(job)), (*rules_of_job(job), *launch_rules(job))
    rule_filter = RuleFilter(job, rules)
    below = skeletons(space, rule_filter, some(nodes(space, rule_filter).table, seed)).table
    table, _ = memory_policies(space, some(below, seed))
    legal = [~rule.broken(job, table) for rule in rules]
    kept = some(table.take(np.all(legal, axis=0)), seed)
    return [kept.row(place) for place in range(len(kept))]


@pytest.mark.grid
@pytest.mark.parametrize("runtime", EXPORTERS)
@pytest.mark.parametrize("name", some_cases(MODELS, 8))
def test_every_layout_that_a_search_may_answer_is_exported(name, runtime):
    job = job_of(name, runtime, **OPTIONS[len(name) % len(OPTIONS)])
    try:
        check_able(job)
    except UnsupportedError as error:
        can = able_runtimes(job)
        assert runtime not in can
        others = f"use --runtime {can[0]}" if can else "without launch files"
        assert others in str(error) or "no runtime can" in str(error)
        return
    if runtime not in able_runtimes(job):  # none can: what is answered is a price
        assert not able_runtimes(job)
        return
    for layout in layouts(job, name):
        assert EXPORTERS[runtime](job, layout).runtime == runtime


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_tiles_that_are_not_written_are_refused_by_a_rule_of_the_search(precision):
    job = job_of("gpt-oss-20b", "deepspeed")
    training = job.training.model_copy(update={"precision": precision})
    job = job.model_copy(update={"training": training})
    table = LayoutTable.of([Layout(dp=8, zero_stage=3, tiled_loss=True)])
    broken = [rule.name for rule in launch_rules(job) if rule.broken(job, table)[0]]
    assert broken == (["tiles_weigh_no_losses"] if precision == "fp16" else [])


@pytest.mark.grid
@pytest.mark.parametrize("name", some_cases(MODELS, 8))
def test_the_runtime_of_a_job_that_names_none_is_the_usual_one_where_that_can(name):
    usual = job_of(name, "megatron-lm")
    job, why = runtime_chosen(usual, files=True)
    can = able_runtimes(usual)
    assert job.runtime == (can[0] if can else usual.runtime)
    assert bool(why) == (job.runtime != usual.runtime)


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("gemma2-9b", "megatron-bridge"),
        ("qwen3-30b-a3b", "megatron-zero-bubble"),
        ("qwen2.5-7b", "megatron-zero-bubble"),
        ("llama3.2-1b", "fsdp2"),
        ("gpt-oss-20b", "torchtitan"),
        ("nemotron-3-nano-30b-a3b", "megatron-lm"),
    ],
)
def test_the_answer_of_a_search_is_exported_or_the_search_is_refused(name, runtime):
    job = job_of(name, runtime)
    if runtime not in able_runtimes(job):
        with pytest.raises(UnsupportedError, match="can: use --runtime"):
            search(job)
        return
    answer = search(job, SearchOptions(only_answer=True, top=1, memory_margin=0.0))
    assert not isinstance(answer, Plan) or EXPORTERS[runtime](answer.job, answer.best.layout)


def test_a_setting_of_experts_on_several_ranks_leaves_its_runtime_able():
    check_able(job_of("qwen3-30b-a3b", "torchtitan", moe_dispatcher="deepep"))


@pytest.mark.parametrize(
    ("runtime", "precision", "reason", "can"),
    [
        ("megatron-lm", "bf16", "has no ZeRO\\+\\+", ()),
        ("deepspeed", "bf16", "use --precision fp16", ()),
        ("megatron-lm", "fp16", "has no ZeRO\\+\\+", ("deepspeed", "arctic-training")),
    ],
)
def test_quantised_gradients_are_refused_for_what_is_in_their_way(runtime, precision, reason, can):
    job = job_of("llama3.2-1b", runtime, gradient_bits=4)
    training = job.training.model_copy(update={"precision": precision})
    job = job.model_copy(update={"training": training})
    assert re.search(reason, unwritten(job))
    assert able_runtimes(job) == can
