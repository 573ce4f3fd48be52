"""Who waits for rows of more attention work, against hand counts, draws and a clock."""

from itertools import product

import numpy as np
import pytest

from trainplan.costmodel.job.job import LengthSpec, Lognormal, TrainingSpec
from trainplan.costmodel.lengths import Waiting, rows_of, waiting_factor
from trainplan.costmodel.lengths.waits import grid, heaviest_path, largest_of, mean, mean_of

WORKS = np.array([0.5, 0.5, 2.0])


@pytest.mark.parametrize(("draws", "ranks"), list(product((1, 2, 3), (1, 2, 3))))
def test_the_expected_largest_mean_is_that_of_all_outcomes(draws, ranks):
    sums = np.array([np.mean(one) for one in product(WORKS, repeat=draws)])
    largest = np.mean([max(one) for one in product(sums, repeat=ranks)])
    found = mean(largest_of(mean_of(grid(WORKS, 2.25), draws), ranks), 2.25)
    assert found == pytest.approx(largest, rel=1e-3)


def test_many_draws_keep_mean_and_spread():
    density = mean_of(grid(WORKS, 2.25), 256)
    places = np.arange(len(density)) / (len(density) - 1) * 2.25
    spread = places**2 @ density - (places @ density) ** 2
    assert places @ density == pytest.approx(1.0)
    assert spread == pytest.approx(0.5 / 256, rel=0.05)


def rows(packing, sigma=1.2, seq_length=32_768):
    lengths = LengthSpec(lognormal=Lognormal(mean=4096, sigma=sigma))
    return rows_of(
        TrainingSpec(seq_length=seq_length, global_batch_size=64, lengths=lengths, packing=packing),
        0.0,
        0,
    )


def factor(packing, *, replicas=1, in_step=1, microbatches=1, size=1, pipeline=1):
    case = Waiting(replicas, in_step, microbatches, size, pipeline)
    return waiting_factor(rows(packing), case, balanced=packing == "balanced")


@pytest.mark.parametrize("packing", ["greedy", "balanced"])
def test_one_rank_alone_waits_for_nobody(packing):
    assert factor(packing, microbatches=16) == pytest.approx(1.0, rel=5e-3)


def test_equal_sequences_make_nobody_wait():
    equal = rows_of(
        TrainingSpec(
            seq_length=1000,
            global_batch_size=1,
            lengths=LengthSpec(counts=((500, 1),)),
            packing="greedy",
        ),
        0.0,
        0,
    )
    for case in (Waiting(8, 1, 4, 1, 1), Waiting(8, 8, 4, 2, 4)):
        assert waiting_factor(equal, case, balanced=False) == pytest.approx(1.0, rel=1e-9)


def test_more_ranks_wait_longer_and_more_micro_batches_even_out():
    by_ranks = [factor("greedy", replicas=n, microbatches=4) for n in (1, 2, 8, 64)]
    assert by_ranks == sorted(by_ranks)
    by_length = [factor("greedy", replicas=8, microbatches=n) for n in (1, 4, 16, 64)]
    assert by_length == sorted(by_length, reverse=True)


def test_ranks_that_meet_in_every_layer_never_wait_less():
    for pipeline, packing in product((1, 4), ("greedy", "balanced")):
        seen = [
            factor(packing, replicas=8, in_step=n, microbatches=8, pipeline=pipeline)
            for n in (1, 8)
        ]
        assert seen == sorted(seen)


def test_balanced_rows_wait_less():
    for case in ({"replicas": 8}, {"pipeline": 4}, {"replicas": 4, "in_step": 4}):
        assert factor("balanced", microbatches=16, **case) < factor(
            "greedy", microbatches=16, **case
        )


def order_of(rank, depth, count):
    """Passes of a rank in one-forward-one-backward: (is it forward, micro batch)."""
    ahead = min(depth - 1 - rank, count)
    forwards = [(True, number) for number in range(count)]
    order = forwards[:ahead]
    for number in range(count):
        order += [*forwards[ahead + number : ahead + number + 1], (False, number)]
    return order


def clocked(depth, works, linear):
    """Ends of pipelines whose micro batches differ, each pass as soon as it may start."""
    lines, count = works.shape
    left = [order_of(rank, depth, count) for rank in range(depth)]
    clock, ends = [np.zeros(lines) for _ in left], {}
    while any(left):
        for rank, order in enumerate(left):
            while order:
                forward, number = order[0]
                if forward:
                    before = (True, rank - 1, number) if rank else None
                else:
                    before = (rank == depth - 1, min(rank + 1, depth - 1), number)
                if before and before not in ends:
                    break
                start = np.maximum(clock[rank], ends[before]) if before else clock[rank]
                ends[forward, rank, number] = clock[rank] = start + linear + works[:, number]
                order.pop(0)
    return np.max(clock, axis=0)


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_a_pipeline_takes_as_long_as_a_clock_says(depth):
    works = rows("greedy").work
    top, count, linear = float(works[-1]), 64, 10.0
    drawn = np.random.default_rng(1).choice(works, (64, count))
    slots = 2 * (count + depth - 1)
    seen = (clocked(depth, drawn, linear) - slots * linear).mean() / slots
    path = heaviest_path(grid(works, top), top, depth)
    written = 1 + (path - 1) * count / (count + depth - 1)
    assert written == pytest.approx(seen, rel=0.07)
    assert written <= mean(largest_of(grid(works, top), depth), top), "no more than the heaviest"
