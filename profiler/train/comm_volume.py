"""Bytes that a rank hands to the operations of torch.distributed."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainplan.profiler.torch_on_use import dist
from trainplan.profiler.train.request import Sent

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

WHOLE: Mapping[str, tuple[str, int, str]] = {
    "all_reduce": ("all_reduce", 0, "tensor"),
    "broadcast": ("broadcast", 0, "tensor"),
    "all_gather_into_tensor": ("all_gather", 0, "output_tensor"),
    "_all_gather_base": ("all_gather", 0, "output_tensor"),
    "reduce_scatter_tensor": ("reduce_scatter", 1, "input"),
    "_reduce_scatter_base": ("reduce_scatter", 1, "input"),
    "all_to_all_single": ("all_to_all", 1, "input"),
    "send": ("send", 0, "tensor"),
    "isend": ("send", 0, "tensor"),
}
"""Function of torch.distributed -> operation, and place and name of the argument that is the whole
buffer."""


@dataclass(slots=True)
class Counted:
    """What goes out while it counts."""

    names: Mapping[ProcessGroup | None, str]
    """Group -> its name; null: of all ranks. A group without a name is not counted."""
    bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, operation: str, buffer: Any, group: ProcessGroup | None) -> None:  # noqa: ANN401
        """One call with a tensor or several, if more than one rank takes part."""
        name = self.names.get(group)
        if name is None or dist.get_world_size(group) == 1:
            return
        parts = buffer if isinstance(buffer, list | tuple) else [buffer]
        self.bytes[name, operation] += sum(part.numel() * part.element_size() for part in parts)
        self.calls[name, operation] += 1

    def sent(self) -> tuple[Sent, ...]:
        """All of it, by group and operation."""
        return tuple(
            Sent(group=group, operation=operation, calls=self.calls[group, operation], bytes=count)
            for (group, operation), count in sorted(self.bytes.items())
        )


_counting: list[Counted] = []


@contextmanager
def counting(names: Mapping[ProcessGroup | None, str]) -> Iterator[Counted]:
    """Count until the block ends."""
    counted = Counted(names)
    _counting.append(counted)
    try:
        yield counted
    finally:
        _counting.remove(counted)


def watch_operations() -> None:
    """Let the functions of torch.distributed tell what they get, to whoever counts.

    Before any library is imported that keeps them under names of its own.
    """
    from torch import distributed  # noqa: PLC0415 (the module itself, to put them there)

    for name, (operation, place, argument) in WHOLE.items():
        watching = watched(getattr(distributed.distributed_c10d, name), operation, place, argument)
        setattr(distributed.distributed_c10d, name, watching)
        if hasattr(distributed, name):
            setattr(distributed, name, watching)


def watched(
    function: Callable[..., object], operation: str, place: int, argument: str
) -> Callable[..., object]:
    """The same function, told of when it is called; what it calls itself is not told of again."""

    @functools.wraps(function)
    def watching(*arguments: object, **named: object) -> object:
        counting = _counting.copy()
        for counted in counting:
            buffer = named[argument] if argument in named else arguments[place]
            group: Any = named.get("group", _group(arguments))
            counted.add(operation, buffer, group)
        _counting.clear()
        try:
            return function(*arguments, **named)
        finally:
            _counting.extend(counting)

    return watching


def _group(arguments: tuple[object, ...]) -> Any:  # noqa: ANN401 (a group or null)
    """The group among arguments without names."""
    groups = (one for one in arguments if isinstance(one, dist.ProcessGroup))
    return next(groups, None)
