"""Stand-ins for kernels that torch has on a GPU only: the same tensors in, out and kept.

Importing this module skips the importing test where torch is absent.
"""

import pytest

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")


@torch.library.custom_op("oracles::rms_norm", mutates_args=())
def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> list[torch.Tensor]:
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    return [(x.float() * rstd * weight.float()).to(x.dtype), rstd]


@_rms_norm.register_fake
def _(x, weight, eps):
    return [torch.empty_like(x), x.new_empty((*x.shape[:-1], 1), dtype=torch.float32)]


@torch.library.custom_op("oracles::rms_norm_backward", mutates_args=())
def _rms_norm_backward(
    gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> list[torch.Tensor]:
    normed, scaled = x.float() * rstd, gradient.float() * weight.float()
    inner = scaled - normed * (scaled * normed).mean(-1, keepdim=True)
    to_weight = (gradient.float() * normed).flatten(0, -2).sum(0)
    return [(inner * rstd).to(x.dtype), to_weight.to(weight.dtype)]


@_rms_norm_backward.register_fake
def _(gradient, x, weight, rstd):
    return [torch.empty_like(x), torch.empty_like(weight)]


def _keep(ctx, inputs, output):
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _backward(ctx, gradients):
    return (*_rms_norm_backward(gradients[0], *ctx.saved_tensors), None)


_rms_norm.register_autograd(_backward, setup_context=_keep)


def fused_rms_norm(x, weight, eps):
    """RMSNorm as one kernel: keeps its input, its weight and one number per token.

    Source: pytorch `tools/autograd/derivatives.yaml`, `_fused_rms_norm`.
    """
    return _rms_norm(x, weight, eps)[0]


def flash_attention(query, key, value):
    """Causal attention by the kernel for GPUs, named: on a host without one the default differs.

    Source: pytorch `tools/autograd/derivatives.yaml`, `_scaled_dot_product_flash_attention`.
    """
    kernel = torch.ops.aten._scaled_dot_product_flash_attention
    return kernel(query, key, value, is_causal=True)[0]


def efficient_attention(query, key, value):
    """As `flash_attention`, for values of another width than keys."""
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    bias, log_sum_exp = None, True
    return kernel(query, key, value, bias, log_sum_exp, is_causal=True)[0]
