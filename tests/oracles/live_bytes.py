"""Bytes of tensors that are kept or alive, counted by storage."""

import weakref

import pytest

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402


def saved_bytes(run, owned):
    """Bytes that `run` keeps for the backward pass beside the tensors in `owned`.

    Storages are counted, not views: a slice keeps the whole tensor it was cut from.
    """
    ours = {tensor.untyped_storage()._cdata for tensor in owned}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in ours:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    assert result.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


class LiveBytes(TorchDispatchMode):
    """Bytes alive after every operation, and their largest number.

    A storage counts from the operation that returns it until nothing refers to it any more.
    What an operation needs inside itself and frees again is not seen.
    """

    def __init__(self, owned=()):
        super().__init__()
        self.now = self.peak = 0
        self.at = "the beginning"
        self._alive = {}
        for tensor in owned:
            self._count(tensor, "the beginning")

    def appeared(self, size):
        """A storage was made; what is to be done when it is gone."""
        return lambda: None

    def restart(self):
        """Forget the largest number so far."""
        self.peak = self.now

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf, str(function))
        return result

    def _count(self, tensor, operation):
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._alive and self._alive[key]() is storage:
            return
        size = storage.nbytes()
        disappeared = self.appeared(size)

        def gone(_):
            self.now -= size
            self._alive.pop(key, None)
            disappeared()

        self._alive[key] = weakref.ref(storage, gone)
        self.now += size
        if self.now > self.peak:
            self.peak, self.at = self.now, operation
