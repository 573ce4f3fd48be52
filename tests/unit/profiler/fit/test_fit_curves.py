"""Curves through made points; costmodel/machine/test_recorded_curves.py has measured ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.costmodel import catalog
from trainplan.costmodel.comm import bus_factor, collective_seconds, group
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.hardware.gpu import FittedConstants
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.profiles.profile import (
    AttentionPoint,
    CollectivePoint,
    Origin,
    OverlapPoint,
    ProductPoint,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.profiler.fit.curves import (
    LEAST_POINTS,
    attention_flop,
    backward_efficiency,
    fit_attention,
    fit_collective,
    fit_products,
    left_out,
    predict_collective,
    relative_fit,
)
from trainplan.profiler.fit.points import fitted

H100 = catalog.gpu("h100-sxm")
PEAK = H100.peak_tflops["bf16"].value * 1e12
BANDWIDTH = H100.memory_gb_per_s.value * 1e9
SHAPES = [(m, n, k) for m in (512, 2048, 8192) for n in (1024, 4096) for k in (256, 2048, 8192)]
SIZES = [2**power for power in range(12, 31)]
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def product(m, n, k, seconds, **more):
    return ProductPoint(m=m, n=n, k=k, time=Timing(seconds=seconds), **more)


def products(fixed_us=7.0, flop_factor=1.4, byte_factor=0.6, element=2):
    """Points of a GPU that is the curve itself."""

    def seconds(m, n, k):
        moved = element * (m * k + k * n + m * n)
        work = flop_factor * 2 * m * n * k / PEAK
        return fixed_us * 1e-6 + work + byte_factor * moved / BANDWIDTH

    return [product(*shape, seconds(*shape)) for shape in SHAPES]


def collective(size, seconds, operation="all_reduce", ranks=8):
    time = Timing(seconds=seconds)
    return CollectivePoint(
        operation=operation, ranks=ranks, per_node=ranks, num_bytes=size, time=time
    )


def collectives(operation="all_reduce", ranks=8, alpha_us=20.0, bus=200.0, root=2e-9):
    factor = float(bus_factor(operation, np.array(ranks)))
    return [
        collective(
            size,
            alpha_us * 1e-6 + size * factor / (bus * 1e9) + root * size**0.5,
            operation,
            ranks,
        )
        for size in SIZES
    ]


def attentions(efficiency=0.7, half=900.0, start=12e-6, backward=0.8):
    """Forward and backward of a kernel that is the curve itself."""

    def point(length):
        one = AttentionPoint(
            micro_batch_size=1,
            seq_length=length,
            num_heads=32,
            num_key_value_heads=8,
            head_dim=128,
            value_dim=128,
            forward=Timing(seconds=1.0),
        )
        seconds = attention_flop(one) / PEAK * (1 + half / length) / efficiency + start
        times = Timing(seconds=seconds), Timing(seconds=2.5 * seconds / backward)
        return one.model_copy(update={"forward": times[0], "backward": times[1]})

    return [point(length) for length in LENGTHS]


def streams(efficiency=0.8, start=4e-6):
    return [
        StreamPoint(
            name="norm",
            moved_bytes=size,
            time=Timing(seconds=start + size / (efficiency * BANDWIDTH)),
        )
        for size in SIZES
    ]


def profile(*points):
    return Profile(
        gpu="h100-sxm",
        gpus_per_node=8,
        origins=(Origin(source="a test"),),
        points=points,
    )


def slower(point, factor):
    time = point.time.model_copy(update={"seconds": factor * point.time.seconds})
    return point.model_copy(update={"time": time})


def numbers(curve):
    return np.array([value for _, value in curve if isinstance(value, float)])


def test_products_of_a_curve_give_its_constants_back():
    curve = fit_products(products(), H100, "bf16", "here")
    assert numbers(curve) == pytest.approx([7.0, 1.4, 0.6], rel=1e-3)
    assert curve.source == "here"


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "alltoall"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_collectives_of_a_curve_give_its_constants_back(operation, ranks):
    curve, why = fit_collective(collectives(operation, ranks), "here")
    assert why == ""
    assert numbers(curve) == pytest.approx([20.0, 200.0, 2e-9], rel=1e-3)


def test_attention_of_a_curve_gives_its_constants_back():
    points = attentions()
    found = fit_attention(points, PEAK, H100.architecture)
    assert found == pytest.approx((0.7, 900.0, 12e-6), rel=1e-3)
    assert backward_efficiency(points) == pytest.approx(0.8)
    forward_only = [point.model_copy(update={"backward": None}) for point in points]
    assert backward_efficiency(forward_only) is None


def test_streams_of_a_curve_give_its_constants_back():
    constants = fitted(profile(*streams()), H100).constants
    assert constants["elementwise_efficiency"].value == pytest.approx(0.8, rel=1e-3)
    assert constants["launch_seconds"].value == pytest.approx(4e-6, rel=1e-3)


def test_collectives_across_nodes_give_the_bandwidth_of_a_nic_and_a_start():
    nic, grows = 50e9, catalog.constants().inter_node_alpha_per_doubling
    points = [
        collective(
            size, 30e-6 + grows * np.log2(nodes) + factor * size / 8 / (0.8 * nic), ranks=8 * nodes
        ).model_copy(update={"per_node": 8})
        for nodes in (2, 4, 8)
        for factor in [float(bus_factor("all_reduce", np.array(8 * nodes)))]
        for size in SIZES
    ]
    found = fitted(profile(*points), H100)
    assert found.nic_gb_per_s.value == pytest.approx(0.8 * 50, rel=1e-3)
    assert found.constants["inter_node_alpha"].value == pytest.approx(30e-6, rel=1e-3)
    assert "inter_node_alpha_per_doubling" not in found.constants


@pytest.mark.parametrize("operation", ["all_reduce", "alltoall"])
@pytest.mark.parametrize("shape", [(128, 8, 1), (64, 4, 2), (16, 1, 8)])
def test_collectives_of_one_sort_and_shape_across_nodes_tell_the_same_nic(operation, shape):
    """A machine that is as it is modelled, measured by groups of one sort alone."""
    (ranks, per_node, stride), machine = shape, machine_of(parse_cluster("16x8:h100-sxm"), "bf16")
    groups = group(machine, np.array([ranks]), np.array([stride]))
    points = [
        collective(
            size, float(collective_seconds(machine, operation, np.array([size * 1.0]), groups)[0])
        ).model_copy(
            update={"operation": operation, "ranks": ranks, "per_node": per_node, "stride": stride}
        )
        for size in SIZES
    ]
    nic = machine.nic_bytes_per_second * machine.constants.nic_efficiency
    found = fitted(profile(*points), H100).nic_gb_per_s
    assert found.value == pytest.approx(nic / 1e9, rel=0.01)


def test_collectives_over_trays_of_one_scale_up_domain_say_nothing_of_the_nic():
    trays = [
        collective(size, 20e-6 + size / 600e9).model_copy(update={"per_node": 4}) for size in SIZES
    ]
    found = fitted(profile(*trays), catalog.gpu("gb200"))
    assert found.nic_gb_per_s is None
    assert found.fitted.collectives


def test_compute_beside_traffic_gives_its_slowdown():
    points = [
        OverlapPoint(
            operation="all_gather",
            ranks=8,
            num_bytes=2**26,
            compute_slowdown=slowdown,
            communication_slowdown=1.3,
        )
        for slowdown in (1.1, 1.2, 1.9)
    ]
    constants = fitted(profile(*points), H100).constants
    for name in ("fsdp_contention", "overlap_contention"):
        assert constants[name].value == pytest.approx(0.2 * 1.3 / 1.2)
    others = ("alltoall", "p2p", "host_to_device", "device_to_host")
    alongside = [
        points[0].model_copy(update={"operation": name, "compute_slowdown": 9.0}) for name in others
    ]
    assert fitted(profile(*points, *alongside), H100).constants == constants, (
        "that is of FSDP alone"
    )


@pytest.mark.parametrize("factor", [0.5, 3.0, 100.0])
@pytest.mark.parametrize("place", range(18))
def test_one_wild_point_of_many_moves_the_constants_by_less_than_three_percent(place, factor):
    """What disturbs a measurement makes it longer; a relative error judges one far too short by its
    inverse, so a tenth of the true time does bend a curve."""
    points = products()
    points[place] = slower(points[place], factor)
    curve = fit_products(points, H100, "bf16", "")
    assert numbers(curve) == pytest.approx([7.0, 1.4, 0.6], rel=0.03)
    messages = collectives()
    messages[place] = slower(messages[place], factor)
    link, _ = fit_collective(messages)
    assert numbers(link) == pytest.approx([20.0, 200.0, 2e-9], rel=0.03)


@given(data=st.data())
def test_weights_are_never_negative(data):
    count = data.draw(st.integers(3, 12))
    number = st.floats(1e-6, 1e6)
    columns = np.array(data.draw(st.lists(number, min_size=3 * count, max_size=3 * count)))
    seconds = np.array(data.draw(st.lists(number, min_size=count, max_size=count)))
    weights = relative_fit(columns.reshape(count, 3), seconds)
    assert (weights >= 0).all()
    assert np.isfinite(weights).all()
    assert (weights > 0).any()


def test_products_always_compute_even_where_bytes_alone_would_tell_them():
    points = [product(m, n, k, (m * k + k * n + m * n) / 1e12) for m, n, k in SHAPES]
    curve = fit_products(points, H100, "bf16", "")
    assert curve.flop_factor > 0
    weights = relative_fit(np.eye(3), np.ones(3), needed=(1,))
    assert (weights > 0).all()


def test_too_few_products_give_no_curve():
    assert fit_products(products()[: LEAST_POINTS - 1], H100, "bf16", "") is None
    whole = fitted(profile(*products()[:2]), H100)
    assert whole.fitted == FittedConstants()
    assert "bf16 products: 2 measured, a curve needs 3" in whole.notes


def test_collectives_that_identify_no_bandwidth_are_refused_with_a_reason():
    few, why = fit_collective(collectives()[:2])
    assert few is None
    assert why == "2 sizes, a curve needs 3"
    small, why = fit_collective(collectives()[:4])
    assert small is None
    assert "latency only: larger messages" in why
    flat = [collective(size, 1e-3 / (1 + size / 2**20)) for size in SIZES]
    none, why = fit_collective(flat)
    assert none is None
    assert "latency only" in why
    assert any("all_reduce_8: latency only" in note for note in fitted(profile(*flat), H100).notes)


def test_time_that_grows_with_no_bandwidth_is_refused():
    points = [collective(size, 1e-6 * size**0.25) for size in SIZES]
    curve, why = fit_collective(points)
    assert curve is None
    assert why == "no bandwidth can be fitted: time does not grow with size"


def test_attention_at_two_lengths_gives_no_curve_and_a_note():
    found = fitted(profile(*attentions()[:2]), H100)
    assert found.fitted.attention is None
    assert any("attention: 3 sequence lengths are needed" in note for note in found.notes)


def test_attention_that_takes_no_longer_for_more_work_is_refused_with_a_reason():
    points = [
        point.model_copy(update={"forward": Timing(seconds=1e-3 / point.seq_length)})
        for point in attentions()
    ]
    found = fitted(profile(*points), H100)
    assert found.fitted.attention is None
    assert any("attention: 3 sequence lengths are needed" in note for note in found.notes)


def test_streams_of_two_sizes_and_a_precision_without_a_peak_are_notes():
    two = fitted(profile(*streams()[:2]), H100)
    assert two.constants == {}
    assert "kernels: 3 sizes are needed for a curve" in two.notes
    wide = fitted(profile(*(p.model_copy(update={"precision": "fp32"}) for p in products())), H100)
    assert wide.fitted.gemm == {}
    assert any("fp32 products: the peak of the GPU is not known" in note for note in wide.notes)


def test_curves_through_the_same_points_are_the_same_twice():
    points = (*products(), *collectives(), *attentions(), *streams())
    once = fitted(profile(*points), H100)
    assert fitted(once, H100) == once
    assert fitted(profile(*points), H100) == once


@pytest.mark.parametrize("seed", range(3))
def test_curves_do_not_depend_on_the_order_of_points(seed):
    points = [*products(), *collectives(), *attentions(), *streams()]
    points += [slower(point, 1.5) for point in products()[:5]]
    turned = [points[i] for i in np.random.default_rng(seed).permutation(len(points))]
    before, after = (fitted(profile(*p), H100) for p in (points, turned))
    one, two = before.fitted, after.fitted
    assert numbers(two.gemm["bf16"]) == pytest.approx(numbers(one.gemm["bf16"]), rel=1e-6)
    assert numbers(two.attention) == pytest.approx(numbers(one.attention), rel=1e-6)
    assert two.collectives.keys() == one.collectives.keys() == {"all_reduce_8"}
    for name, curve in one.collectives.items():
        assert numbers(two.collectives[name]) == pytest.approx(numbers(curve), rel=1e-6)
    assert after.constants.keys() == before.constants.keys()
    for name, value in before.constants.items():
        assert after.constants[name].value == pytest.approx(value.value, rel=1e-6)


def test_a_prediction_without_a_curve_is_the_median():
    points = collectives()[:3]
    assert predict_collective(points[:2], points[2:]) == pytest.approx(
        [np.median([point.time.seconds for point in points[:2]])]
    )


def test_an_error_is_told_only_where_points_were_left_out():
    assert np.isnan(left_out(collectives()[:2], predict_collective))
    assert left_out(collectives(), predict_collective) < 1e-3
    assert fitted(profile(*collectives()), H100).scatter_fraction["all_reduce_8"] < 1e-3
    few = fitted(profile(*collectives()[-5::2]), H100)
    assert few.fitted.collectives["all_reduce_8"].bus_gb_per_s > 0
    assert few.scatter_fraction == {}


def test_messages_between_two_gpus_give_a_link_and_a_start():
    points = [
        CollectivePoint(
            operation="p2p",
            ranks=2,
            per_node=2,
            num_bytes=size,
            time=Timing(seconds=20e-6 + size / 100e9),
        )
        for size in (2**16, 2**20, 2**24, 2**28)
    ]
    found = fitted(profile(*points), H100)
    assert found.fitted.collectives["p2p_2"].bus_gb_per_s == pytest.approx(100, rel=1e-3)
    assert found.constants["p2p_alpha"].value == pytest.approx(20e-6, rel=1e-2)
