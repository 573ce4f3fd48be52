"""Operations that keep for the backward pass what the kernels of a GPU keep, on every device."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Context(Protocol):
    """What autograd hands from forward to backward."""

    saved_tensors: tuple[Tensor, ...]
    aside: Any
    """What is no tensor."""

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep these."""


class RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    """RMSNorm that keeps its input, and one number per token where told to.

    Source: Zhang and Sennrich, arXiv:1910.07467, section 3, and its derivative; pytorch v2.13.0
    tools/autograd/derivatives.yaml, `_fused_rms_norm`. The one of torch keeps more on a CPU.
    """

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, eps: float, statistics: bool) -> Tensor:  # noqa: FBT001
        """Normed over the last dimension."""
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.aside = eps
        ctx.save_for_backward(x, weight, *([rstd] if statistics else []))
        return (wide * rstd * weight.float()).to(x.dtype)

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input and weight."""
        x, weight, *kept = ctx.saved_tensors
        wide = x.float()
        rstd = kept[0] if kept else torch.rsqrt(wide.square().mean(-1, keepdim=True) + ctx.aside)
        normed, scaled = wide * rstd, gradient.float() * weight.float()
        inner = scaled - normed * (scaled * normed).mean(-1, keepdim=True)
        of_weight = (gradient.float() * normed).sum(tuple(range(x.ndim - 1)))
        return (inner * rstd).to(x.dtype), of_weight.to(weight.dtype), None, None


class SwiGlu(torch.autograd.Function):  # type: ignore[misc]
    """silu(gate) * up, as one kernel that keeps both branches.

    Source: Shazeer, arXiv:2002.05202, section 2, and its derivative.
    """

    @staticmethod
    def forward(ctx: Context, gate: Tensor, up: Tensor) -> Tensor:
        """The gated branch."""
        ctx.save_for_backward(gate, up)
        return functional.silu(gate) * up

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of both branches."""
        gate, up = ctx.saved_tensors
        sigmoid = torch.sigmoid(gate)
        of_gate = gradient * up * sigmoid * (1 + gate * (1 - sigmoid))
        return of_gate, gradient * gate * sigmoid


def rotation(positions: Tensor, head_dim: int, theta: float) -> Tensor:
    """Cosines and sines at some positions, (2, tokens, head_dim).

    Source: Su et al., RoFormer, arXiv:2104.09864, section 3.4.2.
    """
    rates = theta ** -(torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.outer(positions.float(), rates)
    angles = torch.cat((angles, angles), -1)
    return torch.stack((angles.cos(), angles.sin()))


def rotated(x: Tensor, table: Tensor) -> Tensor:
    """Rotary positions of (batch, heads, tokens, head_dim); keeps neither of its ends."""
    low, high = x.chunk(2, -1)
    return x * table[0] + torch.cat((-high, low), -1) * table[1]
