"""Groups in a node whose members are not next to each other: measured, fitted, priced, told of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.machine import Measured, machine_for
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.comm.topology import link_speed
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.machine.hardware import STRIDES, curve_name, stride_column
from trainplan.costmodel.profiles.profile import CollectivePoint, Origin, Profile, Timing
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import notes
from trainplan.profiler.bench.collectives import collective_tasks, message_tasks, partner
from trainplan.profiler.bench.inputs.groups import Shape, strided_shapes
from trainplan.profiler.fit.coverage import coverage
from trainplan.profiler.fit.points import fitted
from trainplan.profiler.launch.requests import request_for
from trainplan.profiler.task import Place

NODE = "1x8:h100-sxm"
REPLICAS = Layout(tp=2, dp=4, sequence_parallel=True, zero_stage=1)
STAGES = Layout(tp=4, pp=2, sequence_parallel=True)
SIZES = (2**16, 2**20, 2**24, 2**28)


def points(operation, ranks, stride=1, slowness=1.0):
    """A start and a bandwidth, with an odd size in the middle."""
    return [
        CollectivePoint(
            operation=operation,
            ranks=ranks,
            per_node=ranks,
            stride=stride,
            num_bytes=size,
            time=Timing(seconds=slowness * (2e-5 + size / 1e11) * (1 + (size == 2**20) / 10)),
        )
        for size in SIZES
    ]


def neighbours():
    return [one for ranks in (2, 4) for one in apart(ranks, 1, 1.0)]


def apart(ranks, stride, slowness=5.0):
    return [
        point
        for operation in ("all_gather", "reduce_scatter")
        for point in points(operation, ranks, stride, slowness)
    ]


def profile(*found):
    bare = Profile(
        gpu="h100-sxm", gpus_per_node=8, origins=(Origin(source="a test"),), points=found
    )
    return fitted(bare, catalog.gpu("h100-sxm"))


def place(rank=0, processes=8):
    return Place("cuda", rank, processes, rank, processes)


@pytest.fixture
def job(make_job):
    return make_job("small-dense", NODE)


@pytest.fixture
def seconds(job):
    """(profile, ranks, stride) -> seconds of an all-gather of 1 MiB."""

    def stated(measured, ranks, stride):
        machine = machine_for(job, Measured(profile=measured))
        links = group(machine, np.array([ranks]), np.array([stride]))
        return float(collective_seconds(machine, "all_gather", np.array([2.0**20]), links)[0])

    return stated


def test_a_strided_group_takes_what_was_measured_of_its_stride(seconds):
    found = profile(*neighbours(), *apart(2, 2, 5.0), *apart(2, 4, 7.0))
    near = seconds(found, 2, 1)
    assert seconds(found, 2, 2) == pytest.approx(5 * near, rel=0.15)
    assert seconds(found, 2, 4) == pytest.approx(7 * near, rel=0.15)


def test_without_measured_strides_a_group_costs_what_its_neighbours_do(seconds):
    found = profile(*neighbours())
    for ranks, stride in ((2, 2), (2, 4), (4, 2)):
        assert seconds(found, ranks, stride) == seconds(found, ranks, 1)


def test_a_stride_nobody_measured_takes_the_nearest_below(seconds):
    found = profile(*neighbours(), *apart(2, 2))
    assert seconds(found, 2, 4) == seconds(found, 2, 3) == seconds(found, 2, 2)
    assert seconds(found, 4, 2) == seconds(found, 4, 1)


def test_slow_strided_links_slow_replicas_and_not_tensor_groups(job):
    near = estimate(job, REPLICAS, Measured(profile=profile(*neighbours()))).terms
    far = estimate(job, REPLICAS, Measured(profile=profile(*neighbours(), *apart(4, 2)))).terms
    assert far.dp_comm > 1.5 * near.dp_comm
    assert far.tp_comm == near.tp_comm


def test_messages_between_stages_take_the_links_of_their_distance(job):
    links = [*neighbours(), *points("p2p", 2), *points("p2p", 2, stride=2, slowness=2.0)]
    near, far = profile(*links), profile(*links, *points("p2p", 2, stride=4, slowness=5.0))
    speeds = link_speed(machine_for(job, Measured(profile=far)), np.array([1, 2, 4]))
    assert speeds[0] / speeds == pytest.approx([1, 2, 5], rel=0.01)
    terms = [estimate(job, STAGES, Measured(profile=one)).terms for one in (near, far)]
    assert terms[1].p2p > terms[0].p2p


def test_a_curve_is_named_by_its_shape():
    found = [one for stride in (1, 4) for one in points("all_reduce", 2, stride, stride)]
    curves = profile(*found, *points("p2p", 2), *points("p2p", 2, 4)).fitted.collectives
    assert list(curves) == ["all_reduce_2", "all_reduce_2_stride_4", "p2p_2", "p2p_2_stride_4"]
    assert curves["all_reduce_2_stride_4"].bus_gb_per_s < curves["all_reduce_2"].bus_gb_per_s


@pytest.mark.parametrize("stride", [2, 3, 8])
def test_messages_measured_at_one_distance_stand_for_all(job, stride):
    machine = machine_for(job, Measured(profile=profile(*points("p2p", 2, stride))))
    speeds = link_speed(machine, np.array([1, 2, 4]))
    assert speeds == pytest.approx([100e9] * 3, rel=0.1)


@pytest.mark.parametrize(
    ("more", "kind", "counted"), [((), "assumed", 0), (apart(4, 2), "measured", 8)]
)
def test_doctor_says_whether_strided_groups_were_measured(job, more, kind, counted):
    found = profile(*neighbours(), *more)
    provenance = machine_for(job, Measured(profile=found)).provenance
    terms = estimate(job, REPLICAS, Measured(profile=found)).terms
    known = {one.quantity.name: one for one in coverage(found, provenance, terms, 1.0)}
    assert known["strided groups"].kind == kind
    assert known["strided groups"].points == counted
    assert known["collectives in a node"].kind == "measured"
    assert known["collectives in a node"].points == len(neighbours())
    written = [note for note in notes(job, Measured(profile=found)) if "strided" in note]
    assert bool(written) == (kind == "assumed")


@pytest.mark.parametrize("found", [(), points("all_reduce", 2)])
def test_a_node_without_strided_groups_says_nothing_of_them(job, found):
    provenance = machine_for(job, Measured(profile=profile(*found))).provenance
    assert not [one for one in provenance if "strided" in one.quantity]


def test_a_node_of_eight_has_three_sorts_of_strided_groups():
    shapes = {(one.ranks, one.stride) for one in strided_shapes(place())}
    assert shapes == {(2, 2), (2, 4), (4, 2)}
    assert not list(strided_shapes(place(processes=2)))


@given(st.integers(2, 16))
def test_every_rank_is_in_one_group_of_each_strided_shape(processes):
    for shape in strided_shapes(place(processes=processes)):
        groups = [shape.members(place(rank, processes)) for rank in range(processes)]
        assert all(rank in members for rank, members in enumerate(groups))
        assert sorted(rank for members in set(groups) for rank in members) == list(range(processes))


@given(st.integers(2, 16), st.sampled_from(STRIDES))
def test_partners_are_a_stride_apart_and_partners_of_each_other(processes, stride):
    shape = Shape(2, 2, stride)
    partners = [partner(shape, place(rank, processes)) for rank in range(processes)]
    for rank, other in enumerate(partners):
        if other is not None:
            assert abs(other - rank) == stride
            assert partners[other] == rank


def keys(*, quick):
    request = request_for(None, "cuda", 8, quick=quick)
    tasks = (*collective_tasks(request, place()), *message_tasks(request, place()))
    return [task.key for task in tasks]


def test_strided_groups_are_measured_in_a_whole_run_alone():
    whole, quick = keys(quick=False), keys(quick=True)
    assert "all_reduce ranks=4 per_node=4 stride=2 bytes=8192" in whole
    assert "p2p ranks=2 per_node=2 stride=4 bytes=8192" in whole
    assert not [key for key in quick if "stride=1" not in key]
    assert len(set(whole)) == len(whole)


def test_names_of_neighbours_stay_as_they_were():
    assert curve_name("all_reduce", 8) == "all_reduce_8"


@given(st.integers(1, 100))
def test_a_point_is_of_the_curve_its_groups_are_priced_by(stride):
    column = int(stride_column(np.array([stride]))[0])
    assert curve_name("all_gather", 2, stride) == curve_name("all_gather", 2, STRIDES[column])
