"""What is exported to the zero-bubble fork and read again is the same job and the same layout."""

from random import Random

import pytest

from tests.attack.layouts import Changes
from tests.launches import launch_of
from tests.properties.test_megatron_round_trip import LAYOUTS, layouts, plain, price
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.catalog.models import preset
from trainplan.costmodel.spec import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.spec.cluster import parse_cluster
from trainplan.planner.exporters import EXPORTERS
from trainplan.planner.readers import READERS, Asked
from trainplan.planner.readers.megatron_zero_bubble import MEGATRON_ZERO_BUBBLE


def random_job(model, random):
    options = RuntimeOptions(
        attention=random.choice((None, "flash")), dropout=random.choice((None, False))
    )
    training = TrainingSpec(
        seq_length=1024, global_batch_size=96, precision=random.choice(("bf16", "fp16"))
    )
    return Job(
        model=model,
        training=training,
        cluster=parse_cluster(random.choice(("4x8:h100-sxm", "1x12:h100-sxm"))),
        options=options,
        runtime="megatron-zero-bubble",
    )


@pytest.mark.parametrize("name", ["llama2-7b", "llama2-13b", "llama3-70b"])
def test_an_export_reads_back_as_what_it_was_made_of(name):
    random, model = Random(name), preset(name)
    checked, schedules = 0, set()
    while checked < 2 * LAYOUTS:
        job = random_job(model, random)
        for layout in layouts(job, Changes(job, random), random):
            try:
                config = EXPORTERS["megatron-zero-bubble"](job, layout)
            except PlanError:  # what no option says is refused by name
                continue
            launch = launch_of(config)
            assert next(one.runtime for one in READERS if one.recognises(launch)) == job.runtime
            reading = MEGATRON_ZERO_BUBBLE.read(launch, Asked(cluster=job.cluster, model=model))
            checked += 1
            schedules.add(layout.schedule)
            assert reading.legal, reading.problems
            assert reading.layout == plain(layout, job)
            assert reading.job.model == model
            tokens = {"tokens": reading.job.training.tokens}
            assert reading.job.training == job.training.model_copy(update=tokens)
            assert price(reading.job, layout) == price(job, layout)
    assert {"1f1b", "interleaved", "zb-1p", "zb-2p"} <= schedules
