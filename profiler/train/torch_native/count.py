"""What a rank hands to collectives and messages, and what it keeps for the backward pass."""

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainplan.profiler.train.request import Sent

OPERATIONS: Mapping[str, tuple[str, int]] = {
    "_c10d_functional::all_reduce": ("all_reduce", 0),
    "_c10d_functional::all_reduce_": ("all_reduce", 0),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", -1),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0),
    "c10d::allreduce_": ("all_reduce", 0),
    "c10d::_allgather_base_": ("all_gather", 0),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d::alltoall_base_": ("all_to_all", 1),
    "c10d::send": ("send", 0),
}
"""Operators of torch that hand tensors to a process group: the word for each, and the argument that
is the whole buffer (-1: what it returns)."""
NAMESPACES = ("_c10d_functional", "c10d")
"""Of operators that take a process group; one without a word here is called as torch calls it."""
SILENT = ("wait_tensor", "_wrap_tensor_autograd", "recv_", "barrier", "monitored_barrier_")
"""Operators of those that send nothing of a model."""


class SentBytes(TorchDispatchMode):  # type: ignore[misc]
    """Bytes by group and operation; DTensor is looked through."""

    def __init__(self, groups: Mapping[str, str]) -> None:
        super().__init__()
        self.groups = groups
        """Name of a group by that of its process group; others are of one rank."""
        self.calls: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self,
        operator: Any,  # noqa: ANN401
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run the operator, and take note of what it sends."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = operator(*args, **(kwargs or {}))
        namespace, _, name = operator.name().partition("::")
        name = name.split(".")[0]
        if namespace in NAMESPACES and name not in SILENT:
            operation, place = OPERATIONS.get(f"{namespace}::{name}", (name, 0))
            self._note(operation, place, args, result)
        return result

    def _note(self, operation: str, place: int, args: tuple[Any, ...], result: object) -> None:
        group = self.groups.get(_group_name(args))
        if group is not None:
            self.calls[group, operation] += 1
            self.bytes[group, operation] += _bytes(result if place < 0 else args[place])

    def volumes(self) -> tuple[Sent, ...]:
        """What was sent so far."""
        return tuple(
            Sent(group=key[0], operation=key[1], calls=calls, bytes=self.bytes[key])
            for key, calls in sorted(self.calls.items())
        )


def _group_name(args: tuple[Any, ...]) -> str:
    """Functional operators name their group or have it last, others hold it in a box."""
    last = args[-1] if args else None
    if isinstance(last, str | dist.ProcessGroup):
        return last if isinstance(last, str) else str(last.group_name)
    for one in args:
        if isinstance(one, torch.ScriptObject) and "ProcessGroup" in str(one._type()):
            return str(dist.ProcessGroup.unbox(one).group_name)
    return ""


def _bytes(given: object) -> int:
    """Of a tensor or some tensors."""
    return sum(one.nbytes for one in tree_leaves(given) if isinstance(one, Tensor))


class _Held:
    """A tensor that autograd keeps, without its place in the graph: an output would keep that."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()


class SavedBytes:
    """Bytes that autograd keeps, storages once, without those of weights and tables."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._holds: Counter[int] = Counter()
        self._owned: set[int] = set()

    def own(self, *tensors: Tensor) -> None:
        """Do not count these: they are there anyway."""
        for tensor in tensors:
            self._owned.update(_storages(tensor))

    def watch(self, module: nn.Module) -> None:
        """Weights are known by the storage they have when their module runs.

        FSDP puts gathered ones in place of its shards before that.
        """

        def own(owner: nn.Module, _: object) -> None:
            for tensor in (*owner._parameters.values(), *owner._buffers.values()):
                if tensor is not None:
                    self._owned.update(_storages(tensor))

        for one in module.modules():
            one.register_forward_pre_hook(own)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is kept inside."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda held: held.tensor):
            yield

    def _pack(self, tensor: Tensor) -> _Held:
        held = _Held(tensor)
        for key, size in _storages(tensor).items():
            if key in self._owned:
                continue
            self._change(key, size, 1)
            weakref.finalize(held, self._change, key, size, -1)
        return held

    def _change(self, key: int, size: int, by: int) -> None:
        self._holds[key] += by
        if by > 0 and self._holds[key] == 1:
            self.now += size
        if by < 0 and self._holds[key] == 0:
            self.now -= size
        self.peak = max(self.peak, self.now)


def _storages(tensor: Tensor) -> dict[int, int]:
    """Size of the storage of a tensor on this rank, by its address."""
    local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    local = local.elem if isinstance(local, AsyncCollectiveTensor) else local
    storage = local.untyped_storage()
    return {storage._cdata: storage.nbytes()}
