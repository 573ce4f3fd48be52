"""Layers in the order of a step: several with weights of their own, forward, then backward.

A pass in a loop by itself finds its operands in the cache and a clock of its own; this one finds
what training finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from trainplan.costmodel.job import Precision
from trainplan.costmodel.profiles import LayerPoint, Timing
from trainplan.profiler.bench.inputs.tensors import Tensors, device_of, difference
from trainplan.profiler.bench.layers.case import Case
from trainplan.profiler.bench.layers.decoder import Layer, rotation
from trainplan.profiler.task import Clock, Place
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

MOST_LAYERS = 4
"""Layers that run one after another.

Source: derived; a layer's weights are read again after those of three others, their gradients and
the activations of all, which together no cache holds, and the first launch, which nothing runs
ahead of, is one of some fifty.
"""
ROOM_FRACTION = 1 / 3
"""Of a GPU's memory, for weights and gradients; activations need the rest."""
CPU_ROOM_BYTES = 2**31
WEIGHT_BYTES = 12
"""Of one weight with its gradient and the fp32 sum of gradients, at most: all are fp32."""

LAYERS = ("forward", "backward", "inputs")
"""Parts of a micro batch that are of layers."""


def depth_of(weights: float, place: Place) -> int:
    """Layers of so many weights that run one after another, as many as there is room for."""
    room: float = CPU_ROOM_BYTES
    if place.device == "cuda":
        memory = torch.cuda.get_device_properties(device_of(place)).total_memory
        room = ROOM_FRACTION * memory
    return max(1, min(MOST_LAYERS, int(room / (WEIGHT_BYTES * weights))))


class Stack:
    """Layers one after another, with an input, the gradient of the output, and fp32 gradients."""

    def __init__(self, make: Tensors, layers: Sequence[Layer], case: Case) -> None:
        self.layers, self.table = layers, rotation(make, case.model, case.seq_length)
        shape = case.micro_batch_size, case.seq_length, case.model.hidden_size
        self.x, self.gradient = make.normal(*shape).requires_grad_(), make.normal(*shape)
        self.totals: dict[Tensor, Tensor] = {}
        for weight in self.weights:
            self.totals[weight] = torch.zeros_like(weight, dtype=torch.float32)
            weight.register_post_accumulate_grad_hook(self._add)

    @property
    def weights(self) -> list[Tensor]:
        """Of all layers."""
        return [weight for layer in self.layers for weight in layer.parameters]

    def _add(self, weight: Tensor) -> None:
        """As soon as a gradient is there, so that it is not there for long."""
        if weight.grad is not None:
            self.totals[weight].add_(weight.grad)
            weight.grad = None

    def micro_batch(self, mark: Callable[[], None]) -> None:
        """Forward through all layers, then backward; each pass ends with a mark."""
        self.x.grad = None
        result = self.x
        for layer in self.layers:
            result = layer(result, self.table)
        mark()
        result.backward(self.gradient)
        mark()

    def train(self, *, weights: bool) -> None:
        """From now on gradients of weights are computed, or only those of inputs."""
        for weight in self.weights:
            weight.requires_grad_(weights)

    def forward_alone(self) -> Tensor:
        """The first layer's output, with its graph."""
        return self.layers[0](self.x, self.table)

    def backward_alone(self, result: Tensor) -> tuple[Tensor, ...]:
        """Gradients of the first layer's input and weights, which are added to the fp32 ones."""
        weights = self.layers[0].parameters
        found = torch.autograd.grad(result, [self.x, *weights], self.gradient, retain_graph=True)
        for weight, gradient in zip(weights, found[1:], strict=True):
            self.totals[weight].add_(gradient)
        return tuple(found)

    def kept(self) -> tuple[Tensor, int]:
        """The first layer's output, and what its graph keeps beside weights and rotations."""
        owned = [*self.weights, *(() if self.table is None else (self.table,))]
        return kept_bytes(self.forward_alone, owned)


class Trained(Protocol):
    """Runs micro batches."""

    def train(self, *, weights: bool) -> None:
        """Are gradients of weights computed, too?"""

    def micro_batch(self, mark: Callable[[], None]) -> None:
        """Forward and backward, with marks."""


def timed(
    clock: Clock, run: Trained, parts: Sequence[str], depth: int, *, together: bool = False
) -> Mapping[str, Timing]:
    """Timing of every part of a micro batch, of a layer's passes for one of `depth` layers.

    `inputs` is its backward pass without gradients of weights: of micro batches in between, so that
    both see the same machine.
    """

    def both(mark: Callable[[], None]) -> None:
        run.micro_batch(mark)
        run.train(weights=False)
        run.micro_batch(mark)
        run.train(weights=True)

    laps = clock.laps(both, together=together)
    names = (*parts, *(f"frozen {name}" for name in parts))
    samples = {name: [lap[number] for lap in laps] for number, name in enumerate(names)}
    samples["inputs"] = samples["frozen backward"]
    return {
        name: clock.timing_of([one / (depth if name in LAYERS else 1) for one in samples[name]])
        for name in (*parts, "inputs")
    }


def kept_bytes(run: Callable[[], Tensor], owned: Iterable[Tensor]) -> tuple[Tensor, int]:
    """What `run` returns, and the bytes it keeps for the backward pass beside `owned`.

    Storages are counted, not views: a slice keeps the whole tensor it was cut from.
    """
    ours = {tensor.untyped_storage().data_ptr() for tensor in owned}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ours:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    return result, sum(kept.values())


def layer_point(
    case: Case, runtime: str, precision: Precision, parts: Mapping[str, Timing], saved: float
) -> LayerPoint:
    """A layer whose parts were timed in the order of a step, and the bytes that it keeps."""
    return LayerPoint(
        model=case.model,
        moe=case.moe,
        runtime=runtime,
        tp=case.sharding.tp,
        ep=case.sharding.ep,
        micro_batch_size=case.micro_batch_size,
        seq_length=case.seq_length,
        precision=precision,
        in_step=True,
        forward=parts["forward"],
        backward=parts["backward"],
        weight=difference(parts["backward"], parts["inputs"]),
        saved_bytes=saved,
    )
