"""Groups of ranks that talk at the same time, all of one shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from trainplan.costmodel.machine import SHAPES
from trainplan.profiler.bench.inputs.tensors import device_of
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from datetime import timedelta

    from torch.distributed import ProcessGroup


@dataclass(frozen=True, slots=True)
class Shape:
    """Which ranks make up a group."""

    ranks: int
    """Members of one group."""
    per_node: int
    """Members of one group in one node."""
    stride: int = 1
    """Distance of neighbouring members."""

    def __str__(self) -> str:
        return f"ranks={self.ranks} per_node={self.per_node} stride={self.stride}"

    def members(self, place: Place) -> tuple[int, ...]:
        """The group that this process is in; together all groups of a shape are all ranks."""
        inside = place.rank % (self.ranks * self.stride)
        first = place.rank - inside + inside % self.stride
        return tuple(range(first, first + self.ranks * self.stride, self.stride))


def shapes(place: Place) -> Iterator[Shape]:
    """Within a node all sizes that divide it; across nodes all ranks, and one rank per node."""
    local, nodes = place.local_world_size, place.num_nodes
    yield from (Shape(size, size) for size in range(2, local + 1) if local % size == 0)
    if nodes > 1:
        yield Shape(place.world_size, local)
    if nodes > 1 and local > 1:
        yield Shape(nodes, 1, stride=local)


def strided_shapes(place: Place) -> Iterator[Shape]:
    """Groups in a node whose members are not next to each other: replicas of tensor groups."""
    for size, stride in SHAPES:
        if stride > 1 and place.local_world_size % (size * stride) == 0:
            yield Shape(size, size, stride)


@cache
def group_of(shape: Shape, place: Place) -> ProcessGroup:
    """This rank's group; all ranks ask for the same shapes in the same order.

    One call for each shape, which the members of a group alone make: nobody waits for other groups.
    The group of all ranks exists already. Groups stay until the run ends, seven on nodes of eight
    GPUs: one made again would have the name of the one destroyed, and find its addresses in the
    store.
    Source: pytorch `torch/distributed/distributed_c10d.py` of 2.5 (@0034a6dc) and 2.13, `new_group`
    and `_hash_ranks_to_str`: named by the members and by how many groups there are, which is the
    same on all ranks here. `split_group` needs NCCL started with the process group, and gloo has
    none; `DeviceMesh` without it makes the groups of all others too.
    """
    members = shape.members(place)
    if len(members) == place.world_size:
        assert dist.group.WORLD is not None, "the session has connected the ranks"
        return dist.group.WORLD
    group = dist.new_group(list(members), timeout=_patience(place), use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup), "this rank is a member"
    return group


def _patience(place: Place) -> timedelta | None:
    """How long the group of all ranks waits; a new group would wait for half an hour."""
    world = dist.group.WORLD
    assert world is not None, "the session has connected the ranks"
    options = getattr(world._get_backend(torch.device(device_of(place))), "options", None)
    return getattr(options, "_timeout", None)
