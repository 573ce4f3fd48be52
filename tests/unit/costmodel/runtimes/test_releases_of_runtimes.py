"""Which runtimes the releases of Megatron Core are of."""

import pytest

from trainplan.costmodel.runtimes import traits_of


@pytest.mark.parametrize(
    ("runtime", "stated", "container"),
    [
        ("megatron-lm", None, "26.08"),
        ("megatron-bridge", "nemo:26.02", "26.02"),
        ("nemo", "2026-05", "26.06"),
        ("torchtitan", "26.08", "25.11"),
    ],
)
def test_the_release_is_of_runtimes_on_megatron_core_alone(make_job, runtime, stated, container):
    job = make_job("small-moe", "1x8:h100-sxm").model_copy(
        update={"runtime": runtime, "release": stated}
    )
    assert traits_of(job).host.release.container == container


def test_others_take_the_host_time_that_the_constant_is(make_job):
    job = make_job("small-moe", "1x8:h100-sxm").model_copy(update={"runtime": "torchtitan"})
    assert traits_of(job).host.release.experts == 1
