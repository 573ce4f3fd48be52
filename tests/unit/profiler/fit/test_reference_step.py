"""The step of training by which a profile is judged."""

from trainplan.costmodel.calibration.machine import Measured
from trainplan.costmodel.profiles.profile import Origin, Profile
from trainplan.costmodel.spec.base import Sourced
from trainplan.profiler.fit.reference_step import step_coverage


def test_nodes_that_nobody_knows_the_network_of_are_judged_by_one_of_them():
    def step(**known):
        measured = Profile(
            gpu="l4", num_nodes=2, gpus_per_node=8, origins=(Origin(source="a test"),), **known
        )
        return step_coverage(measured, Measured(profile=measured)).step

    assert step().endswith("tp=8, dp=1")
    assert step(nic_gb_per_s=Sourced(value=3.0, source="a test")).endswith("tp=8, dp=2")
