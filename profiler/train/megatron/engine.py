"""What megatron-core 0.16 has with Transformer Engine or Apex alone, and what stands in for it."""

from typing import Any

from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.torch_norm import WrappedTorchNorm

from trainplan.profiler.torch_on_use import torch


def stand_in_for_engine() -> None:
    """Put it in place, in this process, for good.

    Norms of torch, which it takes without sequence parallelism alone: with it, all it asks of a
    norm is a mark on its weights, by which their gradients are summed over the tensor ranks. And a
    product for routers, which it looks up even where it is absent.
    """
    WrappedTorchNorm.__new__ = staticmethod(_norm)
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None


def _norm(_: type, config: Any, hidden_size: int, eps: float = 1e-5, **__: object) -> Any:  # noqa: ANN401
    kinds = {"LayerNorm": torch.nn.LayerNorm, "RMSNorm": torch.nn.RMSNorm}
    norm = kinds[config.normalization](hidden_size, eps=eps, dtype=config.params_dtype)
    for weight in norm.parameters():
        weight.sequence_parallel = config.sequence_parallel
    norm.returns_residual = False  # asked for since Core 0.17
    return norm
