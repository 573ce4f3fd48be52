"""Functions between the products of an MLP, by the names that models have for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor


def activations() -> Mapping[str, Callable[[Tensor], Tensor]]:
    """Those that trainers run."""
    functional = torch.nn.functional
    return {
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "relu": functional.relu,
        "relu2": lambda x: torch.pow(functional.relu(x), 2),
    }
