"""What is exported to Megatron-Bridge and read again is the same job and the same layout."""

from random import Random

import pytest

from tests.attack.layouts import Changes
from tests.properties.test_megatron_round_trip import (
    LAYOUTS,
    OWN,
    PRESETS,
    layouts,
    plain,
    price,
    random_job,
)
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.catalog.models import preset
from trainplan.planner.exporters import EXPORTERS
from trainplan.planner.readers import COMMAND_LINE, Asked, Launch, Word
from trainplan.planner.readers.megatron_bridge import MEGATRON_BRIDGE


def launch_of(config):
    words = [f"{one.flag}={one.values[0]}" for one in config.arguments]
    return Launch(
        "torchrun",
        Word(config.entry_point.module, COMMAND_LINE),
        is_module=True,
        arguments=tuple(Word(word, COMMAND_LINE) for word in words),
        environment={one.name: Word(one.value, COMMAND_LINE) for one in config.environment},
    )


@pytest.mark.parametrize("name", [*OWN, *PRESETS])
def test_an_export_reads_back_as_what_it_was_made_of(name):
    random, model = Random(name), OWN.get(name) or preset(name)
    checked = 0
    while checked < LAYOUTS:
        job = random_job(model, random).model_copy(update={"runtime": "megatron-bridge"})
        for layout in layouts(job, Changes(job, random), random):
            try:
                config = EXPORTERS["megatron-bridge"](job, layout)
            except PlanError:  # what no key says is refused by name
                continue
            launch = launch_of(config)
            assert MEGATRON_BRIDGE.recognises(launch)
            reading = MEGATRON_BRIDGE.read(launch, Asked(cluster=job.cluster, model=model))
            checked += 1
            assert reading.legal, reading.problems
            assert reading.layout == plain(layout, job)
            assert reading.job.model == model
            assert reading.job.cluster == job.cluster
            assert reading.job.runtime == "megatron-bridge"
            tokens = {"tokens": reading.job.training.tokens}
            assert reading.job.training == job.training.model_copy(update=tokens)
            assert price(reading.job, layout) == price(job, layout), (
                job.options,
                reading.job.options,
            )
