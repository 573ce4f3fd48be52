"""Bytes that layers keep between their forward and their backward passes.

Embedding, head and loss, indices and masks are not counted: the memory model has what lives for a
moment under another term.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainplan.profiler.torch_on_use import torch


class _Kept:
    """A saved tensor; it lives as long as the graph that saved it."""

    __slots__ = ("__weakref__", "routed", "tensor")

    def __init__(self, tensor: Any, *, routed: bool) -> None:  # noqa: ANN401
        self.tensor = tensor
        self.routed = routed


@dataclass(slots=True)
class SavedBytes:
    """What graphs keep, and the most of it that there was when a backward pass began."""

    ignored: frozenset[int]
    """Storages that are there anyway: weights."""
    most: int = 0
    """When there was most of what does not depend on the experts that tokens choose: of several
    micro batches the first, so that ranks which share experts tell of the same."""
    most_fixed: int = 0
    kept: weakref.WeakSet[_Kept] = field(default_factory=weakref.WeakSet)
    grown: bool = False
    inside: bool = False
    """Does a layer run?"""
    routed: bool = False
    """Do experts run?"""

    given: frozenset[int] = frozenset()
    """Storages of masks and tables that the running layers were given, which nothing trains."""

    def enter(self, _: object, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Layers begin, with these arguments."""
        self.inside = True
        tensors = [one for one in (*arguments, *named.values()) if torch.is_tensor(one)]
        self.given = frozenset(
            one.untyped_storage().data_ptr() for one in tensors if not one.requires_grad
        )

    def leave(self, *_: object) -> None:
        """They end."""
        self.inside = False

    def enter_experts(self, *_: object) -> None:
        """Experts begin."""
        self.routed = True

    def leave_experts(self, *_: object) -> None:
        """They end."""
        self.routed = False

    def pack(self, tensor: Any) -> _Kept:  # noqa: ANN401
        """Autograd saves a tensor; what a backward pass makes again is not kept for it."""
        one = _Kept(tensor, routed=self.routed)
        if self.inside and not _runs_backward() and self._counts(tensor):
            self.kept.add(one)
            self.grown = True
        return one

    def _counts(self, tensor: Any) -> bool:  # noqa: ANN401
        """Is it an activation?"""
        given = tensor.untyped_storage().data_ptr() in self.given
        return bool(tensor.is_floating_point()) and not given

    def unpack(self, one: _Kept) -> Any:  # noqa: ANN401
        """Autograd reads it."""
        if self.grown and _runs_backward():
            self.grown = False
            fixed = self.bytes(routed=False)
            if fixed > self.most_fixed:
                self.most_fixed, self.most = fixed, self.bytes()
        return one.tensor

    def bytes(self, *, routed: bool = True) -> int:
        """Of the storages that are kept now, each once; with or without those of experts."""
        storages = {}
        for one in self.kept:
            if one.routed and not routed:
                continue
            storage = one.tensor.untyped_storage()
            if storage.data_ptr() not in self.ignored:
                storages[storage.data_ptr()] = storage.nbytes()
        return sum(storages.values())


@contextmanager
def saving(weights: Iterable[Any]) -> Iterator[SavedBytes]:
    """Watch what autograd saves until the block ends."""
    found = SavedBytes(frozenset(one.untyped_storage().data_ptr() for one in weights))
    with torch.autograd.graph.saved_tensors_hooks(found.pack, found.unpack):
        yield found


def _runs_backward() -> bool:
    """Is this called from a backward pass?"""
    running: bool = torch._C._current_graph_task_id() != -1
    return running
