"""What is exported to Megatron-LM and read again is the same job and the same layout."""

import pytest

from tests.launches import launch_of
from tests.properties.megatron_exports import OWN, PRESETS, check_same, exports, random_job
from trainplan.planner.readers import Asked
from trainplan.planner.readers.megatron_lm import MEGATRON_LM


@pytest.mark.parametrize("name", [*OWN, *PRESETS])
def test_an_export_reads_back_as_what_it_was_made_of(name):
    for job, layout, config in exports(name, random_job):
        reading = MEGATRON_LM.read(launch_of(config), Asked(cluster=job.cluster, model=job.model))
        check_same(reading, job, layout)
        assert reading.job.cluster == job.cluster
        assert all(problem.verdict != "ignored" for problem in reading.problems)
