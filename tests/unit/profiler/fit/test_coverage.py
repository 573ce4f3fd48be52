"""What a profile knows, and what to measure next."""

import pytest

from tests.conftest import SMALL_DENSE
from trainplan.costmodel import catalog
from trainplan.costmodel.hardware.gpu import CollectiveFit, FittedConstants
from trainplan.costmodel.machine.hardware import Provenance
from trainplan.costmodel.profiles.profile import (
    AttentionPoint,
    CollectivePoint,
    CopyPoint,
    LayerPoint,
    MemoryPoint,
    OptimizerPoint,
    Origin,
    OverlapPoint,
    PowerPoint,
    ProductPoint,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.costmodel.spec.base import Sourced
from trainplan.costmodel.step.results import Terms
from trainplan.profiler.fit.coverage import (
    ERRORS,
    QUANTITIES,
    coverage,
    least_certain,
    next_measurement,
)
from trainplan.profiler.journal.timing import NOISY_FRACTION

SECOND = Timing(seconds=1.0)
SIZES = {"num_bytes": 2**20, "time": SECOND}
TERMS = dict.fromkeys(Terms.__dataclass_fields__, 0.0)
CATALOG = (
    Provenance("h100-sxm bf16 matrix products", "fitted", "catalog"),
    Provenance("h100-sxm attention", "fitted", "catalog"),
    Provenance("h100-sxm collectives", "assumed", "catalog"),
    Provenance("h100-sxm NIC", "datasheet", "catalog"),
)
MEASURED = (
    *(Provenance(one.quantity, "measured", "a profile") for one in CATALOG[:3]),
    CATALOG[3],
)
NUMBER = Sourced(value=1.0, source="a test")
CONSTANTS = dict.fromkeys(("elementwise_efficiency", "fsdp_contention"), NUMBER)
MESSAGES = FittedConstants(
    collectives={
        "p2p_2": CollectiveFit(alpha_us=1.0, bus_gb_per_s=1.0, sqrt_coefficient=0.0, source="x")
    }
)
COLLECTIVE = CollectivePoint(operation="all_reduce", ranks=8, per_node=8, **SIZES)
ACROSS = CollectivePoint(operation="all_reduce", ranks=16, per_node=8, **SIZES)
MESSAGE = CollectivePoint(operation="p2p", ranks=2, per_node=2, **SIZES)
PARTS = (
    ProductPoint(m=64, n=64, k=64, time=SECOND),
    AttentionPoint(
        micro_batch_size=1,
        seq_length=512,
        num_heads=8,
        num_key_value_heads=8,
        head_dim=64,
        value_dim=64,
        forward=SECOND,
    ),
    LayerPoint(
        model=SMALL_DENSE, runtime="torch-eager", micro_batch_size=1, seq_length=512, both=SECOND
    ),
    StreamPoint(name="norm", moved_bytes=2**20, time=SECOND),
    OverlapPoint(
        operation="all_gather",
        ranks=8,
        num_bytes=2**20,
        compute_slowdown=1.1,
        communication_slowdown=1.1,
    ),
    OptimizerPoint(num_params=10**6, time=SECOND),
    CopyPoint(direction="host_to_device", **SIZES),
    MemoryPoint(name="context_bytes", value=1.0),
    PowerPoint(state="idle", watts=70.0),
)
EVERYTHING = (*PARTS, COLLECTIVE, MESSAGE)


def profile(*points, **more):
    return Profile(
        gpu="h100-sxm",
        **{"gpus_per_node": 8} | more,
        origins=(Origin(source="a test"),),
        points=points,
    )


def known(profile_, says=CATALOG, **terms):
    """By name, of a step of one second with these terms; `says` is where curves are from."""
    found = coverage(profile_, says, Terms(**TERMS | terms), 1.0)
    return {one.quantity.name: one for one in found}


def following(profile_, says=CATALOG, **terms):
    best = next_measurement(tuple(known(profile_, says, **terms).values()))
    return best and best.quantity.item


def test_every_item_of_the_table_is_looked_at_once_and_terms_exist():
    assert len({quantity.name for quantity in QUANTITIES}) == len(QUANTITIES)
    assert {name for quantity in QUANTITIES for name in quantity.terms} <= TERMS.keys()


def test_a_curve_makes_a_quantity_measured_and_points_alone_do_not():
    assert known(profile(*PARTS), MEASURED)["matrix products"].kind == "measured"
    found = known(profile(*PARTS))
    assert found["matrix products"].kind == "fitted"
    assert found["matrix products"].points == 1
    assert found["collectives in a node"].kind == "assumed"
    assert found["links between nodes"].kind == "datasheet"
    bare = known(profile())
    assert bare["attention"].kind == "fitted"
    assert not any(one.points for one in bare.values())


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("kernels without reuse", {"constants": CONSTANTS}),
        ("compute during traffic", {"constants": CONSTANTS}),
        ("messages between stages", {"fitted": MESSAGES}),
    ],
)
def test_points_that_gave_no_number_leave_a_quantity_as_it_was(name, more):
    assert known(profile(*EVERYTHING))[name].kind == "fitted"
    assert known(profile(*EVERYTHING, **more))[name].kind == "measured"


def test_numbers_that_are_taken_as_they_are_need_all_of_their_points():
    found = known(profile(*PARTS))
    assert found["optimizer step"].kind == found["copies to the host"].kind == "measured"
    assert found["memory outside the allocator"].kind == "fitted"
    communicator = MemoryPoint(name="communicator_bytes", value=1.0)
    both = known(profile(*PARTS, communicator))
    assert both["memory outside the allocator"].kind == "measured"
    on_host = OptimizerPoint(num_params=10**6, place="cpu", time=SECOND)
    drive = CopyPoint(direction="nvme_read", **SIZES)
    sgd = OptimizerPoint(name="sgd", side=1024, num_params=10**6, time=SECOND)
    assert known(profile(sgd))["optimizer step"].kind == "fitted", "the step judged has Adam"
    other = known(profile(on_host, drive))
    assert other["optimizer step"].kind == other["copies to the host"].kind == "fitted"
    assert other["copies to the host"].points == 0
    assert other["drive"].kind == "not used by estimates"
    assert other["Adam in host memory"].kind == "measured"
    assert (other["optimizer step"].points, other["Adam in host memory"].points) == (0, 1)
    ways = [drive, drive.model_copy(update={"direction": "nvme_write"})]
    cached = [one.model_copy(update={"cached": True}) for one in ways]
    assert known(profile(*ways))["drive"].kind == "measured"
    assert known(profile(*cached))["drive"].kind == "not used by estimates"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, "torch-eager only"),
        ({"runtime": "megatron-lm", "kernels": "fused"}, "measured"),
        (
            {"runtime": "megatron-lm", "kernels": "fused", "attention": "unfused"},
            "other kernels only",
        ),
    ],
)
def test_layers_tell_of_kernels_like_their_own_and_are_never_next(change, kind):
    layer = PARTS[2].model_copy(update=change)
    assert known(profile(layer))["whole layers"].kind == kind
    assert "whole layers" not in known(profile())
    assert "power" not in known(profile())
    assert following(profile(layer), host=1.0) is None


@pytest.mark.parametrize(
    ("point", "name"),
    [
        (COLLECTIVE, "collectives in a node"),
        (ACROSS, "links between nodes"),
        (MESSAGE, "messages between stages"),
    ],
)
def test_each_collective_tells_of_its_own_links(point, name):
    found = known(profile(point, num_nodes=2))
    assert [one for one in found if found[one].points] == [name]


def test_the_error_of_a_measured_curve_is_what_it_leaves():
    scatter = {"bf16 products": 0.07, "fp8 products": 0.05, "all_reduce_8": 0.02}
    found = known(profile(*EVERYTHING, scatter_fraction=scatter), MEASURED)
    assert found["matrix products"].scatter_fraction == 0.07
    assert found["collectives in a node"].scatter_fraction == 0.02
    assert found["optimizer step"].scatter_fraction == ERRORS["measured"]
    assert known(profile())["matrix products"].scatter_fraction == ERRORS["fitted"]


@pytest.mark.parametrize("terms", [{}, {"gemm": 0.6, "tp_comm": 0.2}, {"dp_comm": 0.3}])
def test_where_all_is_measured_nothing_is_next(terms):
    whole = profile(*EVERYTHING, constants=CONSTANTS, fitted=MESSAGES)
    assert following(whole, MEASURED, **terms) is None


def test_traffic_of_data_parallelism_in_one_node_is_of_the_node():
    terms = {"dp_comm": 0.3, "fsdp_comm": 0.1}
    one = known(profile(*PARTS), **terms)
    assert one["links between nodes"].share == 0
    assert one["collectives in a node"].share == pytest.approx(0.4)
    two = known(profile(*PARTS, num_nodes=2), **terms)
    assert two["links between nodes"].share == pytest.approx(0.4)
    assert two["collectives in a node"].share == 0


def test_without_collectives_the_item_of_the_largest_doubt_is_next():
    parts = (*MEASURED[:2], *CATALOG[2:])
    assert following(profile(*PARTS), parts, gemm=0.5, tp_comm=0.3) == "collectives"
    assert following(profile(), gemm=0.9, tp_comm=0.01) == "gemm"
    assert following(profile(*PARTS), parts, gemm=0.5, tp_comm=0.05, p2p=0.45) == "p2p"
    nodes = profile(*PARTS, COLLECTIVE, num_nodes=2)
    assert following(nodes, MEASURED, dp_comm=0.3) == "collectives"


def test_a_quantity_of_no_share_is_never_next():
    assert following(profile(), overhead=1.0) is None


def test_doubt_is_share_times_error_beyond_that_of_a_measurement():
    one = known(profile(), tp_comm=0.5)["collectives in a node"]
    assert one.uncertainty == pytest.approx(0.5 * (ERRORS["assumed"] - ERRORS["measured"]))


@pytest.mark.parametrize(
    ("architecture", "kernels", "attention", "kind"),
    [
        ("hopper", "fused", "flash", "measured"),
        ("hopper", "eager", "unfused", "other kernels only"),
        ("cpu", "eager", "unfused", "measured"),
    ],
)
def test_layers_of_megatron_are_measured_where_its_kernels_ran(
    architecture, kernels, attention, kind
):
    """On a CPU those without Transformer Engine are what it trains."""
    point = LayerPoint(
        model=SMALL_DENSE,
        runtime="megatron-lm",
        kernels=kernels,
        attention=attention,
        micro_batch_size=1,
        seq_length=512,
        both=SECOND,
    )
    device = catalog.gpu("h100-sxm").model_copy(update={"architecture": architecture})
    assert known(profile(point, device=device))["whole layers"].kind == kind


def noisy(count, of, fraction=0.2):
    """Products of which some are noisy."""
    clean = Timing(seconds=1.0, repeats=9, half_width_fraction=0.01)
    odd = Timing(seconds=1.0, repeats=9, half_width_fraction=fraction, flags=("noisy",))
    return [ProductPoint(m=64, n=64, k=n + 1, time=odd if n < count else clean) for n in range(of)]


def test_measured_means_what_these_timings_scatter_by():
    found = known(profile(*noisy(5, 10)), MEASURED, gemm=0.5)["matrix products"]
    assert (found.timings, found.doubtful) == (10, 5)
    assert found.noise_fraction == found.scatter_fraction == pytest.approx(0.105)
    assert found.uncertainty == pytest.approx(0.5 * (0.105 - ERRORS["measured"]))
    quiet = known(profile(*noisy(0, 10)), MEASURED, gemm=0.5)["matrix products"]
    assert (quiet.scatter_fraction, quiet.uncertainty) == (pytest.approx(0.01), 0)
    drift = Timing(seconds=1.0, repeats=9, flags=("drift",))
    moved = known(profile(ProductPoint(m=1, n=1, k=1, time=drift)), MEASURED)["matrix products"]
    assert moved.noise_fraction == NOISY_FRACTION


def test_timings_that_do_not_say_how_they_scatter_are_taken_as_measured_ones_usually_are():
    stated = Timing(seconds=1.0, repeats=20, flags=("stated",))
    for time in (SECOND, stated):
        found = known(profile(ProductPoint(m=1, n=1, k=1, time=time)), MEASURED)["matrix products"]
        assert found.noise_fraction is None
        assert found.scatter_fraction == ERRORS["measured"]


def test_the_item_to_repeat_is_next_where_it_costs_most():
    whole = (*EVERYTHING[1:], *noisy(9, 10))
    measured = profile(*whole, constants=CONSTANTS, fitted=MESSAGES)
    assert following(measured, MEASURED, gemm=0.6) == "gemm"
    assert following(measured, MEASURED, tp_comm=0.6) is None
    assert following(profile(*noisy(9, 10)), MEASURED, gemm=0.1, optimizer=0.9) == "gemm"


def test_where_timings_scatter_more_than_what_is_stated_measuring_more_wins_nothing():
    assert following(profile(*noisy(0, 9)), MEASURED, optimizer=0.9) == "optimizer"
    assert following(profile(*noisy(9, 9)), MEASURED, optimizer=0.9) is None


def test_most_doubtful_is_told_where_most_timings_are_though_no_step_shows_it():
    def doubtful(count):
        return least_certain(tuple(known(profile(*noisy(count, 10)), MEASURED).values()))

    assert doubtful(5) is None
    assert doubtful(6).quantity.item == "gemm"
