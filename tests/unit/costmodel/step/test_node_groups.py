"""Pipeline ranks in node groups: what is legal, what it costs, how it is written."""

from dataclasses import astuple

import numpy as np
import pytest

from trainplan.cli.values.layout_text import parse_layout
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.hardware.cluster import BetweenGroups, parse_cluster
from trainplan.costmodel.layout.codecs import stages_text
from trainplan.costmodel.layout.layout import Layout, StageSpec, stage_specs
from trainplan.costmodel.layouts.table import LayoutTable, evenly
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.pipeline.node_groups import in_groups, is_heterogeneous
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step.group_links import group_link_seconds
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.documents import layout_from_json, layout_json
from trainplan.planner.questions import estimate

ALIKE = "2x8:h100-sxm+2x8:h100-sxm"
UNLIKE = "2x8:h100-sxm+2x8:a100-sxm-80gb"
ETHERNET = BetweenGroups(gb_per_s=3.125)


def stages(layers, groups):
    return tuple(StageSpec(layers=n, group=g) for n, g in zip(layers, groups, strict=True))


def layout(layers=(2, 1, 1, 2), groups=(0, 0, 1, 1), **more):
    degrees = {"tp": 2, "pp": 4, "dp": 4, "sequence_parallel": True}
    return Layout(**{**degrees, **more}, stages=stages(layers, groups))


@pytest.fixture
def on(make_job):
    def make(text, between=None):
        cluster = parse_cluster(text).model_copy(update={"between_groups": between})
        return make_job("small-dense", text).model_copy(update={"cluster": cluster})

    return make


def test_two_equal_groups_price_as_one_group(on):
    one, two = on("4x8:h100-sxm"), on(ALIKE)
    whole = estimate(one, layout().model_copy(update={"stages": stage_specs((2, 1, 1, 2))}))
    parts = estimate(two, layout())
    assert parts.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert parts.lower_bound_s == pytest.approx(whole.lower_bound_s, rel=1e-9)
    assert astuple(parts.terms) == pytest.approx(astuple(whole.terms), rel=1e-9)
    assert parts.memory.pipeline_ranks == whole.memory.pipeline_ranks


def test_the_terms_of_unlike_groups_sum_to_the_step(on):
    found = estimate(on(UNLIKE, ETHERNET), layout((2, 2, 1, 1)))
    assert sum(astuple(found.terms)) == pytest.approx(found.step_time_s, rel=1e-9)
    assert found.lower_bound_s <= found.step_time_s * (1 + 1e-9)


def test_layers_belong_on_the_faster_group(on):
    job = on(UNLIKE)
    fast = estimate(job, layout((2, 2, 1, 1))).step_time_s
    slow = estimate(job, layout((1, 1, 2, 2))).step_time_s
    assert fast < slow


def test_a_thin_join_is_paid_by_stages_that_straddle(on):
    apart, together = layout(), layout(groups=(0, 0, 0, 0))
    free, thin = on(ALIKE), on(ALIKE, ETHERNET)
    assert estimate(free, together).step_time_s == estimate(free, apart).step_time_s
    assert estimate(thin, together).step_time_s > estimate(thin, apart).step_time_s
    assert estimate(thin, apart).step_time_s > estimate(free, apart).step_time_s


def test_memory_is_that_of_each_group(on):
    job = on("2x8:h100-sxm+2x8:a100-sxm-40gb")
    memory = estimate(job, layout()).memory
    smallest = machine_of(parse_cluster("2x8:a100-sxm-40gb"), "bf16").memory_bytes
    assert memory.capacity_bytes == smallest
    assert memory.peak_reserved_bytes <= max(r.total_bytes for r in memory.pipeline_ranks)


@pytest.mark.parametrize(
    "groups", [(0, 1, 0, 1), (0, 0, 0, 1), (0, 0, 1, 2), (1, 1, 1, 1)], ids=str
)
def test_ranks_that_do_not_fill_the_groups_in_turn_are_refused(on, groups):
    with pytest.raises(SpecError, match="stages_live_in_groups"):
        estimate(on(UNLIKE), layout(groups=groups))


def test_chunks_of_a_rank_live_in_one_group(on):
    with pytest.raises(SpecError, match="stages_live_in_groups"):
        layers, groups = (0, 1, 1, 1, 1, 1, 1, 0), (0, 0, 1, 1, 1, 1, 0, 0)
        estimate(on(UNLIKE), layout(layers, groups, vpp=2, schedule="interleaved"))


def test_a_node_shares_its_adapter_among_the_gpus_that_send(on):
    job = on(UNLIKE, ETHERNET)
    machine, traits = machine_for(job), traits_of(job)
    rows = LayoutTable.of([layout(), layout(dp=2, pp=8, layers=(1,) * 6 + (0, 0), groups=(0,) * 8)])
    half = LayoutTable.of([layout(tp=1, dp=4, pp=8, layers=(0,) * 8, groups=(0,) * 8)])
    _, wire = group_link_seconds(Candidates(job, machine, traits, rows), (0, 1))
    _, less = group_link_seconds(Candidates(job, machine, traits, half), (0, 1))
    assert wire[1] == pytest.approx(wire[0] / 2)
    assert less[0] == pytest.approx(wire[0])


def test_a_straddling_collective_counts_the_join():
    free = parse_cluster(ALIKE)
    thin = free.model_copy(update={"between_groups": ETHERNET})
    assert machine_of(thin, "bf16").nic_bytes_per_second == pytest.approx(3.125e9 / 8)
    assert machine_of(free, "bf16").nic_bytes_per_second > 10e9
    assert is_heterogeneous(thin)
    assert not is_heterogeneous(free)


def test_a_table_of_both_kinds_prices_like_its_rows(on):
    job = on(UNLIKE, ETHERNET)
    rows = [layout(), layout(groups=(0, 0, 0, 0)), layout(groups=(1, 1, 0, 0))]
    machine, traits = machine_for(job), traits_of(job)
    found = step_seconds(Candidates(job, machine, traits, LayoutTable.of(rows)))
    assert found.tolist() == [estimate(job, row).step_time_s for row in rows]


def test_groups_survive_text_and_json(on):
    job = on(UNLIKE)
    text = "tp=2,pp=4,dp=4,sp=true,stages=2@0+1@0+1@1+2@1"
    read = parse_layout(text, job.cluster)
    assert read == layout()
    assert stages_text(read.stages) == "2@0+1@0+1@1+2@1"
    assert layout_from_json(layout_json(job, read)) == read
    even = layout((2, 2, 1, 1)).model_copy(update={"stages": stages((1, 2, 2, 1), (0, 0, 1, 1))})
    assert layout_from_json(layout_json(job, even)) == even


def test_an_even_split_is_even_wherever_its_stages_live(on):
    table = LayoutTable.of([layout((1, 2, 2, 1)), layout((2, 2, 1, 1))])
    assert evenly(table).tolist() == [True, False]
    assert in_groups(table).all()
    assert np.all(~in_groups(LayoutTable.of([layout(groups=(0, 0, 0, 0))])))


def test_a_plan_for_the_slowest_group_counts_the_peak_of_every_gpu_too(on):
    job = on(UNLIKE)
    both = [estimate(job, row) for row in (layout(), layout(groups=(0, 0, 0, 0)))]
    work = [one.mfu * one.step_time_s for one in both]
    assert work[0] == pytest.approx(work[1])
    assert both[0].mfu == pytest.approx(both[0].tflops_per_gpu / ((989 + 312) / 2), rel=1e-3)
