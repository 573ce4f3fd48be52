"""What stands in for CUDA in a process of a CPU, so that megatron-core runs as it is.

It allocates on the current CUDA device, orders streams and asks a CUDA generator; on a CPU there is
one device, all is in order as it is, and the generator is torch's own.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from trainplan.profiler.train.comm_volume import watched

MAKERS = (
    *("zeros", "ones", "empty", "full", "tensor", "arange", "rand", "randn", "linspace", "eye"),
    *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "as_tensor"),
)
"""Functions of torch that take a device."""


class Stream:
    """A stream where everything runs in order."""

    def __init__(self, *_: object, **__: object) -> None:
        self.device = torch.device("cpu")

    def wait_stream(self, _: object) -> None:
        """Everything before has run."""

    def wait_event(self, _: object) -> None:
        """It has come."""

    def synchronize(self) -> None:
        """Everything has run."""

    def record_event(self, *_: object) -> Event:
        """Has come."""
        return Event()


class Event:
    """Has come."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, *_: object) -> None:
        """Now."""

    def wait(self, *_: object) -> None:
        """Not at all."""

    def synchronize(self) -> None:
        """Not at all."""

    def query(self) -> bool:
        """Has it come?"""
        return True


_replaced: list[tuple[object, str, object]] = []
"""What was there before: owner, name, value; in order."""


@contextlib.contextmanager
def standing_in_for_cuda() -> Iterator[None]:
    """Put them in place, in this process, until the block ends."""
    before = len(_replaced)
    stand_in_for_cuda()
    try:
        yield
    finally:
        while len(_replaced) > before:
            owner, name, value = _replaced.pop()
            setattr(owner, name, value)


def stand_in_for_cuda() -> None:
    """Put them in place, in this process, for good."""
    _devices()
    _streams()
    _generators()
    _collectives()


def _on_cpu(device: object) -> bool:
    """Is a device meant that is not there?"""
    return isinstance(device, int) or "cuda" in str(device)


def _maker(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(*arguments: object, **named: object) -> object:
        if named.get("device") is not None and _on_cpu(named["device"]):
            named["device"] = torch.device("cpu")
        return function(*arguments, **named)

    return made


def _devices() -> None:
    """Tensors of the current device are the CPU's; dtypes are told by CUDA's names of types."""
    cpu = torch.device("cpu")
    for name in MAKERS:
        _replace(torch, **{name: _maker(getattr(torch, name))})
    moved, typed = torch.Tensor.to, torch.Tensor.type

    def to(tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's own)
        is_place = (isinstance(one, str | torch.device) and _on_cpu(one) for one in arguments)
        arguments = tuple(
            cpu if place else one for one, place in zip(arguments, is_place, strict=True)
        )
        if "device" in named and _on_cpu(named["device"]):
            named["device"] = cpu
        return moved(tensor, *arguments, **named)

    def type_of(tensor: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 (torch's own)
        if arguments or named:
            return typed(tensor, *arguments, **named)
        return typed(tensor).replace("torch.", "torch.cuda.", 1)

    _replace(torch.Tensor, to=to, type=type_of, cuda=lambda tensor, *_, **__: tensor)
    _replace(torch.Tensor, record_stream=lambda *_: None)
    _replace(torch.nn.Module, cuda=lambda module, *_, **__: module)
    found = types.SimpleNamespace(major=9, minor=0, name="cpu", total_memory=1 << 40)
    _replace(
        torch.cuda,
        current_device=lambda: cpu,
        device_count=lambda: 1,
        set_device=lambda *_: None,
        get_device_capability=lambda *_: (found.major, found.minor),
        get_device_properties=lambda *_: found,
        FloatTensor=lambda values: torch.tensor(values, dtype=torch.float32),
    )


def _streams() -> None:
    """Streams, events and graphs: all is in order, nothing is captured."""
    one = Stream()
    _replace(
        torch.cuda,
        Stream=Stream,
        Event=Event,
        current_stream=lambda *_, **__: one,
        default_stream=lambda *_, **__: one,
        stream=lambda _: contextlib.nullcontext(),
        synchronize=lambda *_, **__: None,
        empty_cache=lambda: None,
        is_current_stream_capturing=lambda: False,
    )
    _replace(torch.cuda.nvtx, range_push=lambda *_, **__: None, range_pop=lambda *_, **__: None)


def _generators() -> None:
    """The generator of the device is torch's own."""
    from megatron.core.tensor_parallel import random  # noqa: PLC0415 (the library is optional)

    _replace(
        torch.cuda,
        get_rng_state=lambda *_, **__: torch.get_rng_state(),
        set_rng_state=lambda state, *_, **__: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
        _lazy_call=lambda function, **_: function(),
    )
    _replace(
        random,
        _get_cuda_rng_state=lambda *_, **__: torch.get_rng_state(),
        _set_cuda_rng_state=lambda state, *_, **__: torch.set_rng_state(state),
    )


def _collectives() -> None:
    """Gloo gathers and scatters only equal parts, and takes sizes as numbers alone."""
    exchange = dist.all_to_all_single

    def all_to_all_single(
        output: Any,  # noqa: ANN401
        input: Any,  # noqa: ANN401 (torch's own names)
        output_split_sizes: Any = None,  # noqa: ANN401
        input_split_sizes: Any = None,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> object:
        sizes = (output_split_sizes, input_split_sizes)
        lists = (None if one is None else [int(part) for part in one] for one in sizes)
        return exchange(output, input, *lists, **named)

    _replace(
        dist,
        all_to_all_single=all_to_all_single,
        all_gather=watched(gather_unequal, "all_gather", 0, "tensor_list"),
        reduce_scatter=watched(scatter_unequal, "reduce_scatter", 1, "input_list"),
    )


def gather_unequal(tensor_list: list[Any], tensor: Any, group: Any = None) -> None:  # noqa: ANN401
    """Each rank's part to all ranks, by one broadcast each."""
    own = dist.get_rank(group)
    for rank, part in enumerate(tensor_list):
        if rank == own:
            part.copy_(tensor)
        dist.broadcast(part, group_src=rank, group=group)


def scatter_unequal(output: Any, input_list: list[Any], group: Any = None) -> None:  # noqa: ANN401
    """The sum of a part to its rank, by one reduction each."""
    own = dist.get_rank(group)
    for rank, part in enumerate(input_list):
        summed = part.clone()
        dist.reduce(summed, group_dst=rank, group=group)
        if rank == own:
            output.copy_(summed)


def _replace(owner: object, **functions: object) -> None:
    for name, function in functions.items():
        _replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)
