"""Layers in flight on a rank at least, against every way to place them."""

from itertools import combinations, product

import numpy as np
import pytest

from trainplan.costmodel.program.held_activations import held_moments
from trainplan.costmodel.program.ops import EQUAL
from trainplan.costmodel.timeline.cycles import named_program
from trainplan.planner.stages.bounds.layer_capacity import Layers, held_layers
from trainplan.planner.stages.problem.memory import fullest_moment

SHAPES = [("1f1b", 3, 1, 6), ("interleaved", 2, 2, 4), ("interleaved", 3, 3, 6)]


def chunks(layers, vpp):
    """Layers of every chunk, the longer ones anywhere."""
    base, more = divmod(layers, vpp)
    return [
        [base + (chunk in longer) for chunk in range(vpp)]
        for longer in combinations(range(vpp), more)
    ]


def ways(number, others, vpp):
    """Layers of one kind in every chunk, beside at most so many others."""
    for alongside in range(others + 1):
        for sizes in chunks(number + alongside, vpp):
            for held in product(*(range(size + 1) for size in sizes)):
                if sum(held) == number:
                    yield held


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_way_to_place_layers_holds_fewer_in_flight(shape, others):
    passes = fullest_moment(*shape)
    held = held_layers(*shape, Layers(0, 5, others, others_first=False), alike=True)
    for rank, number in product(range(shape[1]), range(6)):
        least = min(
            sum(n * p for n, p in zip(way, passes[rank], strict=True))
            for way in ways(number, others, shape[2])
        )
        assert held.layers[rank, number] <= least
        if not others:
            assert held.layers[rank, number] == least


def spread(layers, vpp):
    """Layers of every chunk in all ways."""
    return [way for way in product(range(layers + 1), repeat=vpp) if sum(way) == layers]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_moment_holds_more_than_all_that_may_be_fullest(shape):
    program = named_program(*shape, EQUAL)
    change = program.starts_pass.astype(np.int64) - program.frees
    chunk = (program.stage // program.pp)[..., None] == np.arange(shape[2])
    held = np.cumsum(change[..., None] * chunk, axis=1)
    for moments, every in zip(held_moments(program), held, strict=True):
        assert {tuple(one) for one in moments} <= {tuple(one) for one in every}
        assert (moments[:, None] >= every[None]).all(axis=2).any(axis=0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_no_way_to_spread_layers_over_chunks_holds_fewer_in_flight(shape):
    held = held_layers(*shape, Layers(0, 9, 0, others_first=False))
    ends = {0, shape[1] * shape[2] - 1}
    program = named_program(*shape, EQUAL)
    for rank, moments in enumerate(held_moments(program)):
        inner = [rank + chunk * shape[1] not in ends for chunk in range(shape[2])]
        for number in range(sum(inner), 10):
            ways = np.array(spread(number, shape[2]))
            ways = ways[(ways >= inner).all(axis=1)]
            least = (ways @ moments.T).max(axis=1).min()
            assert held.layers[rank, number] <= least * (1 + 1e-9)
            assert held.layers[rank, number] >= moments.min() * number * (1 - 1e-9)
