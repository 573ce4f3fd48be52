"""Stages to fill with layers: random small problems, pipelines, and every answer there is."""

import time
from itertools import combinations, product
from math import comb

import numpy as np
from hypothesis import strategies as st

from trainplan.planner.solvers.layer_assignment import LayerAssignment, allowed

MOST_ANSWERS = 2000
"""Of a small problem, order apart."""


class Deadline:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def seconds_left(self):
        return self.end - time.monotonic()


class Looks:
    """A deadline that comes after a number of looks at it."""

    def __init__(self, looks):
        self.looks = looks

    def seconds_left(self):
        self.looks -= 1
        return 60.0 if self.looks >= 0 else 0.0


def shares(layers, parts):
    for bars in combinations(range(layers + parts - 1), parts - 1):
        ends = (-1, *bars, layers + parts - 1)
        yield [ends[i + 1] - ends[i] - 1 for i in range(parts)]


def every_answer(problem):
    """All allowed counts with their values, the best first."""
    kinds = np.array(problem.kind_of_way)
    found = []
    for cut in shares(len(problem.layers), len(problem.least)):
        if (cut < problem.least).any() or (cut > problem.most).any():
            continue
        begin, stages = 0, []
        for n in cut:
            held, begin = problem.layers[begin : begin + n], begin + n
            ways = [list(shares(held.count(k), (kinds == k).sum())) for k in sorted(set(kinds))]
            stages.append(list(product(*ways)))
        for choice in product(*stages):
            counts = np.zeros((len(cut), len(kinds)), np.int64)
            for s, parts in enumerate(choice):
                for k, part in zip(sorted(set(kinds)), parts, strict=True):
                    counts[s, kinds == k] = part
            found.append(counts)
    found = [counts for counts in found if allowed(problem, counts)]
    return sorted(((problem.value(c), c) for c in found), key=lambda pair: pair[0])


@st.composite
def problems(draw):
    """Few stages and layers; one or two kinds, in runs or in any pattern; a few rows and needs."""
    stages, kinds = draw(st.integers(2, 5)), draw(st.integers(1, 2))
    ways = draw(st.integers(kinds, 3))
    number = draw(st.integers(3, 9))
    while comb(number + stages * ways - 1, number) > MOST_ANSWERS and number > 3:
        number -= 1
    if draw(st.booleans()):
        first = draw(st.integers(0, number))
        layers = (0,) * first + (kinds - 1,) * (number - first)
    else:
        layers = tuple(draw(st.lists(st.integers(0, kinds - 1), min_size=number, max_size=number)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    whole = draw(st.booleans())
    groups = draw(st.integers(1, 3))
    rows, needs = draw(st.integers(groups, 8)), draw(st.integers(0, 4))
    least = rng.integers(0, 2, stages)

    def coefficients(*shape):
        numbers = rng.integers(0, 6, shape).astype(np.float64) if whole else rng.random(shape)
        return numbers * (rng.random(shape) < 0.7)

    return LayerAssignment(
        layers=layers,
        kind_of_way=(*range(kinds), *rng.integers(0, kinds, ways - kinds).tolist()),
        costs=coefficients(rows, stages, ways),
        constants=coefficients(rows),
        group=np.concatenate([np.arange(groups), rng.integers(0, groups, rows - groups)]),
        needs=coefficients(needs, stages, ways),
        capacities=rng.integers(0, 3 * number, needs) * (1.0 if whole else 0.4),
        least=least,
        most=least + rng.integers(0, number + 1, stages),
    )


def pipeline(stages, layers, ways, dense=0, memory=1.0):
    """A pipeline of one stage a rank that recomputes in up to four ways, 64 micro batches.

    The step is the slowest rank's work on all micro batches but one, and one micro batch through
    all; then the slowest reduction of gradients. Earlier ranks hold more micro batches.
    """
    kinds = (0,) * dense + (1,) * (layers - dense) if dense else (0,) * layers
    of = np.repeat(np.arange(max(kinds) + 1), ways)
    seconds = (0.01 + 0.0037 * of) * np.tile([1.0, 1.07, 1.18, 1.33][:ways], max(kinds) + 1)
    held = (0.5 + 0.2 * of) * np.tile([1.0, 0.6, 0.35, 0.08][:ways], max(kinds) + 1)
    weights, rank = 1.4 + 0.5 * of, np.arange(stages)
    ends = np.where(rank == 0, 0.003, np.where(rank == stages - 1, 0.017, 0.0))
    own = np.eye(stages)[:, :, None]
    return LayerAssignment(
        layers=kinds,
        kind_of_way=tuple(of.tolist()),
        costs=np.concatenate([own * 63 * seconds + seconds, own * 0.002 * weights]),
        constants=np.concatenate([ends.sum() + 63 * ends, 0.5 * ends]),
        group=np.repeat([0, 1], stages),
        needs=own * (weights + held * (stages - rank)[:, None, None]),
        capacities=memory * layers / stages * (1.6 + 0.4 * stages) - 100 * ends,
        least=np.zeros(stages, np.int64),
        most=np.full(stages, int(2.5 * layers / stages)),
    )
