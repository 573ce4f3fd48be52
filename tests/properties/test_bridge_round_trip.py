"""What is exported to Megatron-Bridge and read again is the same job and the same layout."""

import pytest

from tests.properties.megatron_exports import OWN, PRESETS, check_same, exports, random_job
from trainplan.planner.runtimes import Request
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
