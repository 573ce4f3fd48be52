"""One training step of the reference decoder on fake tensors: nothing is computed."""

from typing import NamedTuple

import pytest

from tests.oracles.decoder import Decoder
from tests.oracles.live_bytes import LiveBytes, saved_bytes

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch._subclasses import FakeTensorMode  # noqa: E402


def bf16_decoder(model, **options):
    """A decoder whose weights are bf16 from the start."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return Decoder(model, **options)
    finally:
        torch.set_default_dtype(before)


def layer_kept_bytes(model, micro_batch_size, seq_length, *, fused=True):
    """Bytes one layer keeps from its forward to its backward pass, its input with them."""
    with FakeTensorMode():
        decoder = bf16_decoder(model, fused=fused)
        layer, table = decoder.layers[0], decoder.table(seq_length)
        shape = (micro_batch_size, seq_length, model.hidden_size)
        x = torch.empty(shape, dtype=torch.bfloat16, requires_grad=True)
        owned = [*layer.parameters(), *(() if table is None else (table,))]
        return saved_bytes(lambda: layer(x, table), owned)


class StepBytes(NamedTuple):
    resident: int
    """Weights, fp32 weights, both moments and fp32 gradients, and the inputs of the step."""
    peak: int
    at: str
    """The operation after which most is alive."""


def step_bytes(
    model, micro_batch_size, seq_length, *, fused=True, recompute="none", prepare=lambda _: None
):
    """Bytes alive in a step that is not the first: before it, and at its fullest moment.

    Weights and activations in bf16; gradients are added to an fp32 buffer as soon as each exists;
    a fused Adam updates an fp32 copy of the weights, which is cast back. `prepare` is called with
    the decoder before; weights that it freezes have neither.
    """
    with FakeTensorMode(), LiveBytes() as live:
        decoder = bf16_decoder(model, fused=fused, recompute=recompute)
        prepare(decoder)
        weights = [weight for weight in decoder.parameters() if weight.requires_grad]
        masters = [torch.empty(weight.shape, dtype=torch.float32) for weight in weights]
        for weight, master in zip(weights, masters, strict=True):
            master.grad = torch.zeros_like(master)
            weight.register_post_accumulate_grad_hook(adder(master.grad))
        optimizer = torch.optim.AdamW(masters, fused=True)
        ids = torch.zeros(micro_batch_size, seq_length, dtype=torch.int64)
        table = decoder.table(seq_length)
        optimizer.step()  # makes the moments
        live.restart()
        resident = live.now
        decoder(ids, ids, table).backward()
        optimizer.step()
        with torch.no_grad():
            for weight, master in zip(weights, masters, strict=True):
                weight.copy_(master)
                master.grad.zero_()
        return StepBytes(resident, live.peak, live.at)


def adder(total):
    """A hook that adds a gradient to its total and frees it."""

    def add(weight):
        total.add_(weight.grad)
        weight.grad = None

    return add
