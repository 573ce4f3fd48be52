"""What is left of a cluster that lost nodes."""

import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.hardware.cluster import BetweenGroups, LinkSpec, parse_cluster
from trainplan.planner.replan import left_of

ONE, TWO = parse_cluster("4x8:h100-sxm"), parse_cluster("2x8:h100-sxm+3x8:a100-sxm-80gb")
JOINED = TWO.model_copy(update={"between_groups": BetweenGroups(gb_per_s=3.0)})
LINKED = ONE.model_copy(
    update={
        "links": LinkSpec(
            nodes=("a", "b", "c", "d"),
            gb_per_s=tuple(tuple(float(10 * i + j + 1) for j in range(4)) for i in range(4)),
            node_speed=(1.0, 0.9, 0.8, 0.7),
        )
    }
)


@pytest.mark.parametrize(
    ("cluster", "lost", "counts"),
    [
        (ONE, ["1"], [3]),
        (ONE, ["h100-sxm:2"], [2]),
        (ONE, ["0:1", "1"], [2]),
        (TWO, ["a100-sxm-80gb:1"], [2, 2]),
        (TWO, ["0:1", "1:2"], [1, 1]),
        (JOINED, ["0:2"], [3]),
    ],
)
def test_lost_nodes_are_gone(cluster, lost, counts):
    left = left_of(cluster, lost)
    assert [one.num_nodes for one in left.groups] == counts
    assert (left.between_groups is None) == (cluster is not JOINED or len(counts) == 1)


def test_links_of_a_lost_node_go_with_it():
    left = left_of(LINKED, ["b"])
    assert left.groups[0].num_nodes == 3
    assert left.links == LinkSpec(
        nodes=("a", "c", "d"),
        gb_per_s=((1.0, 3.0, 4.0), (21.0, 23.0, 24.0), (31.0, 33.0, 34.0)),
        node_speed=(1.0, 0.8, 0.7),
    )
    assert left_of(LINKED, ["a", "b", "d"]).links is None


@pytest.mark.parametrize(
    ("cluster", "lost", "says"),
    [
        (ONE, ["5"], "5 of h100-sxm are lost, and the plan has 4 such nodes"),
        (ONE, ["3", "2"], "5 of h100-sxm"),
        (ONE, ["4"], "no node is left"),
        (ONE, ["0"], "no node is lost"),
        (ONE, ["-1"], "expected a number of nodes"),
        (ONE, ["two"], "expected a number of nodes"),
        (ONE, ["1.5"], "expected a number of nodes"),
        (ONE, ["b200:1"], "is no group: groups are 0 (h100-sxm)"),
        (TWO, ["1"], "has several groups: name which, 0:1 or 1:1"),
        (LINKED, ["1"], "name those that are lost, such as --lost a"),
        (LINKED, ["a", "a"], "named twice"),
        (parse_cluster("1x8:l4+1x8:l4"), ["l4:1"], "is the name of several groups"),
    ],
)
def test_what_cannot_be_lost_is_said(cluster, lost, says):
    with pytest.raises(SpecError) as refused:
        left_of(cluster, lost)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
