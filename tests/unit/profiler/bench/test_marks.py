"""Collectives are checked without false alarms, and no wrong element is overlooked."""

import random
from itertools import product

import numpy as np
import pytest

from tests.unit.profiler.bench.orders_of_addition import ORDERS
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.task import Place

torch = pytest.importorskip("torch", reason="collectives need torch")
from trainplan.profiler.bench import collectives  # noqa: E402
from trainplan.profiler.bench.collectives import CALLS, SUMS, Team, check  # noqa: E402
from trainplan.profiler.bench.inputs import marks as inputs_of_checks  # noqa: E402
from trainplan.profiler.bench.inputs.marks import PERIOD, Marks  # noqa: E402

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
RANKS = (2, 3, 8, 33, 129, 256, 500, 2048, 16384)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("ranks", RANKS)
def test_sums_are_exact_in_every_order_of_addition(ranks, name, monkeypatch):
    monkeypatch.setattr(inputs_of_checks, "PERIOD", 61)  # of a million sums these are enough
    marks = Marks(ranks, FORMATS[name])
    turn = random.Random(ranks).randrange(marks.rounds)
    given, right = marks.of(torch.arange(ranks), turn), marks.sums(turn)
    parts = given.numbers.float().numpy()
    expected = right.numbers[0].float().numpy()
    assert (expected > 0).all(), "zeros would hide a buffer that nobody wrote"
    for order, add in ORDERS.items():
        assert (add(name, parts) == expected).all(), order


def test_the_numbers_1_to_n_would_not_be_exact():
    """What the simulation can tell: rounding spoils plain sums in every order."""
    parts = np.repeat(np.arange(1.0, 257.0, dtype=np.float32)[:, None], 32, axis=1)
    for order, add in ORDERS.items():
        assert (add("bf16", parts) != parts.sum(0)).any(), order


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_is_part_of_every_element_in_one_round(ranks, name):
    marks = Marks(ranks, FORMATS[name])
    some = torch.tensor(sorted(random.Random(1).sample(range(ranks), min(ranks, 8))))
    parts = sum((marks.of(some, turn).numbers != 0).int() for turn in range(marks.rounds))
    assert (parts == 1).all()


@pytest.mark.parametrize(("ranks", "rounds"), [(8, 1), (128, 1), (512, 4), (16384, 128)])
def test_rounds_grow_with_the_ranks_beyond_128_in_bf16(ranks, rounds):
    assert Marks(ranks, torch.bfloat16).rounds == rounds
    assert Marks(1, torch.bfloat16).rounds == 1


class Network:
    """Collectives of ranks that this process plays, with a fault where one is given."""

    def __init__(self, ranks, index, dtype, fault=None):
        self.team = Team(None, ranks, index, "cpu", dtype)
        self.fault, self.turn, self.found = fault, 0, 0

    def sent(self, operation, part, full, rank):
        tensor = torch.empty_like(full if operation in SUMS else part)
        if operation in SUMS:
            mine = Marks(self.team.size, self.team.dtype).of(torch.tensor([rank]), self.turn)
        else:
            team = Team(None, self.team.size, rank, "cpu", self.team.dtype)
            mine, _ = collectives._patterns(operation, team, Marks(1, team.dtype), self.turn)
        mine.write(tensor)
        return tensor

    def call(self, operation, team, part, full):
        every = [self.sent(operation, part, full, rank) for rank in range(team.size)]
        share = len(full) // team.size
        mine = slice(team.index * share, (team.index + 1) * share)
        result = {
            "all_reduce": lambda: sum(each.double() for each in every),
            "reduce_scatter": lambda: sum(each.double() for each in every)[mine],
            "all_gather": lambda: torch.cat(every),
            "alltoall": lambda: torch.cat([each[mine] for each in every]),
        }[operation]()
        out = part if operation == "reduce_scatter" else full
        before = out.clone()
        out.copy_(result)
        if self.fault:
            self.fault(out, before, every)
        self.turn += 1


def run(network, operation, count, monkeypatch):
    monkeypatch.setitem(CALLS, operation, lambda *sent: network.call(operation, *sent))
    ranks = network.team.size
    part = network.team.zeros(count if operation == "alltoall" else count // ranks)
    check(operation, network.team, part, network.team.zeros(count))


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("index", [0, 2])
def test_collectives_that_work_pass(operation, name, index, monkeypatch):
    run(Network(3, index, FORMATS[name]), operation, 3 * 5000, monkeypatch)


def flipped(bit):
    def fault(out, before, every):
        out.view(torch.int16)[777] ^= 1 << bit

    return fault


def stale(out, before, every):
    out[777] = before[777]


def swapped(out, before, every):
    out[777:1289], out[-512:] = out[-512:].clone(), out[777:1289].clone()


FAULTS = {
    "lowest bit": flipped(0),
    "exponent": flipped(9),
    "sign": flipped(14),
    "stale": stale,
    "swapped blocks": swapped,
}


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_element_is_found(operation, fault, monkeypatch):
    network = Network(4, 1, torch.bfloat16, FAULTS[fault])
    with pytest.raises(ProfilerError, match=rf"{operation} over 4 ranks .* is right \(element"):
        run(network, operation, 2**14, monkeypatch)


@pytest.mark.parametrize("operation", sorted(set(CALLS) - {"all_reduce"}))
def test_what_an_earlier_check_left_is_not_taken_for_a_result(operation, monkeypatch):
    network = Network(4, 1, torch.bfloat16)
    part = network.team.zeros(64 if operation == "alltoall" else 16)
    full = network.team.zeros(64)
    monkeypatch.setitem(CALLS, operation, lambda *sent: network.call(operation, *sent))
    check(operation, network.team, part, full)
    monkeypatch.setitem(CALLS, operation, lambda *_: None)
    with pytest.raises(ProfilerError, match="gave nan"):
        check(operation, network.team, part, full)


@pytest.mark.parametrize("operation", SUMS)
def test_ranks_that_are_added_in_later_rounds_are_missed_too(operation, monkeypatch):
    """Of 130 ranks 65 are part of an element in each of two rounds."""

    def without_a_rank(out, before, every):
        if operation == "all_reduce":
            out[5] -= every[8][5]
        else:
            out[0] -= every[8][61]

    network = Network(130, 61, torch.bfloat16)
    run(network, operation, 130, monkeypatch)
    assert network.turn == 2
    with pytest.raises(ProfilerError, match="over 130 ranks"):
        run(Network(130, 61, torch.bfloat16, without_a_rank), operation, 130, monkeypatch)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("ranks", [8, 512, 16384])
def test_a_rank_that_is_not_added_once_is_found_in_one_element_of_a_million(ranks, name):
    marks, draw = Marks(ranks, FORMATS[name]), random.Random(ranks)
    rank, element = draw.randrange(ranks), draw.randrange(10**6)
    sender = torch.tensor([rank])
    turn = next(
        turn for turn in range(marks.rounds) if marks.of(sender, turn).numbers[0, element % PERIOD]
    )
    given, found = torch.zeros(10**6, dtype=FORMATS[name]), torch.zeros(10**6, dtype=FORMATS[name])
    marks.of(sender, turn).write(given)
    right = marks.sums(turn)
    right.write(found)
    assert not right.fault(found)
    for step, times in enumerate((-1, 1, 1)):  # left out, added once, added twice
        found[element] += times * given[element]
        written = right.fault(found)
        assert bool(written) == (step != 1)
        assert not written or f"(element {element} of block 0, 1 of 1000000" in written


@pytest.mark.parametrize(("one", "other"), [(0, 1), (0, 128), (5, 133), (17, 401)])
def test_a_rank_in_the_place_of_another_is_found_in_a_block(one, other):
    """Of 512 in bf16, a rank is part of one element in four, with one of two numbers."""
    both = Marks(512, torch.bfloat16).of(torch.tensor([one, other]), 0).numbers[:, :512].int()
    assert (both[0] != both[1]).sum() > 512 / 4 / 4


@pytest.mark.parametrize(
    ("rows", "columns", "first"), [(1, 2_500_000, 0), (1, 2_500_000, 77), (3, 700_000, 5)]
)
def test_an_element_holds_what_its_place_in_the_whole_tensor_says(rows, columns, first):
    pattern = Marks(1, torch.float32).of(torch.arange(rows), 0).after(first)
    tensor = torch.zeros(rows * columns)
    pattern.write(tensor)
    assert not pattern.fault(tensor)
    at = torch.arange(first, first + columns)
    right = pattern.numbers[:, at % PERIOD] * pattern.scales[at % pattern.scales.numel()]
    assert torch.equal(tensor.view(rows, columns), right)


def test_blocks_that_are_a_power_of_two_apart_differ():
    tensor = torch.zeros(2**20)
    Marks(8, torch.float32).sums(0).write(tensor)
    for power in range(3, 20):
        assert (tensor[: 2**19] != tensor.roll(-(2**power))[: 2**19]).double().mean() > 0.9


@pytest.mark.parametrize(("rank", "arrives"), [(0, True), (1, True), (1, False)])
def test_a_message_that_arrives_changed_is_found_wherever_it_is_changed(rank, arrives, monkeypatch):
    place, tensor = Place("cpu", rank, 2, rank, 2), torch.zeros(10**6, dtype=torch.bfloat16)

    def send(sent, other, where):
        if rank == 1:
            Marks(1, sent.dtype).of(torch.tensor([0]), 0).write(sent)
            sent[654_321] += 0 if arrives else 4

    monkeypatch.setattr(collectives, "_send", send)
    if arrives:
        collectives._check_message(tensor, 1 - rank, place)
    else:
        with pytest.raises(ProfilerError, match=r"from rank 0 to rank 1 arrived changed, .*654321"):
            collectives._check_message(tensor, 1 - rank, place)


def test_all_shares_of_an_exchange_differ():
    marks = Marks(1, torch.bfloat16)
    messages = [
        marks.of(torch.tensor([8 * i + j]), 0).numbers[0, :64]
        for i, j in product(range(8), repeat=2)
    ]
    assert len({tuple(message.tolist()) for message in messages}) == 64
