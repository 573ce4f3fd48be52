"""What is written for the Trainer of transformers comes back; what has no key is refused."""

from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.runtimes.plans import PLANS
from trainplan.cli.values.launches import model_next_to
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.step import price
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS, Request, readers
from trainplan.planner.shell import Host, launches_of_script

EXPORT = EXPORTERS["transformers"]
CASES = [pytest.param(one, id=one.name) for one in PLANS["transformers"]]
LORA = Trained(method="lora", rank=16, modules=("all",))


def settings(config):
    (text,) = (file.text for file in config.files if file.name == "train.yaml")
    return yaml.safe_load(text)


def read(config, cluster):
    files = {file.name: file.text for file in config.files}
    way = LAUNCHERS["torchrun"]
    script = way.write(config, cluster)
    host = Host(read=lambda path: files.get(Path(path).name))
    launch = launches_of_script(script, way.file, {}, host)[-1]
    reader = next(one for one in readers() if one.recognises(launch))
    return reader.read(
        launch,
        Request(
            cluster=cluster,
            text_of=lambda path: files.get(Path(path).name),
            model_of=partial(model_next_to, Path()),
        ),
    )


def seconds(job, layout):
    context = context_of(job, machine_for(job))
    return price(context.with_table(LayoutTable.of([layout]))).step_seconds[0]


def comes_back(job, layout):
    reading = read(EXPORT(job, layout), job.cluster)
    assert reading.runtime == "transformers"
    assert reading.layout == layout
    assert reading.legal
    assert reading.job is not None
    for name in ("model", "training", "options"):
        assert getattr(reading.job, name) == getattr(job, name)
    assert seconds(reading.job, reading.layout) == seconds(job, layout)


@pytest.mark.parametrize("plan", CASES)
def test_a_plan_comes_back_to_the_last_digit(plan):
    comes_back(plan.job("transformers"), plan.layout)


def job_of(make_job, model="llama3.1-8b", gpus=4, trained=None, **training):
    job = make_job(model, f"1x{gpus}:h100-sxm", 16, **training)
    model = job.model.model_copy(update={"trained": trained})
    return job.model_copy(update={"runtime": "transformers", "model": model})


@pytest.mark.parametrize(
    ("states", "layout"),
    [
        ("o0", {"dp": 4, "zero_stage": 0}),
        ("bf16", {"dp": 4, "zero_stage": 0}),
        ("o0", {"dp": 4, "zero_stage": 3}),
    ],
)
def test_adapters_come_back_with_their_states(make_job, states, layout):
    job = job_of(make_job, trained=LORA, state_precision=states)
    comes_back(job, Layout(**layout))
    written = settings(EXPORT(job, Layout(**layout)))
    assert written["lora_r"] == 16
    assert written["dtype"] == "bfloat16"
    paged = states == "o0" and not layout["zero_stage"]
    assert (written["optim"] == "paged_adamw_32bit") == paged


def test_galore_names_its_matrices_and_no_table(make_job):
    job = job_of(make_job, optimizer="galore:rank=128,update=step")
    written = settings(EXPORT(job, Layout(dp=4, zero_stage=0)))
    assert written["optim"] == "galore_adamw"
    assert written["optim_args"].startswith("rank=128,")
    assert written["optim_target_modules"] == [
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    ]
    one = job_of(make_job, gpus=1, optimizer="apollo:rank=128")
    alone = settings(EXPORT(one, Layout(micro_batch_size=16, zero_stage=0)))
    assert alone["optim"] == "apollo_adamw_layerwise"


@pytest.mark.parametrize(
    ("job", "layout", "says"),
    [
        ({"trained": LORA, "state_precision": "bf16"}, {"dp": 4, "zero_stage": 3}, "adapters are"),
        (
            {"model": "gpt3-6.7b", "optimizer": "apollo-mini"},
            {"dp": 4, "zero_stage": 0},
            "names of",
        ),
        ({"precision": "fp16"}, {"dp": 4, "zero_stage": 3}, "fp32 and tf32"),
        ({}, {"dp": 2, "pp": 2, "zero_stage": 3}, "pp"),
        ({}, {"dp": 4, "zero_stage": 0}, "state_precision bf16"),
    ],
)
def test_what_has_no_key_is_refused_by_name(make_job, job, layout, says):
    made = job_of(make_job, **job)
    if job.get("model") == "gpt3-6.7b":
        model = made.model.model_copy(update={"model_type": "gpt2"})
        made = made.model_copy(update={"model": model})
    with pytest.raises(UnsupportedError, match=says):
        EXPORT(made, Layout(**layout))


def test_a_mesh_of_other_ranks_is_illegal_and_so_is_an_unknown_key(make_job):
    job, layout = job_of(make_job), Layout(dp=4, zero_stage=3)
    config = EXPORT(job, layout)
    other = job_of(make_job, gpus=2)
    reading = read(config, other.cluster)
    assert [one.cause for one in reading.problems if one.verdict == "illegal"] == ["world_size"]
    files = tuple(
        type(one)(one.name, one.text.replace("max_steps:", "max_stepz:"), one.filled_in)
        for one in config.files
    )
    reading = read(type(config)(**{**vars_of(config), "files": files}), job.cluster)
    assert [one.cause for one in reading.problems if one.verdict == "illegal"] == ["unknown_key"]


def vars_of(config):
    return {name: getattr(config, name) for name in type(config).__dataclass_fields__}


def test_a_size_of_buckets_is_the_trainers_and_a_whole_number(make_job):
    layout = Layout(dp=4, zero_stage=0)
    job = job_of(make_job, state_precision="bf16")
    for size in (100, 12.5):
        options = job.options.model_copy(update={"bucket_mb": size})
        sized = job.model_copy(update={"options": options})
        if size == 100:
            assert settings(EXPORT(sized, layout))["ddp_bucket_cap_mb"] == 100
            comes_back(sized, layout)
        else:
            with pytest.raises(UnsupportedError, match="whole number of MiB"):
                EXPORT(sized, layout)
