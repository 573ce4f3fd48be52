"""A decoder as torchtitan and the exported module have it, whole or one stage of it."""

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.profiler.train.activations import activations
from trainplan.profiler.train.torch_native.kernels import RmsNorm, SwiGlu, rotated, rotation
from trainplan.profiler.train.torch_native.ring import Ring, RingAttention


@dataclass(frozen=True, slots=True)
class Kept:
    """What the runtime's kernels keep for the backward pass."""

    norm_statistics: bool
    """One number per token of every norm."""
    activation_output: bool
    """The output of the activation of a gated unit; else both branches alone."""
    repeated_heads: bool
    """Keys and values once for every query head."""


def kept_by(traits: RuntimeTraits) -> Kept:
    """As the cost model has it of a runtime."""
    autograd = traits.autograd
    return Kept(
        norm_statistics=autograd.norm_statistics,
        activation_output=autograd.activation_output,
        repeated_heads=traits.footprint.repeats_key_values,
    )


@dataclass(frozen=True, slots=True)
class Part:
    """One virtual stage: some layers of the model, and what is in front of and behind them."""

    layers: tuple[int, ...]
    """Their numbers in the model."""
    first: bool
    """With the embedding."""
    last: bool
    """With the last norm and the head."""
    recomputed: frozenset[int]
    """Layers that run again in the backward pass."""


class Norm(nn.Module):  # type: ignore[misc]
    """RMSNorm over the hidden size."""

    def __init__(self, model: ModelSpec, kept: Kept) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(model.hidden_size))
        self.eps, self.statistics = model.norm_eps, kept.norm_statistics

    def forward(self, x: Tensor) -> Tensor:
        """Normed."""
        normed: Tensor = RmsNorm.apply(x, self.weight, self.eps, self.statistics)
        return normed


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention of grouped queries with rotated positions."""

    def __init__(self, model: ModelSpec, kept: Kept, ring: Ring) -> None:
        super().__init__()
        h, d = model.hidden_size, model.head_dim
        heads, groups = model.num_attention_heads, model.num_key_value_heads
        self.query = nn.Linear(h, heads * d, bias=False)
        self.key = nn.Linear(h, groups * d, bias=False)
        self.value = nn.Linear(h, groups * d, bias=False)
        self.output = nn.Linear(heads * d, h, bias=False)
        self.head_dim, self.kept, self.ring = d, kept, ring

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """The half of a layer behind its norm."""
        products = (self.query(x), self.key(x), self.value(x))
        q, k, v = (p.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in products)
        q, k, ratio = rotated(q, table), rotated(k, table), q.shape[1] // k.shape[1]
        if self.kept.repeated_heads and ratio > 1:
            k, v = (one.repeat_interleave(ratio, 1) for one in (k, v))
        if len(self.ring.ranks) > 1:
            out = RingAttention.apply(q, k, v, self.ring)
        else:
            grouped = k.shape != q.shape
            out = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=grouped
            )
        result: Tensor = self.output(out.transpose(1, 2).flatten(2))
        return result


class Mlp(nn.Module):  # type: ignore[misc]
    """Up and down projection, gated or not."""

    def __init__(self, model: ModelSpec, kept: Kept) -> None:
        super().__init__()
        h, width = model.hidden_size, model.intermediate_size
        self.gate = nn.Linear(h, width, bias=False) if model.gated_mlp else None
        self.up = nn.Linear(h, width, bias=False)
        self.down = nn.Linear(width, h, bias=False)
        self.activation = activations()[model.activation]
        self.at_once = model.activation == "silu" and not kept.activation_output

    def forward(self, x: Tensor) -> Tensor:
        """The half of a layer behind its norm."""
        if self.gate is None:
            inner = self.activation(self.up(x))
        elif self.at_once:
            inner = SwiGlu.apply(self.gate(x), self.up(x))
        else:
            inner = self.activation(self.gate(x)) * self.up(x)
        result: Tensor = self.down(inner)
        return result


class Layer(nn.Module):  # type: ignore[misc]
    """Both halves, each behind its norm."""

    def __init__(self, model: ModelSpec, kept: Kept, ring: Ring, *, recomputed: bool) -> None:
        super().__init__()
        self.recomputed = recomputed
        self.attention_norm, self.attention = Norm(model, kept), Attention(model, kept, ring)
        self.mlp_norm, self.mlp = Norm(model, kept), Mlp(model, kept)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Run, and run again in the backward pass where the layer is recomputed."""
        if not self.recomputed:
            return self.both_halves(x, table)
        again: Tensor = checkpoint(
            self.both_halves, x, table, use_reentrant=False, preserve_rng_state=False
        )
        return again

    def both_halves(self, x: Tensor, table: Tensor) -> Tensor:
        """Residual stream in, residual stream out."""
        x = x + self.attention(self.attention_norm(x), table)
        result: Tensor = x + self.mlp(self.mlp_norm(x))
        return result


class Decoder(nn.Module):  # type: ignore[misc]
    """A part of the model; its weights have the names they have in the whole."""

    def __init__(self, model: ModelSpec, part: Part, kept: Kept, ring: Ring, table: Tensor) -> None:
        super().__init__()
        h, vocab = model.hidden_size, model.vocab_size
        self.embedding = nn.Embedding(vocab, h) if part.first else None
        self.layers = nn.ModuleDict(
            {str(n): Layer(model, kept, ring, recomputed=n in part.recomputed) for n in part.layers}
        )
        self.norm = Norm(model, kept) if part.last else None
        self.head = nn.Linear(h, vocab, bias=False) if part.last else None
        if self.head is not None and self.embedding is not None and model.tie_word_embeddings:
            self.head.weight = self.embedding.weight
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens or hidden states in, hidden states or a rank's share of the logits out."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x, self.table)
        if self.norm is not None and self.head is not None:
            logits = self.head(self.norm(x))
            x = logits.to_local().clone() if isinstance(logits, DTensor) else logits
        return x


def table_of(model: ModelSpec, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Cosines and sines of the positions of a rank."""
    return rotation(positions, model.head_dim, model.rope_theta).to(dtype)


def start(module: nn.Module, seed: int) -> None:
    """Give weights that depend on the seed and on their names alone."""
    for name, weight in module.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        random = torch.randn(weight.shape, generator=generator)
        scaled = random * weight.shape[-1] ** -0.5 if weight.ndim > 1 else 1 + 0.1 * random
        with torch.no_grad():
            weight.copy_(scaled)
