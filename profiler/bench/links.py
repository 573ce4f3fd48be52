"""Which nodes and which GPUs have slow links: messages in pairs that change from round to round."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from trainplan.costmodel.profiles import LinkPoint, Point
from trainplan.profiler.bench.inputs.tensors import device_of, task
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import dist, torch

if TYPE_CHECKING:
    from torch import Tensor

ROUNDS = 5
"""Source: derived. In a simulation with 2 % of the nodes at 0.75 of the bandwidth and 4 % noise,
the median over 5 random rounds finds all slow nodes, with 0.1 % false alarms."""
SIZE = {"cuda": 2**25, "cpu": 2**20}
"""Bytes of a message: 32 MiB, where bandwidth counts; as much as gloo moves in some ms."""
WARM_UP_CALLS = 2

Pairing = tuple[tuple[int, int], ...]


def pairings(count: int, *, all_pairs: bool) -> Iterator[Pairing]:
    """Rounds of disjoint pairs: some random ones, or as many as bring every pair once.

    Source: derived. Circle method: one stays, the others move on by one place each round.
    """
    seats = [*range(count), *([-1] * (count % 2))]
    if all_pairs or len(seats) - 1 <= ROUNDS:
        for shift in range(len(seats) - 1):
            turned = [seats[0], *seats[1 + shift :], *seats[1 : 1 + shift]]
            yield _couples(turned, turned[::-1])
        return
    for number in range(ROUNDS):
        drawn = random.Random(number).sample(seats, len(seats))
        yield _couples(drawn, drawn[::-1])


def _couples(left: Sequence[int], right: Sequence[int]) -> Pairing:
    half = len(left) // 2
    couples = zip(left[:half], right[:half], strict=True)
    return tuple(sorted((min(c), max(c)) for c in couples if -1 not in c))


def link_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """Rounds between the GPUs of every node, then between nodes, all their GPUs at once."""
    local, nodes = place.local_world_size, place.num_nodes
    if local > 1:
        for number, pairs in enumerate(pairings(local, all_pairs=request.all_links)):
            measure = partial(_round, _gpu_pairs(pairs, place), place)
            yield task(place, f"GPUs round={number}", measure, together=True)
    if nodes > 1:
        for number, pairs in enumerate(pairings(nodes, all_pairs=request.all_links)):
            measure = partial(_round, _node_pairs(pairs, place), place)
            yield task(place, f"nodes round={number}", measure, together=True)


@dataclass(frozen=True, slots=True)
class Link:
    """Two nodes or GPUs, and the pairs of ranks that use what is between them."""

    ranks: Pairing
    across: bool


def _gpu_pairs(pairs: Pairing, place: Place) -> tuple[Link, ...]:
    firsts = range(0, place.world_size, place.local_world_size)
    return tuple(
        Link(((first + one, first + other),), across=False)
        for first in firsts
        for one, other in pairs
    )


def _node_pairs(pairs: Pairing, place: Place) -> tuple[Link, ...]:
    size = place.local_world_size
    return tuple(
        Link(tuple((one * size + i, other * size + i) for i in range(size)), across=True)
        for one, other in pairs
    )


def _round(links: tuple[Link, ...], place: Place, clock: Clock) -> Iterator[Point]:
    """Both ends of a link send and receive; on a link the slowest rank counts."""
    others = {a: b for link in links for pair in link.ranks for a, b in (pair, pair[::-1])}
    buffers = torch.zeros(2, SIZE[place.device], device=device_of(place), dtype=torch.uint8)
    # a batch of messages must not be a communicator's first use: those left over take no part in it
    dist.all_reduce(torch.zeros(1, device=device_of(place)))
    stopwatch = Stopwatch(place, partial(_exchange, buffers, others.get(place.rank)))
    clock.time_together(stopwatch.call, on_host=True)
    taken: list[tuple[str, list[float]]] = [("", [])] * place.world_size
    dist.all_gather_object(taken, (socket.gethostname(), stopwatch.taken))
    for link in links:
        one, other = link.ranks[0]
        samples = [taken[rank][1][WARM_UP_CALLS:] for pair in link.ranks for rank in pair]
        yield LinkPoint(
            source=_name(taken[one][0], one, link, place),
            target=_name(taken[other][0], other, link, place),
            num_bytes=SIZE[place.device] * len(link.ranks),
            time=clock.timing_of([max(repeat) for repeat in zip(*samples, strict=True)]),
        )


def _name(host: str, rank: int, link: Link, place: Place) -> str:
    return host if link.across else f"{host}:{rank % place.local_world_size}"


def _exchange(buffers: Tensor, other: int | None) -> None:
    if other is not None:
        sends = dist.P2POp(dist.isend, buffers[0], other)
        receives = dist.P2POp(dist.irecv, buffers[1], other)
        for work in dist.batch_isend_irecv([sends, receives]):
            work.wait()


@dataclass(slots=True)
class Stopwatch:
    """Times every call on this rank, while the clock of all ranks says how often it is made."""

    place: Place
    work: Callable[[], object]
    taken: list[float] = field(default_factory=list)
    """Seconds of each call."""

    def call(self) -> None:
        """Do the work once; waits for the GPU, which large messages do not notice."""
        begin = perf_counter()
        self.work()
        if self.place.device == "cuda":
            torch.cuda.synchronize()
        self.taken.append(perf_counter() - begin)


LINKS = Item("links", "slow links between nodes and GPUs", link_tasks, 1.2)
