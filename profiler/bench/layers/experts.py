"""Router and experts in torch, as one expert-parallel rank has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.profiler.bench.gemm import grouped_product
from trainplan.profiler.bench.layers.modules import Linear, Mlp, Sharding, Weights, activate
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

GROUP_MULTIPLE = 8
"""Rows at which a group of a grouped product may begin: 16 bytes. Source: its error message."""


class Experts:
    """Router, the experts of one rank, and the shared expert; routing is balanced.

    The rank gets as many rows as it would send: with fewer experts each has more. Experts are not
    cut over tensor-parallel ranks and see all tokens, as in the cost model without sequence
    parallelism.
    """

    def __init__(
        self, weights: Weights, model: ModelSpec, moe: MoeSpec, sharding: Sharding
    ) -> None:
        h, width = model.hidden_size, moe.moe_intermediate_size
        self.chosen, self.activation = moe.num_experts_per_tok, model.activation
        self.local = max(1, moe.num_experts // sharding.ep)
        self.router = Linear(weights, h, moe.num_experts)
        ups = 2 if model.gated_mlp else 1
        self.ups = [weights.matrix(self.local, h, width) for _ in range(ups)]
        self.down = weights.matrix(self.local, width, h)
        size = moe.shared_expert_intermediate_size // sharding.tp
        self.shared = Mlp(weights, model, size, bias=moe.expert_bias) if size else None

    def __call__(self, x: Tensor) -> Tensor:
        """The half of a layer behind its norm."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.chosen, sorted=False)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        source = order // self.chosen
        rows = self._rows(tokens[source]) * weights.flatten()[order, None]
        joined = torch.zeros_like(tokens).scatter_add(0, source[:, None].expand_as(rows), rows)
        if self.shared:
            joined = joined + self.shared(tokens)
        return joined.view_as(x)

    def _rows(self, rows: Tensor) -> Tensor:
        inner = [grouped(rows, up) for up in self.ups]
        active = activate(self.activation, inner[0])
        active = active * inner[1] if len(inner) > 1 else active
        return grouped(active, self.down)


def grouped(rows: Tensor, matrices: Tensor) -> Tensor:
    """Rows times the matrix of their group, by one kernel where the device has it.

    Groups are equal but for the alignment.
    """
    groups = len(matrices)
    kernel = grouped_product(str(rows.device), rows.dtype) if rows.is_cuda else None
    if kernel is not None:
        number = torch.arange(1, 1 + groups, device=rows.device)
        ends = (-(-number * len(rows) // groups)).add(GROUP_MULTIPLE - 1)
        ends = ends // GROUP_MULTIPLE * GROUP_MULTIPLE
        return kernel(rows, matrices, offs=ends.clamp(max=len(rows)).int())
    parts = rows.tensor_split(balanced(len(rows), groups)[:-1])
    return torch.cat([part @ matrix for part, matrix in zip(parts, matrices, strict=True)])


def balanced(rows: int, groups: int) -> list[int]:
    """Where each group of rows ends, as the device computes it without waiting for the host."""
    ends = [-(-(i + 1) * rows // groups) for i in range(groups)]
    return [min(rows, -(-end // GROUP_MULTIPLE) * GROUP_MULTIPLE) for end in ends]
