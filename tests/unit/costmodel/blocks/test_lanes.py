"""Exchanges of experts on lanes, against lanes that are run operation by operation."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from trainplan.costmodel.blocks.lanes import Computed, paired_seconds, share_alone

CONTENTION = Fraction(1, 8)


def run(lanes, seconds, after, contention=CONTENTION):
    """When all operations of all lanes end, each lane in its order.

    `gpu` computes at 1 - contention of its speed while any other lane is busy.
    """
    left, done, clock = dict(seconds), set(), Fraction(0)
    while len(done) < len(left):
        heads = [next((one for one in order if one not in done), None) for order in lanes.values()]
        active = [one for one in heads if one and done.issuperset(after.get(one, ()))]
        ended = [one for one in active if not left[one]]
        if not ended:
            sending = any(one not in lanes["gpu"] for one in active)
            speed = {one: 1 - contention * (sending and one in lanes["gpu"]) for one in active}
            step = min(left[one] / speed[one] for one in active)
            clock += step
            for one in active:
                left[one] -= step * speed[one]
        done.update(ended)
    return clock


def as_columns(*values):
    return [np.array([float(one)]) for one in values]


def paired(first, second, behind, weights, ahead):
    computed = Computed(*as_columns(behind, weights, ahead))
    return paired_seconds(*as_columns(first, second), computed, float(CONTENTION))[0]


def test_two_exchanges_beside_two_passes_take_what_the_lanes_take():
    draw = random.Random(1)
    for _ in range(300):
        seconds = {name: Fraction(draw.randint(0, 9)) for name in ("d", "c", "p", "w", "q")}
        lanes = {"gpu": ("p", "w", "q"), "wire": ("d", "c")}
        exact = run(lanes, seconds, {"c": ("p",), "q": ("d",)})
        assert paired(*seconds.values()) == pytest.approx(float(exact))


@pytest.mark.parametrize("delayed", [False, True])
def test_layers_of_two_micro_batches_take_both_halves_of_each(delayed):
    """Megatron Core's order: mixers, experts back, their weights, experts, mixers back, weights.

    What of a pair of layers runs before they first meet is left to the pair before.
    """
    draw, layers = random.Random(2), 5
    for _ in range(40):
        names = ("mix", "back", "back_w", "experts", "mix_back", "mix_w")
        own = {name: Fraction(draw.randint(1, 9)) for name in names}
        if not delayed:
            own |= {"back_w": Fraction(0), "mix_w": Fraction(0)}
        wire = {name: Fraction(draw.randint(1, 9)) for name in ("cb", "df", "db", "cf")}
        seconds, after, gpu, sent = {}, {}, [], []
        for layer in range(layers):
            name = {one: (one, layer) for one in (*own, *wire)}
            seconds |= {name[one]: (own | wire)[one] for one in name}
            gpu += [name[one] for one in names]
            sent += [name[one] for one in wire]
            after |= {
                name["back"]: (name["cb"],),
                name["df"]: (name["mix"],),
                name["db"]: (name["back"],),
                name["experts"]: (name["df"],),
                name["cf"]: (name["experts"],),
                name["mix_back"]: (name["db"],),
            }
            if layer:
                after |= {
                    name["cb"]: (("mix_back", layer - 1),),
                    name["mix"]: (("cf", layer - 1),),
                }
        exact = run({"gpu": gpu, "wire": sent}, seconds, after)
        experts = paired(wire["df"], wire["db"], own["back"], own["back_w"], own["experts"])
        mixers = paired(wire["cf"], wire["cb"], own["mix_back"], own["mix_w"], own["mix"])
        first = max(wire["cb"], own["mix"] + CONTENTION * wire["cb"])
        alone = paired(wire["cf"], 0, own["mix_back"], own["mix_w"], 0)
        expected = float(first) + layers * experts + (layers - 1) * mixers + alone
        assert float(exact) == pytest.approx(expected)


def pipelined(pp, microbatches, forward, backward, more):
    """Seconds of 1F1B with one warm-up pass more, where passes alone take `more` longer."""
    ends, clock = {}, [0] * pp
    orders = []
    for rank in range(pp):
        warm = min(microbatches, pp - rank)
        order = [("f", one, True) for one in range(warm)]
        for one in range(microbatches - warm):
            order += [("b", one, False), ("f", warm + one, False)]
        orders.append(order + [("b", microbatches - warm + one, True) for one in range(warm)])
    while any(orders):
        for rank, order in enumerate(orders):
            if not order:
                continue
            kind, one, alone = order[0]
            before = (kind, one, rank - 1) if kind == "f" else (kind, one, rank + 1)
            before = ("f", one, rank) if kind == "b" and rank == pp - 1 else before
            if before in ends or (kind == "f" and rank == 0):
                start = max(clock[rank], ends.get(before, 0))
                clock[rank] = start + (forward if kind == "f" else backward) + alone * more
                ends[kind, one, rank] = clock[rank]
                order.pop(0)
    return max(clock)


@pytest.mark.parametrize(("pp", "microbatches"), [*itertools.product((1, 2, 4), (1, 4, 12))])
def test_passes_without_an_opposite_one_lengthen_a_step_by_their_share(pp, microbatches):
    share = share_alone(*(np.array([one]) for one in (pp, 1, microbatches)))[0]
    rounds = microbatches + pp - 1
    assert pipelined(pp, microbatches, 2, 4, 1) == pytest.approx(rounds * (6 + 2 * share))
    assert share_alone(*(np.array([one]) for one in (8, 4, 2)))[0] == 1, "never more than all"
