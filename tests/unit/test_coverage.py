"""What a profile knows, and what to measure next."""

import pytest

from costmodel.explicit import Terms
from costmodel.hardware import Provenance
from costmodel.spec.profile import (
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
from profiler.coverage import ERRORS, QUANTITIES, coverage, next_measurement
from tests.conftest import SMALL_DENSE

SECOND = Timing(seconds=1.0)
SIZES = {"num_bytes": 2**20, "time": SECOND}
TERMS = dict.fromkeys(Terms.__dataclass_fields__, 0.0)
CATALOG = (
    Provenance("h100-sxm bf16 matrix products", "fitted", "catalog"),
    Provenance("h100-sxm attention", "fitted", "catalog"),
    Provenance("h100-sxm collectives", "assumed", "catalog"),
    Provenance("h100-sxm NIC", "datasheet", "catalog"),
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


def known(profile_, **terms):
    """By name, of a step of one second with these terms."""
    found = coverage(profile_, CATALOG, Terms(**TERMS | terms), 1.0)
    return {one.quantity.name: one for one in found}


def following(profile_, **terms):
    best = next_measurement(tuple(known(profile_, **terms).values()))
    return best and best.quantity.item


def test_every_item_of_the_table_is_looked_at_once_and_terms_exist():
    assert len({quantity.name for quantity in QUANTITIES}) == len(QUANTITIES)
    assert {name for quantity in QUANTITIES for name in quantity.terms} <= TERMS.keys()


def test_points_make_a_quantity_measured_and_what_has_none_is_of_the_catalog():
    found = known(profile(*PARTS))
    assert found["matrix products"].kind == "measured"
    assert found["matrix products"].points == 1
    assert found["collectives in a node"].kind == "assumed"
    assert found["links between nodes"].kind == "datasheet"
    bare = known(profile())
    assert bare["attention"].kind == "fitted"
    assert not any(one.points for one in bare.values())


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
    found = known(profile(*EVERYTHING, scatter_fraction=scatter))
    assert found["matrix products"].scatter_fraction == 0.07
    assert found["collectives in a node"].scatter_fraction == 0.02
    assert found["optimizer step"].scatter_fraction == ERRORS["measured"]
    assert known(profile())["matrix products"].scatter_fraction == ERRORS["fitted"]


@pytest.mark.parametrize("terms", [{}, {"gemm": 0.6, "tp_comm": 0.2}, {"dp_comm": 0.3}])
def test_where_all_is_measured_nothing_is_next(terms):
    assert following(profile(*EVERYTHING), **terms) is None


def test_traffic_of_data_parallelism_in_one_node_is_of_the_node():
    terms = {"dp_comm": 0.3, "fsdp_comm": 0.1}
    one = known(profile(*PARTS), **terms)
    assert one["links between nodes"].share == 0
    assert one["collectives in a node"].share == pytest.approx(0.4)
    two = known(profile(*PARTS, num_nodes=2), **terms)
    assert two["links between nodes"].share == pytest.approx(0.4)
    assert two["collectives in a node"].share == 0


def test_without_collectives_the_item_of_the_largest_doubt_is_next():
    assert following(profile(*PARTS), gemm=0.5, tp_comm=0.3) == "collectives"
    assert following(profile(), gemm=0.9, tp_comm=0.01) in ("gemm", "layer")
    assert following(profile(*PARTS), gemm=0.5, tp_comm=0.05, p2p=0.45) == "p2p"
    assert following(profile(*PARTS, COLLECTIVE, num_nodes=2), dp_comm=0.3) == "collectives"


def test_a_quantity_of_no_share_is_never_next():
    assert following(profile(), overhead=1.0) is None


def test_doubt_is_share_times_error_beyond_that_of_a_measurement():
    one = known(profile(), tp_comm=0.5)["collectives in a node"]
    assert one.doubt == pytest.approx(0.5 * (ERRORS["assumed"] - ERRORS["measured"]))
