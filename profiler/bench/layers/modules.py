"""Parts that layers are made of, in torch: products, norms, activations, the MLP.

RMSNorm is one kernel that keeps its input and one number per token, on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from trainplan.costmodel.architecture import ModelSpec
from trainplan.profiler.bench.inputs.tensors import Tensors
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


if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sharding:
    """Over how many ranks a layer is cut."""

    tp: int = 1
    ep: int = 1


@dataclass(frozen=True, slots=True)
class Weights:
    """Makes parameters and remembers them."""

    tensors: Tensors
    made: list[Tensor]

    def matrix(self, *shape: int) -> Tensor:
        """Random."""
        self.made.append(self.tensors.weight(*shape))
        return self.made[-1]

    def vector(self, size: int, value: float) -> Tensor:
        """One number everywhere: norm weights and biases."""
        made = torch.full((size,), value, device=self.tensors.device, dtype=self.tensors.dtype)
        self.made.append(made.requires_grad_())
        return made


class Linear:
    """A product with a weight stored as (out, in)."""

    def __init__(self, weights: Weights, inputs: int, outputs: int, *, bias: bool = False) -> None:
        self.weight = weights.matrix(outputs, inputs)
        self.bias = weights.vector(outputs, 0.0) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Rows of `x` times the weight."""
        return torch.nn.functional.linear(x, self.weight, self.bias)


class Norm:
    """RMSNorm, or LayerNorm where the model has it and the size is that of the hidden state."""

    def __init__(self, weights: Weights, model: ModelSpec, size: int, *, layer: bool) -> None:
        self.weight, self.eps = weights.vector(size, 1.0), model.norm_eps
        layer = layer and model.norm == "layernorm"
        self.bias = weights.vector(size, 0.0) if layer else None

    def __call__(self, x: Tensor) -> Tensor:
        """Normed over the last dim."""
        if self.bias is None:
            return rms_norm(x, self.weight, self.eps)
        return torch.nn.functional.layer_norm(
            x, self.weight.shape, self.weight, self.bias, self.eps
        )


def hidden_norm(weights: Weights, model: ModelSpec) -> Norm:
    """A norm of the hidden state."""
    return Norm(weights, model, model.hidden_size, layer=True)


def activate(name: str, x: Tensor) -> Tensor:
    """The activation function of a model."""
    functional = torch.nn.functional
    if name == "silu":
        return functional.silu(x)
    if name.startswith("gelu"):
        return functional.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")
    return functional.relu(x).square() if name == "relu2" else functional.relu(x)


class Mlp:
    """Up, gate and down projection of some columns."""

    def __init__(self, weights: Weights, model: ModelSpec, width: int, *, bias: bool) -> None:
        h, self.activation = model.hidden_size, model.activation
        self.gate = Linear(weights, h, width, bias=bias) if model.gated_mlp else None
        self.up = Linear(weights, h, width, bias=bias)
        self.down = Linear(weights, width, h, bias=bias)

    def __call__(self, x: Tensor) -> Tensor:
        """The half of a layer behind its norm."""
        if self.gate is None:
            return self.down(activate(self.activation, self.up(x)))
        return self.down(activate(self.activation, self.gate(x)) * self.up(x))
