"""A GPU that the catalogue does not know, such as a measured one."""

import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.catalog.entries import gpu
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.step import price


@pytest.mark.parametrize("model", ["small-dense", "small-moe", "small-seeing"])
def test_a_gpu_that_the_cluster_describes_takes_as_long_as_the_same_of_the_catalogue(
    make_job, model
):
    named = make_job(model, "1x4:h100-sxm", 8)
    nodes = named.cluster.groups[0].model_copy(update={"device": gpu("h100-sxm")})
    described = named.model_copy(
        update={"cluster": named.cluster.model_copy(update={"groups": (nodes,)})}
    )
    table = LayoutTable.of([Layout(dp=4)])
    one, other = (
        price(context_of(job, machine_of(job.cluster, "bf16")).with_table(table)).step_seconds
        for job in (named, described)
    )
    assert one == other
