"""A launch that starts, with any line taken out, is never called illegal for what that line states.

Held for every runtime whose exports are read: an option, a key, a variable or a count goes; what is
left may be unread or without a price, but no verdict rests on what nobody read.
"""

import json
from dataclasses import replace
from itertools import islice

import pytest

from tests import torchtitan_jobs, training_scripts
from tests.grids import number, some_cases
from tests.launches import launch_of, word
from tests.properties.megatron_exports import OWN, PRESETS, exports, random_job
from tests.properties.test_bridge_round_trip import launch_of as bridge_launch_of
from tests.properties.test_zero_bubble_round_trip import zero_bubble_job
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import EXPORTERS, READERS, Request

FEW = number(1, by_night=6)
"""Exports of each model; every line of each goes once."""


def groups(words):
    """Each option with its values; of `KEY=VALUE` each word."""
    group = []
    for one in words:
        if group and (one.text.startswith("--") or not group[0].text.startswith("--")):
            yield tuple(group)
            group = []
        group.append(one)
    if group:
        yield tuple(group)


def shorter(launch):
    """The launch without each line, and what that line said."""
    every = tuple(groups(launch.arguments))
    for place, group in enumerate(every):
        rest = tuple(one for other, g in enumerate(every) if other != place for one in g)
        yield " ".join(one.text for one in group), replace(launch, arguments=rest)
    for name in launch.environment:
        left = {other: text for other, text in launch.environment.items() if other != name}
        yield f"export {name}", replace(launch, environment=left)
    for count in ("nodes", "gpus_per_node", "ranks"):
        if getattr(launch, count) is not None:
            yield count, replace(launch, **{count: None})


def reader(runtime):
    return next(one for one in READERS if one.runtime == runtime)


def check(runtime, launch, request):
    """Whole it starts; without any of its lines nothing is called illegal."""
    read = reader(runtime).read
    if read(launch, request).legal is not True:
        return
    for line, less in shorter(launch):
        wrong = [p for p in read(less, request).problems if p.verdict == "illegal"]
        assert not wrong, (line, wrong)


def placed(launch, cluster):
    (group,) = cluster.groups
    nodes, gpus = word(str(group.num_nodes)), word(str(group.gpus_per_node))
    return replace(launch, nodes=nodes, gpus_per_node=gpus)


@pytest.mark.parametrize("name", some_cases([*OWN, *PRESETS], 5))
def test_a_line_less_of_megatron(name):
    for job, _, config in islice(exports(name, random_job), FEW):
        launch = placed(launch_of(config), job.cluster)
        check("megatron-lm", launch, Request())


def of_runtime(runtime):
    def jobs(model, random):
        return random_job(model, random).model_copy(update={"runtime": runtime})

    return jobs


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-70b"])
def test_a_line_less_of_zero_bubble(name):
    for job, _, config in islice(exports(name, zero_bubble_job), FEW):
        check("megatron-zero-bubble", placed(launch_of(config), job.cluster), Request())


@pytest.mark.parametrize(
    "name", some_cases(["dense", "mixtral", "llama3.1-70b", "qwen3-30b-a3b"], 2)
)
def test_a_line_less_of_a_recipe(name):
    for job, _, config in islice(exports(name, of_runtime("megatron-bridge")), FEW):
        launch = placed(bridge_launch_of(config), job.cluster)
        check("megatron-bridge", launch, Request(cluster=job.cluster, model=job.model))


LAYOUTS = (
    Layout(dp=16, zero_stage=3, micro_batch_size=2),
    Layout(dp=8, tp=2, zero_stage=3),
    Layout(dp=8, cp=2, zero_stage=3),
    Layout(dp=4, tp=2, pp=2, sequence_parallel=True, zero_stage=3),
    Layout(
        dp=16, zero_stage=1, recompute="full", recompute_method="uniform", recompute_num_layers=1
    ),
    Layout(dp=4, dp_replicate=2, tp=4, zero_stage=3),
)


def written(runtime, model):
    """Exports of the layouts that a runtime writes."""
    training = TrainingSpec(seq_length=4096, global_batch_size=64)
    job = Job(
        model=preset(model),
        training=training,
        cluster=parse_cluster("2x8:h100-sxm"),
        runtime=runtime,
    )
    for layout in LAYOUTS:
        try:
            yield job, EXPORTERS[runtime](job, layout)
        except PlanError:
            continue


def without_a_line(text):
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        yield line.strip(), "".join(lines[:place] + lines[place + 1 :])


@pytest.mark.parametrize("model", ["llama3-8b", "qwen3-30b-a3b"])
def test_a_line_less_of_torchtitan(model):
    for job, config in written("torchtitan", model):
        launch, request = torchtitan_jobs.launch_of(config, job.cluster)
        check("torchtitan", launch, request)
        for file in config.files:
            for line, text in without_a_line(file.text):
                files = {**{f.name: f.text for f in config.files}, file.name: text}
                found = reader("torchtitan").read(launch, replace(request, text_of=files.get))
                wrong = [p for p in found.problems if p.verdict == "illegal"]
                assert not wrong, (line, wrong)


def without_a_key(text):
    config = json.loads(text)

    def less(value):
        for name in value:
            rest = {other: one for other, one in value.items() if other != name}
            yield name, rest
            if isinstance(value[name], dict):
                for inner, one in less(value[name]):
                    yield f"{name}.{inner}", {**value, name: one}

    for name, rest in less(config):
        yield name, json.dumps(rest)


@pytest.mark.parametrize("runtime", ["deepspeed", "accelerate"])
def test_a_line_less_of_a_training_script(runtime):
    for job, config in written(runtime, "llama3-8b"):
        launch, request = training_scripts.launch_of(config, job)
        check(runtime, launch, request)
        for file in config.files:
            edited = without_a_key if file.name.endswith(".json") else without_a_line
            for line, text in edited(file.text):
                files = {**{f.name: f.text for f in config.files}, file.name: text}
                found = reader(runtime).read(launch, replace(request, text_of=files.get))
                wrong = [p for p in found.problems if p.verdict == "illegal"]
                assert not wrong, (line, wrong)
