"""Which ranks talk to each other, and what it costs to bring them together."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from trainplan.profiler.bench.inputs import groups
from trainplan.profiler.bench.inputs.groups import Shape, group_of, shapes, strided_shapes
from trainplan.profiler.task import Place

PATIENCE = timedelta(seconds=17)
MOST_CALLS = 20
"""What a run on 64 nodes may take to make all its groups."""


def places(nodes, local):
    return [
        Place("cuda", rank, nodes * local, rank % local, local) for rank in range(nodes * local)
    ]


@pytest.fixture
def made(monkeypatch):
    """Calls that make a group, of all ranks that the test plays."""
    calls = []

    class ProcessGroup:
        options = SimpleNamespace(_timeout=PATIENCE)

        def _get_backend(self, device):
            return self

    def new_group(ranks, **wanted):
        calls.append((tuple(ranks), wanted))
        return ProcessGroup()

    fake = SimpleNamespace(
        ProcessGroup=ProcessGroup, group=SimpleNamespace(WORLD=ProcessGroup()), new_group=new_group
    )
    monkeypatch.setattr(groups, "dist", fake)
    monkeypatch.setattr(groups, "torch", SimpleNamespace(device=str))
    group_of.cache_clear()
    yield calls
    group_of.cache_clear()


def test_groups_of_a_shape_are_all_ranks_once():
    every = places(2, 4)
    found = list(shapes(every[0]))
    assert found == [Shape(2, 2), Shape(4, 4), Shape(8, 4), Shape(2, 1, stride=4)]
    for shape in found:
        of_rank = [shape.members(place) for place in every]
        assert all(rank in members for rank, members in enumerate(of_rank))
        assert sorted(rank for members in set(of_rank) for rank in members) == list(range(8))
    assert Shape(2, 1, stride=4).members(every[5]) == (1, 5)
    assert Shape(2, 2, stride=2).members(every[7]) == (5, 7)


@pytest.mark.parametrize("rank", [0, 13, 511])
def test_a_rank_of_64_nodes_makes_its_own_groups_alone_in_few_calls(made, rank):
    place = places(64, 8)[rank]
    every = [*shapes(place), *strided_shapes(place)]
    assert len({group_of(shape, place) for shape in every}) == len(every) == 8
    for shape in every:
        group_of(shape, place)
    assert len(made) == 7 <= MOST_CALLS, "the group of all ranks exists already"
    assert all(rank in members for members, _ in made)
    assert all(wanted["use_local_synchronization"] for _, wanted in made)
    assert {wanted["timeout"] for _, wanted in made} == {PATIENCE}, "a new one waits half an hour"


def test_all_ranks_make_the_same_number_of_groups_before_each(made):
    """Torch names a group by its members and by how many groups the rank has."""
    named = {}
    for place in places(4, 8):
        made.clear()
        for shape in (*shapes(place), *strided_shapes(place)):
            group_of(shape, place)
        for number, (members, _) in enumerate(made):
            named.setdefault(members, set()).add(number)
    assert all(len(numbers) == 1 for numbers in named.values())
