"""Slow nodes and links are named, healthy ones are not."""

import random

from trainplan.costmodel.profiles.profile import LinkPoint, Timing
from trainplan.profiler.bench.links import pairings
from trainplan.profiler.fit.stragglers import slow_notes


def measured(count, speed, *, all_pairs=False, noise=0.04):
    """Pairs of nodes; `speed` gives a pair's bandwidth in GB/s."""
    draw = random.Random(1)
    points = []
    for pairs in pairings(count, all_pairs=all_pairs):
        for one, other in pairs:
            rate = speed(one, other) * (1 + draw.uniform(-noise, noise))
            points.append(
                LinkPoint(
                    source=f"n{one}",
                    target=f"n{other}",
                    num_bytes=2**25,
                    time=Timing(seconds=2**25 / (rate * 1e9)),
                )
            )
    return points


def test_equal_nodes_are_not_accused():
    assert not list(slow_notes(measured(64, lambda one, other: 50.0)))


def test_a_slow_node_is_found_in_five_random_rounds_and_nobody_else():
    points = measured(64, lambda one, other: 37.5 if 7 in (one, other) else 50.0)
    (note,) = slow_notes(points)
    assert note.startswith("slow node or GPU: n7 reaches 7")


def test_a_slow_link_between_good_nodes_is_found_when_all_pairs_are_timed():
    points = measured(
        8, lambda one, other: 25.0 if {one, other} == {2, 5} else 50.0, all_pairs=True
    )
    (note,) = slow_notes(points)
    assert note.startswith("slow link: n2 to n5 reaches")


def test_no_points_say_nothing():
    assert not list(slow_notes([]))


def pairs_of(speed_of_first, rounds):
    """Every node of six in as many pairs as there are rounds; the first one is slow."""
    every = [((0, 1), (2, 3), (4, 5)), ((0, 2), (1, 4), (3, 5)), ((0, 3), (1, 5), (2, 4))]
    return [
        LinkPoint(
            source=f"n{one}",
            target=f"n{other}",
            num_bytes=2**25,
            time=Timing(seconds=1.0 / (speed_of_first if one == 0 else 1.0)),
        )
        for pairs in every[:rounds]
        for one, other in pairs
    ]


def test_a_node_is_judged_from_three_pairs_on():
    (note,) = slow_notes(pairs_of(0.8, 3))
    assert note.startswith("slow node or GPU: n0 reaches 80%")
    assert all(note.startswith("slow link: n0") for note in slow_notes(pairs_of(0.8, 2)))


def test_less_than_88_percent_of_the_usual_bandwidth_is_slow():
    assert list(slow_notes(pairs_of(0.87, 3)))
    assert not list(slow_notes(pairs_of(0.89, 3)))
