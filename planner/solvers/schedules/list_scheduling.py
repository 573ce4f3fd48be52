"""Schedules by rules of thumb: each rank starts what its rule likes best among what can start.

Ranks never deadlock. A forward pass through the j-th of v virtual stages of a rank starts only
where, for every virtual stage k >= j, the rank then holds at most M - (v - 1 - k) activations of
its first k + 1 stages: there is always room for a micro batch that is on its way to go through
the deeper stages, to turn round, and to free what it held.

Source: the room named lets a micro batch that is on its way enter every deeper stage, so one that
is deepest can always turn round, free what it held, and let another go on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from trainplan.costmodel.program import Op, Pass
from trainplan.costmodel.schedules import BACKWARD, FORWARD, KINDS, OPS, WEIGHT, Order
from trainplan.planner.solvers.schedules.instance import Instance

PATIENCE = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """What a rank likes."""

    ranking: tuple[int, int]
    """Which of F and B goes first."""
    alternate: bool
    """After an F prefer a B, after a B an F, over `ranking`."""
    patience: float
    """Parts of its own duration for which a less liked op waits for a better one."""
    oldest: bool
    """Among ops of a kind the oldest micro batch goes first, else the deepest stage."""
    spare: int = 0
    """Activations that every rank leaves unused."""


def priority_rules(limit: int, vpp: int) -> Iterator[PriorityRule]:
    """Rules of thumb, the most promising first."""
    for spare in (0, 1, 2) if vpp > 1 else (0,):
        if limit - spare < vpp:
            return
        for alternate, patience, oldest, ranking in product(
            (False, True),
            PATIENCE,
            (False, True) if vpp > 1 else (False,),
            ((BACKWARD, FORWARD), (FORWARD, BACKWARD)),
        ):
            yield PriorityRule(ranking, alternate, patience, oldest, spare)


class DispatchState:
    """Ops that have run, and when what is left can start; micro batches go in turn."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.ends: list[list[list[float]]] = [
            [[] for _ in range(instance.num_stages)] for _ in KINDS
        ]
        self.clock = [0.0] * instance.pp
        self.held = [[0] * len(row) for row in instance.stages]
        self.order: Order = [[] for _ in range(instance.pp)]
        self.limit = instance.limit

    def input_end(self, kind: int, stage: int) -> float | None:
        """When the input of a stage's next op of a kind is there; None while nobody knows."""
        number = len(self.ends[kind][stage])
        if number == self.instance.num_microbatches:
            return None
        source = self.instance.source(kind, stage)
        if source is None:
            return 0.0
        sent = self.ends[source[0]][source[1]]
        if number >= len(sent):
            return None
        return sent[number] + self.instance.latency(stage, source[1])

    def may_start(self, rank: int, chunk: int) -> bool:
        """May a rank start a forward pass through its virtual stage number `chunk`?"""
        counts = self.held[rank]
        below, deeper = sum(counts[:chunk]), len(counts) - 1 - chunk
        for reserve in range(deeper, -1, -1):
            below += counts[len(counts) - 1 - reserve]
            if below >= self.limit - reserve:
                return False
        return True

    def run(self, kind: int, stage: int, start: float) -> None:
        """Run a stage's next op of a kind."""
        rank = self.instance.rank_of[stage]
        done = self.ends[kind][stage]
        self.order[rank].append(Pass(OPS[kind], stage, len(done)))
        end = start + self.instance.durations[kind][stage]
        done.append(end)
        self.clock[rank] = end
        if kind != BACKWARD:
            chunk = self.instance.stages[rank].index(stage)
            self.held[rank][chunk] += 1 if kind == FORWARD else -1

    def affected_ranks(self, kind: int, stage: int) -> set[int]:
        """Ranks whose choice an op may change: its own, and that of who waits for it."""
        ranks = {self.instance.rank_of[stage]}
        if kind == FORWARD and stage + 1 < self.instance.num_stages:
            ranks.add(self.instance.rank_of[stage + 1])
        if kind == BACKWARD and stage > 0:
            ranks.add(self.instance.rank_of[stage - 1])
        return ranks


Choice = tuple[float, int, int]
"""When an op can start, its kind and its stage."""


def list_schedule(instance: Instance, priority: PriorityRule) -> Order:
    """Order of ops by one rule of thumb."""
    state = DispatchState(instance)
    state.limit -= priority.spare
    choices = [_choice(state, rank, priority) for rank in range(instance.pp)]
    while True:
        known = [choice for choice in choices if choice is not None]
        if not known:
            return state.order
        start, kind, stage = min(known)
        state.run(kind, stage, start)
        for rank in state.affected_ranks(kind, stage):
            choices[rank] = _choice(state, rank, priority)


def _choice(state: DispatchState, rank: int, priority: PriorityRule) -> Choice | None:
    """What the rank starts next, as far as it knows now."""
    options: list[Choice] = []
    for chunk, stage in enumerate(state.instance.stages[rank]):
        for kind in KINDS:
            if kind == FORWARD and not state.may_start(rank, chunk):
                continue
            arrival = state.input_end(kind, stage)
            if arrival is not None:
                options.append((max(arrival, state.clock[rank]), kind, stage))
    if len(options) <= 1:
        return options[0] if options else None
    first = min(options)
    wait = first[0] + priority.patience * state.instance.durations[first[1]][first[2]]
    preferred = _preferred(state, rank, priority)
    return min(
        (one for one in options if one[0] <= wait),
        key=lambda one: _key(one, state, priority, preferred),
    )


def _preferred(state: DispatchState, rank: int, priority: PriorityRule) -> Sequence[int]:
    """Kinds of op, the best first."""
    order = state.order[rank]
    if priority.alternate and order:
        for done in reversed(order):
            if done.kind != Op.WEIGHT:
                return (
                    (BACKWARD, FORWARD, WEIGHT)
                    if done.kind == FORWARD
                    else (FORWARD, BACKWARD, WEIGHT)
                )
    return (*priority.ranking, WEIGHT)


def _key(
    choice: Choice, state: DispatchState, priority: PriorityRule, preferred: Sequence[int]
) -> tuple[int, float, float, float]:
    start, kind, stage = choice
    microbatch = len(state.ends[kind][stage]) if priority.oldest else 0
    deep = stage if kind == FORWARD else -stage
    return preferred.index(kind), microbatch, -deep if kind == FORWARD else stage, start
