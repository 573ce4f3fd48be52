"""What is exported to the zero-bubble fork and read again is the same job and the same layout."""

from itertools import chain

from tests.grids import number
from tests.launches import launch_of
from tests.properties.megatron_exports import check_same, exports
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.megatron_zero_bubble.read import MEGATRON_ZERO_BUBBLE

MADE = number(40, by_night=96)
"""Launches of each model, at least."""


def zero_bubble_job(model, random):
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


def test_an_export_reads_back_as_what_it_was_made_of():
    schedules, models = set(), ("llama2-7b", "llama2-13b", "llama3-70b")
    for job, layout, config in chain(*(exports(name, zero_bubble_job, MADE) for name in models)):
        launch = launch_of(config)
        assert next(one.runtime for one in READERS if one.recognises(launch)) == job.runtime
        reading = MEGATRON_ZERO_BUBBLE.read(launch, Request(cluster=job.cluster, model=job.model))
        schedules.add(layout.schedule)
        check_same(reading, job, layout)
    assert {"1f1b", "interleaved", "zb-1p"} <= schedules
