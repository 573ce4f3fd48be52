"""The layer that the runtime `torch-eager` describes, in torch, as one tensor-parallel rank has it.

Heads and MLP are cut, what is left whole in Megatron-LM is whole here, and no collective runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainplan.costmodel.architecture import MlaSpec, ModelSpec
from trainplan.profiler.bench.inputs.tensors import Tensors
from trainplan.profiler.bench.layers.experts import Experts
from trainplan.profiler.bench.layers.modules import (
    Linear,
    Mlp,
    Norm,
    Sharding,
    Weights,
    hidden_norm,
)
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Rotary positions; `table` holds cosines and sines, (2, sequence, head)."""
    low, high = x.chunk(2, -1)
    return x * table[0] + torch.cat((-high, low), -1) * table[1]


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention over (batch, heads, sequence, dim), as (batch, sequence, heads * dim)."""
    grouped = query.shape[1] != key.shape[1]
    result = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=grouped
    )
    return result.transpose(1, 2).flatten(2)


class Attention:
    """Queries, keys and values of some heads, and the output projection."""

    def __init__(self, weights: Weights, model: ModelSpec, tp: int) -> None:
        h, d, bias = model.hidden_size, model.head_dim, model.qkv_bias
        heads = max(1, model.num_attention_heads // tp)
        groups = max(1, model.num_key_value_heads // tp)
        self.head_dim, self.whole_norm = d, model.qk_norm == "full"
        self.query = Linear(weights, h, heads * d, bias=bias)
        self.key = Linear(weights, h, groups * d, bias=bias)
        self.value = Linear(weights, h, groups * d, bias=bias)
        self.output = Linear(weights, heads * d, h, bias=model.attention_output_bias)
        self.norms: tuple[Norm, ...] = ()
        if model.qk_norm != "none":
            sizes = (heads * d, groups * d) if self.whole_norm else (d, d)
            self.norms = tuple(Norm(weights, model, size, layer=False) for size in sizes)

    def __call__(self, x: Tensor, table: Tensor | None) -> Tensor:
        """The half of a layer behind its norm."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.norms and self.whole_norm:
            query, key = self.norms[0](query), self.norms[1](key)
        rows, heads = x.shape[:-1], (-1, self.head_dim)
        query, key, value = (t.view(*rows, *heads) for t in (query, key, value))
        if self.norms and not self.whole_norm:
            query, key = self.norms[0](query), self.norms[1](key)
        query, key, value = (t.transpose(1, 2) for t in (query, key, value))
        if table is not None:
            query, key = rotated(query, table), rotated(key, table)
        return self.output(attended(query, key, value))


class LatentAttention:
    """Multi-head latent attention (arXiv:2405.04434, section 2.1); down projections are whole."""

    def __init__(self, weights: Weights, model: ModelSpec, mla: MlaSpec, tp: int) -> None:
        h, bias = model.hidden_size, model.qkv_bias
        self.mla, self.heads = mla, max(1, model.num_attention_heads // tp)
        self.query_down: Linear | None = None
        if mla.q_lora_rank:
            self.query_down = Linear(weights, h, mla.q_lora_rank, bias=bias)
            self.query_norm = Norm(weights, model, mla.q_lora_rank, layer=False)
        width = self.heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        self.query = Linear(weights, mla.q_lora_rank or h, width)
        self.down = Linear(weights, h, mla.kv_lora_rank + mla.qk_rope_head_dim, bias=bias)
        self.norm = Norm(weights, model, mla.kv_lora_rank, layer=False)
        up = self.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        self.up = Linear(weights, mla.kv_lora_rank, up)
        bias = model.attention_output_bias
        self.output = Linear(weights, self.heads * mla.v_head_dim, h, bias=bias)

    def __call__(self, x: Tensor, table: Tensor | None) -> Tensor:
        """The half of a layer behind its norm."""
        assert table is not None, "latent attention rotates a part of every head"
        mla, rows, nope = self.mla, x.shape[:-1], self.mla.qk_nope_head_dim
        latent = self.query_norm(self.query_down(x)) if self.query_down else x
        query = self.query(latent).view(*rows, self.heads, -1).transpose(1, 2)
        query = torch.cat((query[..., :nope], rotated(query[..., nope:], table)), -1)
        down = self.down(x)
        latent, turned = down[..., : mla.kv_lora_rank], down[..., mla.kv_lora_rank :]
        up = self.up(self.norm(latent)).view(*rows, self.heads, -1).transpose(1, 2)
        key, value = up[..., :nope], up[..., nope:]
        turned = rotated(turned.unsqueeze(1), table).expand(-1, self.heads, -1, -1)
        key, value = torch.cat((key, turned), -1), value.clone()  # frees what both were cut from
        return self.output(attended(query, key, value))


class Layer:
    """One layer, its norms before each half, after it, or both."""

    def __init__(
        self, tensors: Tensors, model: ModelSpec, sharding: Sharding, *, moe: bool
    ) -> None:
        weights = Weights(tensors, [])
        self.parameters: list[Tensor] = weights.made
        self.position, self.parallel = model.norm_position, model.parallel_residual
        count = 4 if self.position == "both" else 2
        self.norms = [hidden_norm(weights, model) for _ in range(count)]
        self.attention: Callable[[Tensor, Tensor | None], Tensor]
        if model.mla:
            self.attention = LatentAttention(weights, model, model.mla, sharding.tp)
        else:
            self.attention = Attention(weights, model, sharding.tp)
        self.mlp: Callable[[Tensor], Tensor]
        if moe and model.moe:
            self.mlp = Experts(weights, model, model.moe, sharding)
        else:
            width = max(1, model.intermediate_size // sharding.tp)
            self.mlp = Mlp(weights, model, width, bias=model.mlp_bias)

    def __call__(self, x: Tensor, table: Tensor | None) -> Tensor:
        """Hidden state behind the layer."""
        norms = self.norms
        if self.position == "post":
            x = x + norms[0](self.attention(x, table))
            return x + norms[1](self.mlp(x))
        if self.position == "both":
            x = x + norms[1](self.attention(norms[0](x), table))
            return x + norms[3](self.mlp(norms[2](x)))
        if self.parallel:
            return x + self.attention(norms[0](x), table) + self.mlp(norms[1](x))
        x = x + self.attention(norms[0](x), table)
        return x + self.mlp(norms[1](x))


def rotation(tensors: Tensors, model: ModelSpec, seq_length: int) -> Tensor | None:
    """Cosines and sines; nothing where positions are learned."""
    if model.position_embedding != "rope":
        return None
    width = model.mla.qk_rope_head_dim if model.mla else model.head_dim
    return tensors.normal(2, seq_length, width).clamp_(-1, 1)
