"""What is exported to Megatron-LM and read again is the same job and the same layout."""

import pytest

from tests.launches import launch_of
from tests.properties.megatron_exports import OWN, PRESETS, check_same, exports, random_job
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM, NOT_WRITTEN


def leaves(value, name=""):
    """Fields of a job or layout by their dotted names, as `NOT_SAID` writes them."""
    if not isinstance(value, dict):
        return {name: value}
    return {k: v for key in value for k, v in leaves(value[key], f"{name}.{key}").items()}


def lost(reading, job, layout):
    """Fields that did not come back."""
    before = leaves({**job.model_dump(), "layout": layout.model_dump()})
    after = leaves({**reading.job.model_dump(), "layout": reading.layout.model_dump()})
    return [name for name in before | after if before.get(name) != after.get(name)]


@pytest.mark.parametrize("name", [*OWN, *PRESETS])
def test_an_export_reads_back_as_what_it_was_made_of(name):
    for job, layout, config in exports(name, random_job):
        launch = launch_of(config)
        reading = MEGATRON_LM.read(launch, Request(cluster=job.cluster, model=job.model))
        check_same(reading, job, layout)
        assert reading.job.cluster == job.cluster
        assert all(problem.verdict != "ignored" for problem in reading.problems)


@pytest.mark.parametrize("name", [*OWN, *PRESETS])
def test_what_does_not_come_back_from_a_launch_alone_is_listed(name):
    for job, layout, config in exports(name, random_job):
        reading = MEGATRON_LM.read(launch_of(config), Request(cluster=job.cluster))
        for field in lost(reading, job, layout):
            assert any(f"{field}.".startswith(f".{listed}.") for listed in NOT_WRITTEN), field
