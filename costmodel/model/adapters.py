"""Adapters: the matrices they stand beside, their parameters, and bytes of 4-bit weights.

Source: Hu et al., LoRA, arXiv:2106.09685, section 4.1: beside a matrix of m outputs and n inputs
stand two of r columns and rows, r (m + n) parameters; Dettmers et al., QLoRA, arXiv:2305.14314.
"""

from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.architecture import (
    MLP_PROJECTIONS,
    ModelSpec,
    Projection,
    adapted,
    projections,
)
from trainplan.costmodel.model.params import query_columns, value_columns

JOINED: tuple[tuple[Projection, ...], ...] = (("q", "k", "v"), ("gate", "up"))
"""Projections of one input that a runtime may have as one matrix."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of a layer."""

    projections: tuple[Projection, ...]
    inputs: int
    outputs: int
    cut: Literal["columns", "rows", "whole"]
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
    h, mla = kind.hidden_size, kind.mla
    sizes: dict[Projection, tuple[int, int, Literal["columns", "rows", "whole"]]] = {
        "q": (h, query_columns(kind), "columns"),
        "k": (h, kind.num_key_value_heads * kind.head_dim, "columns"),
        "v": (h, kind.num_key_value_heads * kind.head_dim, "columns"),
        "o": (value_columns(kind), h, "rows"),
    }
    if mla:
        both = kind.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        sizes["q_down"] = (h, mla.q_lora_rank or 0, "whole")
        sizes["q_up"] = (mla.q_lora_rank or h, query_columns(kind), "columns")
        sizes["kv_down"] = (h, mla.kv_lora_rank + mla.qk_rope_head_dim, "whole")
        sizes["kv_up"] = (mla.kv_lora_rank, both, "columns")
    listed = [
        Matrix((name,), *sizes[name]) for name in projections(kind) if name not in MLP_PROJECTIONS
    ]
    if kind.feed_forward != "moe" or kind.moe is None:
        return (*listed, *_mlp(kind, kind.intermediate_size))
    shared = kind.moe.shared_expert_intermediate_size
    routed = _mlp(kind, kind.moe.moe_intermediate_size, experts=True)
    return (*listed, *routed, *(_mlp(kind, shared) if shared else ()))


def _mlp(kind: ModelSpec, width: int, *, experts: bool = False) -> tuple[Matrix, ...]:
    names = [name for name in projections(kind) if name in ("gate", "up")]
    ups = [Matrix((name,), kind.hidden_size, width, "columns", experts) for name in names]
    down = Matrix(("down",), width, kind.hidden_size, "rows", experts)
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
        if len(whole) > 1 and set(whole) <= set(chosen):
            own = _joined(own, tuple(whole))
    return tuple(own)


def _joined(own: list[Matrix], names: tuple[Projection, ...]) -> list[Matrix]:
    """The same with the named ones of each MLP, or of attention, as one matrix."""
    result: list[Matrix] = []
    for one in own:
        if one.projections[0] not in names:
            result.append(one)
        elif one.projections[0] == names[0]:
            result.append(replace(one, projections=names))
        else:
            result[-1] = replace(result[-1], outputs=result[-1].outputs + one.outputs)
    return result


BLOCK, SCALES = 64, 256
"""Weights that share a scale, and scales that share another. Source: QLoRA, arXiv:2305.14314,
section 3: blocks of 64 for the weights, of 256 for the scales."""
TABLES_BYTES = 4 * 16 + 4 * 256 + 4
"""Of every matrix: the 16 levels of a weight and the 256 of a scale in fp32, and the mean of the
scales. Source: bitsandbytes `functional.py`, QuantState: code, state2.code and offset."""


def nf4_bytes(weights: int) -> int:
    """Bytes of a matrix in 4 bits, with scales of 8 bits that have scales of 32.

    Source: QLoRA, arXiv:2305.14314, section 3, equation 5; bitsandbytes `functional.py`,
    quantize_4bit with compress_statistics.
    """
    scales = -(-weights // BLOCK)
    return -(-weights // 2) + scales + 4 * -(-scales // SCALES) + TABLES_BYTES


def quantised_bytes(kind: ModelSpec) -> int:
    """Bytes of the matrices of a layer in 4 bits: the linear layers, no norms and no biases.

    Source: `nf4_bytes`, of each matrix by itself; QLoRA, arXiv:2305.14314, section 3.
    """
    return sum(nf4_bytes(one.size) for one in matrices(kind))
