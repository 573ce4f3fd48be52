"""The instruments themselves: stand-ins compute what torch does, and bytes are counted right."""

import pytest

from tests.oracles.decoder import Decoder, torch
from tests.oracles.kernels import fused_rms_norm
from tests.oracles.live_bytes import LiveBytes, saved_bytes
from tests.oracles.shapes import SMALL, changed
from tests.oracles.step import bf16_decoder, layer_kept_bytes
from tests.oracles.test_saved_activations import SEED_BYTES

pytestmark = pytest.mark.oracle


def attention(query, key, value):
    kernel = torch.nn.functional.scaled_dot_product_attention
    return kernel(query, key, value, is_causal=True, enable_gqa=True)


def test_the_fused_norm_is_the_norm_of_torch():
    torch.manual_seed(0)
    x, weight = torch.randn(3, 5, 16), torch.randn(16)
    results = []
    for norm in (
        lambda x, w: fused_rms_norm(x, w, 1e-5),
        lambda x, w: torch.nn.functional.rms_norm(x, (16,), w, 1e-5),
    ):
        leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        result = norm(*leaves)
        result.square().sum().backward()
        results.append([result, *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_real_tensors_are_kept_as_fake_ones_are():
    """With the flash kernel for CPUs, which keeps no random state."""
    model = changed(SMALL, num_hidden_layers=1, vocab_size=64)
    decoder = bf16_decoder(model)
    table = decoder.table(64)
    x = torch.zeros(2, 64, model.hidden_size, dtype=torch.bfloat16, requires_grad=True)

    def core(query, key, value):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        return kernel(query, key, value, is_causal=True)[0]

    layer = decoder.layers[0]
    real = saved_bytes(lambda: layer(x, table, core), [*layer.parameters(), table])
    assert real == layer_kept_bytes(model, 2, 64) - SEED_BYTES


def test_a_slice_keeps_the_whole_tensor():
    whole = torch.zeros(2, 1000, requires_grad=True).exp()
    assert saved_bytes(lambda: whole[:, :1].exp() + whole[:, 1:2].sin(), []) == 8000 + 8


def test_live_bytes_rise_and_fall():
    with LiveBytes() as live:
        first = torch.zeros(1000)
        second = first + 1
        view = second[:10]
        del first
        third = torch.zeros(500)
    assert live.peak == 8000
    assert live.at.startswith("aten.add")
    assert live.now == 6000
    del second
    assert live.now == 6000
    del view, third
    assert live.now == 0


def test_a_repeated_layer_gives_the_same_gradients():
    torch.manual_seed(0)
    model = changed(SMALL, num_hidden_layers=2, hidden_size=64, intermediate_size=96, vocab_size=50)
    ids = torch.randint(50, (2, 32))
    gradients = []
    for recompute in ("none", "full"):
        torch.manual_seed(1)
        decoder = Decoder(model, fused=False, recompute=recompute)
        for weight in decoder.parameters():
            torch.nn.init.normal_(weight, std=0.1)
        for layer in decoder.layers:
            layer.core = attention
        decoder(ids, ids, decoder.table(32)).backward()
        gradients.append([weight.grad for weight in decoder.parameters()])
    for kept, repeated in zip(*gradients, strict=True):
        torch.testing.assert_close(kept, repeated)
