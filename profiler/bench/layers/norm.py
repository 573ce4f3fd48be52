"""RMSNorm as one kernel that keeps its input and one number per token, on every device."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor


class Context(Protocol):
    """What autograd hands from forward to backward."""

    saved_tensors: tuple[Tensor, Tensor, Tensor]

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keep these."""


class Applied(Protocol):
    """A `torch.autograd.Function`."""

    @staticmethod
    def apply(x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """The result, with its node in the graph."""
        ...


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of torch on a GPU; on a CPU, where torch has single operations, a stand-in.

    Source: pytorch/pytorch v2.13.0 tools/autograd/derivatives.yaml, `_fused_rms_norm` (input and
    rstd are kept); on a CPU the composed one keeps two tensors instead of one.
    """
    if x.is_cuda:
        return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
    return _kept_small()(x, weight, eps)


@cache
def _kept_small() -> Callable[[Tensor, Tensor, float], Tensor]:
    """The stand-in: torch is imported when it is needed, so its class is made then.

    Source: Zhang and Sennrich, arXiv:1910.07467, section 3, and its derivative.
    """

    def forward(ctx: Context, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, rstd)
        return (wide * rstd * weight.float()).to(x.dtype)

    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, rstd = ctx.saved_tensors
        normed, scaled = x.float() * rstd, gradient.float() * weight.float()
        inner = scaled - normed * (scaled * normed).mean(-1, keepdim=True)
        to_weight = (gradient.float() * normed).flatten(0, -2).sum(0)
        return (inner * rstd).to(x.dtype), to_weight.to(weight.dtype), None

    passes = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    made = cast("type[Applied]", type("RmsNorm", (torch.autograd.Function,), passes))
    return made.apply
