"""What the logits of torchtitan's loss take from the device: more than is ever alive."""

import pytest

from tests.oracles.best_fit import BestFit, ReservedBytes
from trainplan.costmodel.runtimes.traits.kernels import HEAD_BYTES

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch._subclasses import FakeTensorMode  # noqa: E402

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    ("tokens", "vocab"), [(16_384, 128_256), (32_768, 128_256), (4_096, 32_000)]
)
def test_an_eager_loss_reserves_the_logits_beside_its_peak(tokens, vocab, steps):
    """The logits are deleted before the backward pass, as torchtitan does."""
    with FakeTensorMode(), ReservedBytes() as seen:
        head = torch.nn.Linear(64, vocab, bias=False, dtype=torch.bfloat16)
        head.weight.grad = torch.zeros_like(head.weight)
        labels = torch.zeros(tokens, dtype=torch.int64)
        before, reserved = seen.now, seen.allocator.reserved
        for _ in range(steps):
            x = torch.empty(tokens, 64, dtype=torch.bfloat16, requires_grad=True)
            logits = head(x)
            loss = torch.nn.functional.cross_entropy(logits.float(), labels)
            del logits
            loss.backward()
            del x, loss
    each = 1 / (tokens * vocab)
    assert (seen.peak - before) * each == pytest.approx(HEAD_BYTES["eager"], rel=0.01)
    written = HEAD_BYTES["eager"] + 2  # the deleted logits, in 16 bits, are reserved still
    assert (seen.allocator.reserved - reserved) * each == pytest.approx(written, rel=0.01)


def test_a_vocab_parallel_loss_of_megatron_holds_six_bytes_a_logit(monkeypatch):
    """Logits in 16 bits beside one copy in fp32, on one rank: its all-reduces do nothing."""
    name = "megatron.core.tensor_parallel.cross_entropy"
    theirs = pytest.importorskip(name, reason="the oracle needs megatron-core: run `make oracles`")
    parts = {"get_tensor_model_parallel_rank": 0, "get_tensor_model_parallel_world_size": 1}
    for part, value in {**parts, "get_tensor_model_parallel_group": None}.items():
        monkeypatch.setattr(theirs, part, lambda value=value: value)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **settings: None)
    tokens, vocab = 4_096, 32_000
    with FakeTensorMode(), ReservedBytes() as seen:
        labels = torch.zeros(tokens, dtype=torch.int64)
        before = seen.now
        logits = torch.empty(tokens, vocab, dtype=torch.bfloat16, requires_grad=True)
        theirs.vocab_parallel_cross_entropy(logits * 1, labels).sum().backward()
    seen_bytes = (seen.peak - before) / (tokens * vocab)
    assert seen_bytes - 2 == pytest.approx(HEAD_BYTES["unfused"], rel=0.01)  # 2: `logits` itself


def test_a_hole_is_filled_where_it_fits_best_and_neighbours_become_one():
    allocator = BestFit()
    starts = [allocator.take(size) for size in (4, 2, 8, 2)]
    assert starts == [0, 4, 6, 14]
    allocator.give_back(0, 4)
    allocator.give_back(6, 8)
    assert allocator.take(3) == 0
    allocator.give_back(4, 2)
    assert allocator.take(11) == 3
    allocator.give_back(14, 2)
    assert allocator.take(6) == 14
    assert allocator.reserved == 20
