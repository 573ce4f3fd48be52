"""Adapters: the matrices they stand beside, their parameters, and bytes of 4-bit weights.

Source: Hu et al., LoRA, arXiv:2106.09685, section 4.1: beside a matrix of m outputs and n inputs
stand two of r columns and rows, r (m + n) parameters; Dettmers et al., QLoRA, arXiv:2305.14314.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.architecture import (
    ATTENTIONS,
    LinearAttentionSpec,
    ModelSpec,
    Projection,
    adapted,
    projections,
)
from trainplan.costmodel.mixers import linear_of, ssm_input_columns, ssm_of
from trainplan.costmodel.model.params import (
    expert_hidden,
    output_gate_columns,
    query_columns,
    value_columns,
)

JOINED: tuple[tuple[Projection, ...], ...] = (("q", "k", "v"), ("gate", "up"), ("in_proj",))
"""Projections of one input that a runtime may have as one matrix."""
Cut = Literal["columns", "rows", "whole"]
Sizes = Iterator[tuple[Projection, int, int, Cut]]
"""Inputs and outputs of each matrix of a projection, and how tensor parallelism divides it."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of a layer."""

    projections: tuple[Projection, ...]
    inputs: int
    outputs: int
    cut: Cut
    """How tensor parallelism divides it."""
    experts: bool = False
    """Every routed expert has one."""

    @property
    def size(self) -> int:
        """Weights."""
        return self.inputs * self.outputs

    def adapter_params(self, rank: int) -> int:
        """Parameters of one adapter. Source: as this module."""
        return rank * (self.inputs + self.outputs)


def matrices(kind: ModelSpec) -> tuple[Matrix, ...]:
    """Those of a layer of a model with one kind, each by itself; of the experts one.

    Source: as `costmodel.model.params`; Shoeybi et al., arXiv:1909.08053, section 3 (the cuts).
    """
    names = projections(kind)
    sizes = (*_attention(kind), *_carried(kind), *_side_products(kind))
    listed = [Matrix((name,), m, n, cut) for name, m, n, cut in sizes if name in names]
    if kind.feed_forward != "moe" or kind.moe is None:
        return (*listed, *_mlp(kind, kind.intermediate_size))
    shared = kind.moe.shared_expert_intermediate_size
    routed = _mlp(kind, kind.moe.moe_intermediate_size, experts=True)
    return (*listed, *routed, *(_mlp(kind, shared) if shared else ()))


def _attention(kind: ModelSpec) -> Sizes:
    """Of attention; a gate on the output of plain heads is a part of the queries' projection."""
    if kind.mixer not in ATTENTIONS:
        return
    h, mla, low, gate = kind.hidden_size, kind.mla, kind.low_rank, output_gate_columns(kind)
    query, value = query_columns(kind), value_columns(kind)
    rank = (mla.q_lora_rank if mla else low and low.query_rank) or h
    yield "q", h, query + gate, "columns"
    yield "q_down", h, rank, "whole"
    yield "q_up", rank, query, "columns"
    yield "k", h, kind.num_key_value_heads * kind.head_dim, "columns"
    yield "v", h, kind.num_key_value_heads * (kind.value_head_dim or kind.head_dim), "columns"
    if mla:
        both = kind.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        yield "kv_down", h, mla.kv_lora_rank + mla.qk_rope_head_dim, "whole"
        yield "kv_up", mla.kv_lora_rank, both, "columns"
    out = low.output_rank if low and not mla else None
    if low and out:
        yield "o_down", value // low.output_groups, out, "columns"
    yield "o", out or value, h, "rows"
    yield "output_gate", h, gate, "columns"
    if kind.indexer:
        yield "index_q", rank, kind.indexer.num_heads * kind.indexer.head_dim, "whole"
        yield "index_k", h, kind.indexer.head_dim, "whole"
        yield "index_weights", h, kind.indexer.num_heads, "whole"


def _carried(kind: ModelSpec) -> Sizes:
    """Of mixers that carry a state, and of short convolutions."""
    h = kind.hidden_size
    if kind.mixer == "convolution":
        yield "in_proj", h, 3 * h, "columns"
        yield "out_proj", h, h, "rows"
    if kind.mixer in ("mamba", "attention_and_mamba"):
        ssm = ssm_of(kind)
        inner, rank = ssm.inner_width, ssm.time_step_rank or 0
        yield "in_proj", h, ssm_input_columns(ssm), "columns"
        yield "x_proj", inner, rank + ssm.group_width, "columns"
        yield "dt_proj", rank, inner, "columns"
        yield "out_proj", inner, h, "rows"
    if kind.mixer == "linear_attention":
        linear = linear_of(kind)
        key, value, rank = linear.key_width, linear.value_width, linear.gate_rank or 0
        for columns in _linear_inputs(kind.model_type, linear):
            yield "in_proj", h, columns, "columns"
        for columns in (key, value):
            yield "low_down", h, rank, "whole"
            yield "low_up", rank, columns, "columns"
        yield "out_proj", value, h, "rows"


def _linear_inputs(family: str | None, linear: LinearAttentionSpec) -> tuple[int, ...]:
    """Columns of the linear layers that read the input of linear attention.

    Source: transformers `models/qwen3_next/modeling_qwen3_next.py` (in_proj_qkvz, in_proj_ba),
    `models/olmo_hybrid` (q, k, v, g, b and a_proj),
    `models/qwen3_5/modeling_qwen3_5.py` (in_proj_qkv, z, b and a), `models/kimi_linear` (q, k, v
    and b_proj) and `models/minimax/modeling_minimax.py` (qkv_proj, output_gate).
    """
    key, value, heads = linear.key_width, linear.value_width, linear.num_value_heads
    if linear.rule == "kda":
        return key, key, value, heads
    if linear.rule == "lightning":
        return 2 * key + value, value
    if family == "qwen3_next":
        return 2 * (key + value), 2 * heads
    if family == "olmo_hybrid":
        return key, key, value, value, heads, heads
    return 2 * key + value, value, heads, heads


def _side_products(kind: ModelSpec) -> Sizes:
    """Of small products beside both halves, and around experts in a latent width."""
    for inputs, outputs in kind.side_products:
        yield "side", inputs, outputs, "whole"
    latent = (kind.moe and kind.moe.latent_size) or 0
    yield "latent_in", kind.hidden_size, latent, "whole"
    yield "latent_out", latent, kind.hidden_size, "whole"


def _mlp(kind: ModelSpec, width: int, *, experts: bool = False) -> tuple[Matrix, ...]:
    names = [name for name in projections(kind) if name in ("gate", "up")]
    hidden = expert_hidden(kind) if experts else kind.hidden_size
    ups = [Matrix((name,), hidden, width, "columns", experts) for name in names]
    down = Matrix(("down",), width, hidden, "rows", experts)
    return (*ups, down) if names else ()


def adapted_matrices(kind: ModelSpec, *, joined: bool) -> tuple[Matrix, ...]:
    """Those with adapters; where a runtime joins matrices, one beside all that are joined.

    Of matrices of which only some have adapters each has its own.
    """
    chosen = adapted(kind)
    own = [one for one in matrices(kind) if one.projections[0] in chosen]
    if not joined:
        return tuple(own)
    for group in JOINED:
        whole = [name for name in group if name in projections(kind)]
        if whole and set(whole) <= set(chosen):
            own = _joined(own, group)
    return tuple(own)


def _joined(own: list[Matrix], group: tuple[Projection, ...]) -> list[Matrix]:
    """The same with neighbours of a group, of each MLP or of a mixer, as one matrix."""
    result: list[Matrix] = []
    for one in own:
        last = result[-1] if result else one
        if result and {last.projections[0], one.projections[0]} <= set(group):
            both = dict.fromkeys((*last.projections, *one.projections))
            result[-1] = replace(last, projections=tuple(both), outputs=last.outputs + one.outputs)
        else:
            result.append(one)
    return result


BLOCK, SCALES = 64, 256
"""Weights that share a scale, and scales that share another. Source: QLoRA, arXiv:2305.14314,
section 3: blocks of 64 for the weights, of 256 for the scales."""
TABLES_BYTES = 4 * 16 + 4 * 256 + 4
"""Of every matrix: the 16 levels of a weight and the 256 of a scale in fp32, and the mean of the
scales. Source: bitsandbytes `functional.py`, QuantState: code, state2.code and offset."""


def nf4_bytes(weights: int, *, scales: bool = False) -> int:
    """Bytes of a matrix in 4 bits, or of its scales alone: of 8 bits, that have scales of 32.

    Source: QLoRA, arXiv:2305.14314, section 3, equation 5; bitsandbytes `functional.py`,
    quantize_4bit with compress_statistics.
    """
    blocks = -(-weights // BLOCK)
    levels = 0 if scales else -(-weights // 2)
    return levels + blocks + 4 * -(-blocks // SCALES) + TABLES_BYTES


def quantised_bytes(kind: ModelSpec, *, scales: bool = False) -> int:
    """Bytes of the matrices of a layer in 4 bits, linear layers alone, or of their scales.

    Source: `nf4_bytes`, of each matrix by itself; QLoRA, arXiv:2305.14314, section 3.
    """
    return sum(nf4_bytes(one.size, scales=scales) for one in matrices(kind))
