"""Bytes of tiles against DeepSpeed's own tiled operations on fake tensors."""

import math

import numpy as np
import pytest

from tests.oracles.live_bytes import LiveBytes
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.rank import backward_bytes
from trainplan.costmodel.memory.tiles import (
    hidden_gradient_columns,
    tile_bytes_per_logit,
    tiled_mlp_columns,
)
from trainplan.costmodel.runtimes.traits.tiling import loss_tiles
from trainplan.costmodel.shards import mlp_tiles
from trainplan.costmodel.step import price

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
ulysses = pytest.importorskip(
    "deepspeed.runtime.sequence_parallel.ulysses_sp",
    reason="DeepSpeed is not installed: its tiled operations are not compared",
)
from torch._subclasses import FakeTensorMode  # noqa: E402

pytestmark = pytest.mark.oracle
functional = torch.nn.functional
BF16 = 2
UNIFORM = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


class Mlp(torch.nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate = torch.nn.Linear(hidden, width, bias=False, dtype=torch.bfloat16)
        self.up = torch.nn.Linear(hidden, width, bias=False, dtype=torch.bfloat16)
        self.down = torch.nn.Linear(width, hidden, bias=False, dtype=torch.bfloat16)
        for weight in self.parameters():
            weight.grad = torch.zeros_like(weight)


def mlp_forward(mlp, x):
    return mlp.down(functional.silu(mlp.gate(x)) * mlp.up(x))


def tiled_mlp_bytes(hidden, width, tokens, tiles):
    """Largest sum beside the input, the output's gradient, weights and their gradients."""
    with FakeTensorMode(), LiveBytes() as live:
        mlp = Mlp(hidden, width)
        x, gradient = (torch.empty(1, tokens, hidden, dtype=torch.bfloat16) for _ in range(2))
        weights = [*mlp.parameters()]
        before = live.now
        output = ulysses.TiledMLP.apply(mlp_forward, mlp, x.requires_grad_(), tiles, weights)
        forward = live.peak - before
        total = gradient + output  # a sum keeps neither
        del output
        live.restart()
        total.backward(gradient)
        return max(forward, live.peak - before - total.nbytes)


def tiled_loss_bytes(hidden, vocab, tokens, tiles):
    """Largest sum beside the hidden states, the table and its gradient."""
    with FakeTensorMode(), LiveBytes() as live:
        head = torch.nn.Linear(hidden, vocab, bias=False, dtype=torch.bfloat16)
        head.weight.grad = torch.zeros_like(head.weight)
        x = torch.empty(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
        labels = torch.zeros(1, tokens, dtype=torch.int64)
        live.restart()
        before = live.now

        def loss(head, x, labels):
            logits = head(x)
            return functional.cross_entropy(logits.float(), labels) * labels.numel()

        weights = [head.weight]
        ulysses.TiledFusedLogitsLoss.apply(loss, head, x, labels, None, tiles, weights, "sum")
        return live.peak - before


def candidates(make_job, seq_length):
    job = make_job("llama3.1-8b", "1x1:h100-sxm", 1, seq_length)
    job = job.model_copy(update={"runtime": "deepspeed"})
    layout = Layout(tiled_loss=True, tiled_mlp=True)
    return context_of(job, machine_for(job)).with_table(LayoutTable.of([layout]))


@pytest.mark.parametrize("seq_length", [8192, 32_768, 131_072, 500_000])
def test_a_tiled_mlp_takes_as_many_bytes_as_deepspeeds(make_job, seq_length):
    rows = candidates(make_job, seq_length)
    model = rows.job.model
    tiles = int(mlp_tiles(rows.job, rows.table)[0])
    assert tiles == math.ceil(seq_length / model.hidden_size)
    found = tiled_mlp_bytes(model.hidden_size, model.intermediate_size, seq_length, tiles)
    written = BF16 * seq_length * tiled_mlp_columns(rows, model.intermediate_size)[0]
    assert written == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize("seq_length", [8192, 131_072, 500_000])
def test_a_tiled_loss_takes_as_many_bytes_as_deepspeeds(make_job, seq_length):
    rows = candidates(make_job, seq_length)
    model = rows.job.model
    tiles = int(loss_tiles(rows.job, rows.table)[0])
    found = tiled_loss_bytes(model.hidden_size, model.vocab_size, seq_length, tiles)
    logits = seq_length / tiles * model.vocab_size
    written = logits * tile_bytes_per_logit(rows)[0]
    written += BF16 * seq_length * hidden_gradient_columns(rows)[0]
    assert written == pytest.approx(found, rel=0.01)


class Core(torch.autograd.Function):
    """FlashAttention-2 with what its backward pass allocates."""

    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty(q.shape, dtype=q.dtype)
        ctx.save_for_backward(q, k, v, out, torch.empty(q.shape[:-1], dtype=torch.float32))
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, _, _ = ctx.saved_tensors
        made = [torch.empty_like(one) for one in (q, k, v)]
        inside = [torch.empty(q.shape, dtype=torch.float32), *map(torch.empty_like, (q, q))]
        return (*made, inside)[:3]


def attended(_module, q, k, v, _mask, **_options):
    return Core.apply(*(one.transpose(1, 2) for one in (q, k, v))), None


def layer_bytes(model, tokens, tiles):
    """Largest sum of a recomputed layer of transformers beside its input."""
    llama = pytest.importorskip(
        "transformers.models.llama.modeling_llama", reason="transformers is not installed"
    )
    config = llama.LlamaConfig(
        **{name: getattr(model, name) for name in ("hidden_size", "intermediate_size")},
        num_attention_heads=model.num_attention_heads,
        num_key_value_heads=model.num_key_value_heads,
    )
    llama.ALL_ATTENTION_FUNCTIONS["counted"] = attended
    config._attn_implementation = "counted"
    with FakeTensorMode(), LiveBytes() as live:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        layer = llama.LlamaDecoderLayer(config, 0)
        torch.set_default_dtype(before)
        for weight in layer.parameters():
            weight.grad = torch.zeros_like(weight)
        mlp, names = layer.mlp, ("gate", "up", "down")
        for name in names:
            setattr(mlp, name, getattr(mlp, f"{name}_proj"))
        weights = [*mlp.parameters()]
        mlp.forward = lambda x: ulysses.TiledMLP.apply(mlp_forward, mlp, x, tiles, weights)
        table = [torch.ones(1, tokens, model.head_dim, dtype=torch.bfloat16) for _ in range(2)]
        x = torch.empty(1, tokens, model.hidden_size, dtype=torch.bfloat16, requires_grad=True)
        output = torch.utils.checkpoint.checkpoint(
            lambda x: layer(x, position_embeddings=table),
            x,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        live.restart()
        before = live.now
        output.backward(torch.empty_like(output))
        return live.peak - before


def test_a_layer_with_a_tiled_mlp_takes_as_many_bytes_as_that_of_transformers(make_job):
    rows = candidates(make_job, 131_072)
    table = LayoutTable.of([Layout(**UNIFORM, tiled_mlp=True)])
    priced = price(context_of(rows.job, rows.machine).with_table(table))
    tokens = np.array([131_072.0])
    written = backward_bytes(priced, priced.gathered, ranks=priced.ranks, tokens=tokens)[0, 0]
    found = layer_bytes(rows.job.model, 131_072, int(mlp_tiles(rows.job, table)[0]))
    assert written == pytest.approx(found, rel=0.01)
