"""Collectives and messages by size, for every shape of group; slow links between nodes and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING

from trainplan.costmodel.profiles import CollectivePoint, Operation, Point, Timing
from trainplan.profiler.bench.inputs.groups import Shape, group_of, shapes, strided_shapes
from trainplan.profiler.bench.inputs.marks import Marks, Pattern
from trainplan.profiler.bench.inputs.tensors import device_of, dtype_of, task, working_precision
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

CPU_SIZES = (2**16, 2**20, 2**22, 2**24)
QUICK_CPU_SIZES = (2**16, 2**20, 2**23)
SIZES = tuple(2**power for power in range(13, 30, 2))
QUICK_SIZES = (2**13, 2**18, 2**21, 2**24, 2**27)
"""Bytes, from where latency counts to where only bandwidth does.

Source: `measured`, of 126 recorded collectives of four GPUs these nine tell other sizes within 5 %
(all-reduce) and 7 % (others) in the median but for 2; six tell them but for 19
(examples/profile_fits).
"""
SUMS: tuple[Operation, ...] = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to time."""

    operation: Operation
    shape: Shape
    size: int
    """Bytes asked for; groups that do not divide it move a little less."""

    def __str__(self) -> str:
        return f"{self.operation} {self.shape} bytes={self.size}"

    def point(self, num_bytes: int, time: Timing) -> CollectivePoint:
        """The case with its time."""
        return CollectivePoint(
            operation=self.operation,
            ranks=self.shape.ranks,
            per_node=self.shape.per_node,
            stride=self.shape.stride,
            num_bytes=num_bytes,
            time=time,
        )


@dataclass(frozen=True, slots=True)
class Team:
    """The ranks of one group, seen by one of them."""

    group: ProcessGroup
    size: int
    index: int
    """Of this rank in the group."""
    device: str
    dtype: torch.dtype

    def zeros(self, count: int) -> Tensor:
        """Sums of zeros stay zeros however often they are repeated."""
        return torch.zeros(count, device=self.device, dtype=self.dtype)


Collective = Callable[[Team, "Tensor", "Tensor"], object]
"""From the part of one rank and the full tensor, either of which is the result."""


CALLS: Mapping[Operation, Collective] = {
    "all_reduce": lambda team, _, full: dist.all_reduce(full, group=team.group),
    "all_gather": lambda team, part, full: dist.all_gather_into_tensor(full, part, team.group),
    "reduce_scatter": lambda team, part, full: dist.reduce_scatter_tensor(
        part, full, group=team.group
    ),
    "alltoall": lambda team, sent, received: dist.all_to_all_single(
        received, sent, group=team.group
    ),
}


def sizes(request: Request, place: Place) -> tuple[int, ...]:
    """Bytes of the full tensor."""
    if place.device == "cpu":
        return QUICK_CPU_SIZES if request.quick else CPU_SIZES
    return QUICK_SIZES if request.quick else SIZES


def strided_sizes(request: Request, place: Place) -> tuple[int, ...]:
    """As `sizes`, of groups whose members are not next to each other; none in a quick run.

    Source: derived; a GPU takes every second size, as the start and the bandwidth are all that may
    differ from neighbours, and the run stays within its five minutes.
    """
    if request.quick:
        return ()
    return CPU_SIZES if place.device == "cpu" else SIZES[::2]


def collective_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each operation, shape of group and size."""
    near = product(shapes(place), CALLS, sizes(request, place))
    far = product(strided_shapes(place), CALLS, strided_sizes(request, place))
    for shape, operation, size in chain(near, far):
        case = Case(operation, shape, size)
        measure = partial(_measure, case, request, place)
        yield task(place, str(case), measure, together=True)


def _team(shape: Shape, request: Request, place: Place) -> Team:
    members = shape.members(place)
    return Team(
        group_of(shape, place),
        shape.ranks,
        members.index(place.rank),
        device_of(place),
        dtype_of(working_precision(request, place)),
    )


def _measure(case: Case, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    team = _team(case.shape, request, place)
    part_count = max(1, case.size // team.dtype.itemsize // team.size)
    full_count = part_count * team.size
    part = team.zeros(full_count if case.operation == "alltoall" else part_count)
    full = team.zeros(full_count)
    check(case.operation, team, part, full)
    part.zero_()
    full.zero_()
    call = partial(CALLS[case.operation], team, part, full)
    yield case.point(full_count * team.dtype.itemsize, clock.time_together(call))


def check(operation: Operation, team: Team, part: Tensor, full: Tensor) -> None:
    """Does the collective give what it should, in every element of the tensors that are measured?

    The tensors are written. Costs `Marks.rounds` calls of the collective (one up to 128 ranks, four
    on 512, 128 on 16,384), and as often writing and reading its tensors once.

    Raises:
        ProfilerError: It does not.
    """
    marks = Marks(team.size if operation in SUMS else 1, team.dtype, team.device)
    sent = full if operation in SUMS else part
    received = part if operation == "reduce_scatter" else full
    for turn in range(marks.rounds):
        mine, right = _patterns(operation, team, marks, turn)
        received.fill_(float("nan"))  # what nobody writes must not look right
        mine.write(sent)
        CALLS[operation](team, part, full)
        if operation == "reduce_scatter":
            right = right.after(team.index * len(part))
        if fault := right.fault(received):
            raise ProfilerError(
                f"{operation} over {team.size} ranks gave {fault}: "
                "the network or its library is broken, its times mean nothing"
            )


def _patterns(operation: Operation, team: Team, marks: Marks, turn: int) -> tuple[Pattern, Pattern]:
    """What this rank sends, and what it should get; of an all-to-all every block is a message."""
    everyone = torch.arange(team.size)
    me = everyone[team.index : team.index + 1]
    if operation in SUMS:
        return marks.of(me, turn), marks.sums(turn)
    if operation == "all_gather":
        return marks.of(me, turn), marks.of(everyone, turn)
    return marks.of(me * team.size + everyone, turn), marks.of(everyone * team.size + me, turn)


def message_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Messages from one end of a pair to the other, all pairs at once: in a node, across nodes."""
    near = product(_pairs(place), sizes(request, place))
    far = product(_strided_pairs(place), strided_sizes(request, place))
    for shape, size in chain(near, far):
        case = Case("p2p", shape, size)
        measure = partial(_message, case, request, place)
        yield task(place, str(case), measure, together=True)


def _pairs(place: Place) -> Iterator[Shape]:
    local = place.local_world_size
    if local > 1:
        yield Shape(2, 2)
    if place.num_nodes > 1:
        yield Shape(2, 1, stride=local)


def _strided_pairs(place: Place) -> Iterator[Shape]:
    """Pairs in a node that are not next to each other: pipeline ranks of several GPUs each."""
    return (shape for shape in strided_shapes(place) if shape.ranks == 2)


def partner(shape: Shape, place: Place) -> int | None:
    """The other rank of a pair; null for one that is left over."""
    local = place.local_world_size
    if shape.per_node == 2:
        second = place.local_rank // shape.stride % 2
        there = place.local_rank + (-shape.stride if second else shape.stride)
        return place.rank - place.local_rank + there if there < local else None
    node = place.rank // local ^ 1
    return node * local + place.local_rank if node < place.num_nodes else None


def _message(case: Case, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    dtype = dtype_of(working_precision(request, place))
    tensor = torch.zeros(case.size // dtype.itemsize, device=device_of(place), dtype=dtype)
    other = partner(case.shape, place)
    _check_message(tensor, other, place)
    yield case.point(case.size, clock.time_together(lambda: _send(tensor, other, place)))


def _send(tensor: Tensor, other: int | None, place: Place) -> None:
    """From the lower rank of a pair to the higher one."""
    if other is not None:
        work = (dist.isend if place.rank < other else dist.irecv)(tensor, other)
        if work is not None:
            work.wait()


def _check_message(tensor: Tensor, other: int | None, place: Place) -> None:
    """Send what tells the sender once.

    Raises:
        ProfilerError: Something else arrived.
    """
    if other is None:
        return
    sender = min(place.rank, other)
    right = Marks(1, tensor.dtype, device_of(place)).of(torch.tensor([sender]), 0)
    if sender == place.rank:
        right.write(tensor)
    else:
        tensor.fill_(float("nan"))
    _send(tensor, other, place)
    if fault := right.fault(tensor):
        raise ProfilerError(
            f"a message from rank {sender} to rank {place.rank} arrived changed, {fault}: "
            "the network or its library is broken, its times mean nothing"
        )


COLLECTIVES = Item("collectives", "collectives by size and shape of group", collective_tasks)
P2P = Item("p2p", "messages between neighbours", message_tasks)
