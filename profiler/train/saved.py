"""Bytes that layers keep between their forward and their backward passes.

Embedding, head and loss, indices and masks are not counted: the memory model has what lives for a
moment under another term.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trainplan.profiler.torch_on_use import torch


class _Kept:
    """A saved tensor; it lives as long as the graph that saved it."""

    __slots__ = ("__weakref__", "call", "tensor")

    def __init__(self, tensor: Any, call: int) -> None:  # noqa: ANN401
        self.tensor = tensor
        self.call = call
        """Number of the pass through experts that it is of; 0: of none."""


@dataclass(slots=True)
class SavedBytes:
    """What graphs keep, at the moments when a backward pass begins."""

    ignored: frozenset[int]
    """Storages that are there anyway: weights."""
    kept: weakref.WeakSet[_Kept] = field(default_factory=weakref.WeakSet)
    grown: bool = False
    inside: bool = False
    """Does a layer run?"""
    given: frozenset[int] = frozenset()
    """Storages of masks and tables that the running layers were given, which nothing trains."""
    call: int = 0
    """Number of the pass through experts that runs; 0: none does."""
    calls: int = 0
    moments: dict[tuple[int, int], int] = field(default_factory=dict)
    """(bytes beside those of experts, passes through experts) -> all bytes, when they were first
    so."""

    @property
    def most(self) -> int:
        """When there was most, if tokens chose all experts equally often.

        Moments that are alike but for what tokens chose are one, the first of them, so that ranks
        which share experts tell of the same.
        """
        routed = sum(total - fixed for (fixed, _), total in self.moments.items())
        each = routed / max(1, sum(calls for _, calls in self.moments))
        fullest = max(self.moments, key=lambda one: one[0] + each * one[1], default=(0, 0))
        return self.moments.get(fullest, 0)

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
        self.calls += 1
        self.call = self.calls

    def leave_experts(self, *_: object) -> None:
        """They end."""
        self.call = 0

    def pack(self, tensor: Any) -> _Kept:  # noqa: ANN401
        """Autograd saves a tensor; what a backward pass makes again is not kept for it."""
        one = _Kept(tensor, self.call)
        if self.inside and not _runs_backward() and self._counts(tensor):
            self.kept.add(one)
            self.grown = True
        return one

    def unpack(self, one: _Kept) -> Any:  # noqa: ANN401
        """Autograd reads it."""
        if self.grown and _runs_backward():
            self.grown = False
            alive = list(self.kept)
            fixed = self._bytes(one for one in alive if not one.call)
            calls = len({one.call for one in alive if one.call})
            self.moments.setdefault((fixed, calls), self._bytes(alive))
        return one.tensor

    def _counts(self, tensor: Any) -> bool:  # noqa: ANN401
        """Is it an activation?"""
        given = tensor.untyped_storage().data_ptr() in self.given
        return bool(tensor.is_floating_point()) and not given

    def _bytes(self, tensors: Iterable[_Kept]) -> int:
        """Of their storages, each once."""
        storages = {}
        for one in tensors:
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
