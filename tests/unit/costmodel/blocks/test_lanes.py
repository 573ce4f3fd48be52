"""Exchanges of experts on lanes, against lanes that are run operation by operation."""

import itertools
import random
from fractions import Fraction

import numpy as np
import pytest

from trainplan.costmodel.blocks.lanes import Computed, chunked_seconds, exposed_of_pair, share_alone

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
    exposed = exposed_of_pair(*as_columns(first, second), computed, float(CONTENTION))[0]
    return float(behind + weights + ahead) + exposed


def test_two_exchanges_overlapping_two_passes_take_what_the_lanes_take():
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


def chunked(chunks, *stages):
    return float(chunked_seconds(chunks, [(lane, np.float64(each)) for lane, each in stages]))


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_no_order_of_chunks_on_one_wire_is_faster(chunks):
    """All orders in which a wire sends what is dispatched and combined."""
    sent, brought = ([(kind, one) for one in range(chunks)] for kind in "dc")
    kept = []
    for places in itertools.combinations(range(2 * chunks), chunks):
        two = {True: iter(sent), False: iter(brought)}
        order = [next(two[place in places]) for place in range(2 * chunks)]
        if all(order.index(("d", n)) < order.index(("c", n)) for n in range(chunks)):
            kept.append(order)  # chunks are alike: each kind in turn
    computed = [("e", one) for one in range(chunks)]
    after = {("e", one): (("d", one),) for one in range(chunks)}
    after |= {("c", one): (("e", one),) for one in range(chunks)}
    draw = random.Random(3)
    for _ in range(20):
        own = dict(zip("dec", (Fraction(draw.randint(1, 9)) for _ in "dec"), strict=True))
        seconds = {(kind, one): own[kind] for kind in "dec" for one in range(chunks)}
        lanes = ({"gpu": computed, "wire": order} for order in kept)
        fastest = min(run(one, seconds, after, Fraction(0)) for one in lanes)
        found = chunked(chunks, ("wire", own["d"]), ("gpu", own["e"]), ("wire", own["c"]))
        assert found == pytest.approx(float(fastest))


@pytest.mark.parametrize("chunks", [2, 4, 8])
def test_gathers_on_a_lane_of_their_own_overlap_other_chunks(chunks):
    kinds = ("wire", "links", "gpu", "links", "wire")
    draw = random.Random(4)
    for _ in range(20):
        own = [Fraction(draw.randint(1, 9)) for _ in kinds]
        pieces = [(stage, one) for stage in range(5) for one in range(chunks)]
        lanes = {
            lane: [piece for piece in pieces if kinds[piece[0]] == lane] for lane in set(kinds)
        }
        after = {(stage, one): ((stage - 1, one),) for stage, one in pieces if stage}
        exact = run(lanes, {piece: own[piece[0]] for piece in pieces}, after, Fraction(0))
        apart = chunked(chunks, *zip(kinds, own, strict=True))
        assert apart == pytest.approx(float(exact))
        joined = own[0] + own[1], own[2], own[3] + own[4]
        one_wire = chunked(chunks, *zip(("wire", "gpu", "wire"), joined, strict=True))
        assert apart <= one_wire * 2
