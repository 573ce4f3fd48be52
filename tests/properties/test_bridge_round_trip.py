"""What is exported to Megatron-Bridge and read again is the same job and the same layout."""

import pytest

from tests.properties.megatron_exports import OWN, PRESETS, check_same, exports, random_job
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes import EXPORTERS, Request
from trainplan.planner.runtimes.megatron_bridge.read import MEGATRON_BRIDGE
from trainplan.planner.shell import COMMAND_LINE, Launch, Word


def launch_of(config):
    words = [f"{one.flag}={one.values[0]}" for one in config.arguments]
    return Launch(
        "torchrun",
        Word(config.entry_point.module, COMMAND_LINE),
        is_module=True,
        arguments=tuple(Word(word, COMMAND_LINE) for word in words),
        environment={one.name: Word(one.value, COMMAND_LINE) for one in config.environment},
    )


def bridge_job(model, random):
    return random_job(model, random).model_copy(update={"runtime": "megatron-bridge"})


@pytest.mark.parametrize("name", [*OWN, *PRESETS])
def test_an_export_reads_back_as_what_it_was_made_of(name):
    for job, layout, config in exports(name, bridge_job):
        launch = launch_of(config)
        assert MEGATRON_BRIDGE.recognises(launch)
        reading = MEGATRON_BRIDGE.read(launch, Request(cluster=job.cluster, model=job.model))
        check_same(reading, job, layout)
        assert reading.job.cluster == job.cluster
        assert reading.job.runtime == "megatron-bridge"


@pytest.mark.parametrize("modules", [("all",), ("q", "v"), ("gate", "up", "down")])
def test_adapters_of_an_exported_recipe_are_read_back(make_job, modules):
    job = make_job("llama3-8b", "1x8:h100-sxm", 64, 4096)
    trained = {"trained": {"method": "lora", "rank": 8, "modules": modules}}
    model = ModelSpec.model_validate(job.model.model_dump() | trained)
    job = job.model_copy(update={"runtime": "megatron-bridge", "model": model})
    config = EXPORTERS["megatron-bridge"](job, Layout(dp=8))
    request = Request(
        cluster=job.cluster,
        model=job.model.model_copy(update={"trained": None}),
        text_of={file.name: file.text for file in config.files}.get,
    )
    assert MEGATRON_BRIDGE.read(launch_of(config), request).job.model.trained == model.trained
