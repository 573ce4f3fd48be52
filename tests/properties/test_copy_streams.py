"""Whatever the items: the floor never exceeds the longest path, which any clock finds too."""

from dataclasses import replace
from itertools import count, product

import numpy as np
import pytest

from trainplan.costmodel.copy_streams.offloaded_step import step_work
from trainplan.costmodel.copy_streams.placement import (
    Offloaded,
    Place,
    Placement,
    Quantities,
    Speeds,
    deepspeed_offload_policy,
)
from trainplan.costmodel.copy_streams.transfer_volume import Lane, Order
from trainplan.costmodel.copy_streams.work import Item, Part, Work, binding, timeline

LANES = list(Lane)
STRUCTURES, ROWS = 200, 50


def random_items(rng, names, rows, *, whole=False):
    items = []
    for _ in range(rng.integers(1, 7)):
        known = [*names, *(item.name for item in items)]
        after = tuple(rng.choice(known, rng.integers(0, min(3, len(known) + 1)), replace=False))
        name = f"item {rng.integers(0, 5)} of {len(names)}"
        seconds = rng.integers(0, 5, rows) if whole else rng.exponential(1.0, rows)
        items.append(Item(name, LANES[rng.integers(0, len(LANES))], seconds * 1.0, after))
    return tuple(items)


def random_work(rng, rows=ROWS, *, whole=False):
    parts, names = [], []
    for _ in range(rng.integers(1, 5)):
        order = list(Order)[rng.integers(0, 3)]
        items = random_items(rng, names, rows, whole=whole)
        aside = ()
        if order is Order.CHAIN and rng.integers(0, 2):
            aside = random_items(rng, names, rows, whole=whole)
        names += [item.name for item in (*items, *aside) if item.name not in names]
        parts.append(Part(items, order, int(rng.integers(0, 6)), aside))
    return Work(tuple(parts), rows)


@pytest.fixture(scope="module")
def works():
    rng = np.random.default_rng(7)
    return [random_work(rng) for _ in range(STRUCTURES)]


def test_ten_thousand_random_programs_never_end_before_their_floor(works):
    assert STRUCTURES * ROWS == 10_000
    for work in works:
        assert np.all(work.floor <= work.makespan * (1 + 1e-12) + 1e-12)


def test_the_floor_is_reached_by_some_programs_and_missed_by_others(works):
    reached = np.concatenate([work.floor >= work.makespan * (1 - 1e-9) for work in works])
    assert 0.1 < reached.mean() < 0.9


def test_walking_every_round_finds_the_same_end_as_multiplying_them(works):
    for work in works[:100]:
        for row in (0, 1):
            end = max((span.end for span in timeline(work, row)), default=0.0)
            assert work.makespan[row] == pytest.approx(end, rel=1e-12)


def test_lanes_on_the_longest_path_add_up_to_it(works):
    for work in works[:100]:
        assert sum(binding(work).values()) == pytest.approx(work.makespan[0], rel=1e-12)


@pytest.mark.parametrize("lane", LANES)
def test_a_faster_lane_never_makes_the_step_longer(works, lane):
    for work in works[:40]:
        assert np.all(work.saved_seconds(lane, 2.0) >= -1e-9)
        assert np.all(work.saved_seconds(lane, 2.0) <= work.makespan + 1e-9)


def test_twice_the_speed_of_a_lane_is_worth_at_most_half_of_its_seconds_on_a_path_that_binds(works):
    for work in works[:40]:
        on_path = binding(work)
        for lane in LANES:
            assert work.saved_seconds(lane)[0] <= on_path.get(lane, 0.0) / 2 + 1e-9


def test_lanes_without_work_add_nothing_to_the_last_digit(works):
    for work in works:
        alone = work.only(Lane.GPU)
        assert np.all(alone.exposed == 0.0)
        for row in (0, 1):
            spans = [span for span in timeline(alone, row) if span.lane is Lane.GPU]
            own = sum(span.end - span.start for span in spans)
            assert alone.makespan[row] == pytest.approx(own, rel=1e-12)


def ticks(work):
    """An event simulation in whole seconds that knows queues and waiting, no paths."""
    numbers = count()
    queues, waits, seconds, ended = {lane: [] for lane in LANES}, {}, {}, set()
    latest, barrier, issued = {}, frozenset(), []
    for part in work.parts:
        for _ in range(part.rounds):
            if part.order is not Order.OVERLAPPED:
                barrier = frozenset(issued)
            previous = None
            for place, item in enumerate((*part.items, *part.aside)):
                index = next(numbers)
                after = {latest[name] for name in item.after if name in latest} | barrier
                if part.order is Order.CHAIN and place < len(part.items) and previous is not None:
                    after = after | {previous}
                waits[index], seconds[index] = after, round(float(np.ravel(item.seconds)[0]))
                queues[item.lane].append(index)
                latest[item.name] = previous = index
                issued.append(index)
        if part.order is not Order.OVERLAPPED:
            barrier = frozenset(issued)
    return run(queues, waits, seconds, ended)


def run(queues, waits, seconds, ended):
    now, running = 0, {}
    while any(queues.values()) or running:
        moved = True
        while moved:
            moved = False
            for lane, (index, end) in list(running.items()):
                if end <= now:
                    ended.add(index)
                    del running[lane]
                    moved = True
            for lane, queue in queues.items():
                if queue and lane not in running and waits[queue[0]] <= ended:
                    index = queue.pop(0)
                    running[lane] = (index, now + seconds[index])
                    moved = True
        now += 1 if running else 0
    return now


def test_a_clock_that_ticks_finds_the_same_end():
    rng = np.random.default_rng(11)
    for _ in range(300):
        work = random_work(rng, 1, whole=True)
        assert work.makespan[0] == ticks(work)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("overlaps", [False, True])
def test_a_clock_that_ticks_finds_the_same_end_of_steps_of_few_layers(layers, overlaps):
    rng = np.random.default_rng(layers)
    policy = deepspeed_offload_policy(3, overlap_comm=overlaps, pipelined=overlaps)
    policy = replace(policy, subgroups=2)
    for place, checkpoints, batches in product(Place, (0.0, 1.0), (1, 2, 3)):
        whole = [np.full((1, 1), float(number)) for number in (layers, *rng.integers(0, 6, 5))]
        quantities = Quantities(
            np.array([batches]), *whole, np.array([2.0 * layers]), np.array([4.0 * layers])
        )
        placement = Placement(
            optimizer=1.0,
            optimizer_place=place or Place.HOST,
            parameters=place,
            checkpoints=checkpoints,
            checkpoints_place=place or Place.HOST,
        )
        work = step_work(Offloaded(quantities, Speeds(1.0, 1.0, 1.0, 1.0, 1.0), placement, policy))
        assert work.makespan[0] == ticks(work)


def test_an_item_that_waits_for_a_name_no_item_has_is_refused():
    with pytest.raises(ValueError, match="waits for"):
        Work((Part((Item("a", Lane.GPU, 1.0, ("b",)),)),))


def test_rounds_that_run_beside_each_other_are_those_written_out():
    rng = np.random.default_rng(3)
    for _ in range(50):
        part = Part(random_items(rng, [], 4), Order.OVERLAPPED, 7)
        once = Work((replace(part, rounds=1),) * 7, 4)
        assert Work((part,), 4).makespan == pytest.approx(once.makespan, rel=1e-12)
