"""torch, imported when it is first used: what can be measured is listed without it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = ["dist", "torch"]


class _OnUse:
    """A module by its name; what was used once is looked up as fast as in a module."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> object:
        found: object = getattr(importlib.import_module(self._module), name)
        setattr(self, name, found)
        return found


if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
else:
    torch, dist = _OnUse("torch"), _OnUse("torch.distributed")
