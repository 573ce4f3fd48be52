"""A layout too large for long sequences is told the tiles that make it fit."""

from trainplan.costmodel.hardware.cluster import HostSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.planner.cases.case import Case
from trainplan.planner.comparisons.neighbours import nearest_fitting
from trainplan.planner.questions.best_plan import SearchOptions

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def case_of(make_job, seq_length, host=None):
    job = make_job("llama3.1-8b", "1x8:h100-sxm", 8, seq_length)
    job = job.model_copy(update={"runtime": "deepspeed"})
    group = job.cluster.groups[0].model_copy(update={"host": host})
    cluster = job.cluster.model_copy(update={"groups": (group,)})
    return Case(job.model_copy(update={"cluster": cluster}), SearchOptions())


def test_a_tiled_loss_is_one_change_away(make_job):
    layout = Layout(**FULL, dp=8, zero_stage=3, offload=OffloadSpec(optimizer=1.0))
    found = [one.layout for one in nearest_fitting(case_of(make_job, 64_000), layout)]
    assert layout.model_copy(update={"tiled_loss": True}) in found


def test_no_change_is_told_that_host_memory_does_not_hold(make_job):
    layout = Layout(**FULL, dp=8, zero_stage=3, offload=OffloadSpec(optimizer=1.0))
    small = case_of(make_job, 64_000, HostSpec(memory_gib=64))
    offloaded = [one.layout.offload.optimizer for one in nearest_fitting(small, layout)]
    assert 1.0 not in offloaded
