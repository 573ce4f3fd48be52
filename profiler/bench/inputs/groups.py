"""Groups of ranks that talk at the same time, all of one shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from trainplan.costmodel.machine.hardware import SHAPES
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

    def members(self, place: Place) -> tuple[tuple[int, ...], ...]:
        """All groups of this shape; together they are all ranks."""
        block = self.ranks * self.stride
        return tuple(
            tuple(range(first, first + block, self.stride))
            for start in range(0, place.world_size, block)
            for first in range(start, start + self.stride)
        )


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
    """This rank's group; all ranks ask for the same shapes in the same order."""
    mine = None
    for members in shape.members(place):
        group = dist.new_group(list(members), timeout=_patience(place))
        if isinstance(group, dist.ProcessGroup) and place.rank in members:
            mine = group
    assert mine is not None, "the groups of a shape are all ranks"
    return mine


def _patience(place: Place) -> timedelta | None:
    """How long the group of all ranks waits; a new group would wait for half an hour."""
    world = dist.group.WORLD
    assert world is not None, "the session has connected the ranks"
    options = getattr(world._get_backend(torch.device(device_of(place))), "options", None)
    return getattr(options, "_timeout", None)
