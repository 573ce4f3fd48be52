"""Buffers and calls of a step whose weights and states lie on a drive."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainplan.costmodel.copy_streams import STATE_BYTES
from trainplan.profiler.bench.inputs.tensors import SEED
from trainplan.profiler.bench.offload.program import SLOTS, STATE_SLOTS, Sizes
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

LEARNING_RATE = 1e-4


@dataclass(frozen=True, slots=True)
class Files:
    """Open files on the drive, one record a layer."""

    weights: int
    states: int


@dataclass(slots=True)
class Step:
    """A stack of layers, `x + relu(x A) B`, whose loss is half the mean square of the last."""

    sizes: Sizes
    files: Files
    weights: list[Tensor]
    """Of SLOTS layers in host memory, as bytes: what is read."""
    used: list[Tensor]
    """Of SLOTS layers where products are computed; on a CPU those above."""
    states: list[Tensor]
    """Of STATE_SLOTS layers, fp32: weight and both moments, a row each."""
    updated: list[Tensor]
    """Of STATE_SLOTS layers: weights that follow from the states."""
    gradients: list[Tensor]
    """Of all layers, in host memory."""
    sent: list[Tensor]
    """Of SLOTS layers on the GPU, on their way to the host; none on a CPU."""
    inputs: list[Tensor]
    """Of each layer, then the last output."""
    steps: int = 0
    """Updates so far."""
    read_bytes: int = 0
    written_bytes: int = 0
    gradient: Tensor | None = None
    """Of the loss by the output of the layer below."""

    def begin(self) -> None:
        """Count another step."""
        self.steps += 1
        self.read_bytes = self.written_bytes = 0

    def calls(self) -> Mapping[str, Callable[[int], object]]:
        """What an item of each sort does, given its number."""
        return {
            "read": self.read,
            "copy_in": self.copy_in,
            "forward": self.forward,
            "backward": self.backward,
            "copy_out": self.copy_out,
            "read_states": self.read_states,
            "adam": self.adam,
            "write": self.write,
        }

    def read(self, visit: int) -> None:
        """Weights of the layer of a pass."""
        self._read(self.files.weights, self.weights[visit % SLOTS], self.sizes.layer_of(visit))

    def copy_in(self, visit: int) -> None:
        """To the GPU."""
        self.used[visit % SLOTS].copy_(self.weights[visit % SLOTS], non_blocking=True)
        self._wait()

    def forward(self, visit: int) -> None:
        """Of one layer; only its input is kept."""
        with torch.no_grad():
            self.inputs[visit + 1] = _layer(self.inputs[visit], *self._matrices(visit))
        self._wait()

    def backward(self, visit: int) -> None:
        """Of one layer, which is computed again."""
        layer = self.sizes.layer_of(visit)
        if self.gradient is None or layer == self.sizes.layers - 1:
            self.gradient = self.inputs[-1] / self.inputs[-1].numel()
        leaves = [self.inputs[layer], *self._matrices(visit)]
        leaves = [leaf.detach().requires_grad_() for leaf in leaves]
        found = torch.autograd.grad(_layer(*leaves), leaves, self.gradient)
        self.gradient = found[0]
        target = self.sent[visit % SLOTS] if self.sent else self.gradients[layer]
        for part, one in zip(target.view(2, -1), found[1:], strict=True):
            part.copy_(one.reshape(-1))
        self._wait()

    def copy_out(self, visit: int) -> None:
        """Gradients to the host."""
        layer = self.sizes.layer_of(visit)
        self.gradients[layer].copy_(self.sent[visit % SLOTS], non_blocking=True)
        self._wait()

    def read_states(self, turn: int) -> None:
        """States of the layer whose turn it is."""
        self._read(self.files.states, self.states[turn % STATE_SLOTS], self._layer_of(turn))

    def adam(self, turn: int) -> None:
        """Update a layer in host memory: torch's fused kernel, as `bench.optimizer`."""
        weight, first, second = self.states[turn % STATE_SLOTS].view(3, -1)
        weight = weight.detach().requires_grad_()
        weight.grad = self.gradients[self._layer_of(turn)].float()
        optimizer = torch.optim.AdamW([weight], lr=LEARNING_RATE, fused=True)
        step = torch.tensor(float(self.steps - 1))  # the kernel counts this one
        optimizer.state[weight] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
        optimizer.step()
        self.updated[turn % STATE_SLOTS].copy_(weight.detach())

    def write(self, turn: int) -> None:
        """States and weights of the layer whose turn it is."""
        layer, slot = self._layer_of(turn), turn % STATE_SLOTS
        self._write(self.files.states, self.states[slot], layer)
        self._write(self.files.weights, self.updated[slot], layer)

    def fill(self) -> None:
        """Weights of all layers as they are before the first step, and states of zero."""
        generator = torch.Generator().manual_seed(SEED)
        for turn in range(self.sizes.layers):
            states = self.states[turn % STATE_SLOTS].view(3, -1)
            states.zero_()
            states[0].normal_(std=self.sizes.width**-0.5, generator=generator)
            self.updated[turn % STATE_SLOTS].copy_(states[0])
            self.write(turn)

    def _layer_of(self, turn: int) -> int:
        return self.sizes.layer_of(self.sizes.layers + turn)

    def _matrices(self, visit: int) -> tuple[Tensor, Tensor]:
        width = self.sizes.width
        first, second = self.used[visit % SLOTS].view(2, width, width)
        return first, second

    def _read(self, descriptor: int, target: Tensor, layer: int) -> None:
        count = os.preadv(descriptor, [_bytes(target)], layer * target.nbytes)
        if count != target.nbytes:
            raise OSError(f"the drive gave {count} of {target.nbytes} bytes")
        self.read_bytes += count

    def _write(self, descriptor: int, source: Tensor, layer: int) -> None:
        count = os.pwrite(descriptor, _bytes(source), layer * source.nbytes)
        if count != source.nbytes:
            raise OSError(f"the drive took {count} of {source.nbytes} bytes: is it full?")
        self.written_bytes += count

    def _wait(self) -> None:
        if self.sizes.on_gpu:
            torch.cuda.current_stream().synchronize()


def step_of(sizes: Sizes, files: Files, device: str, dtype: torch.dtype) -> Step:
    """A step with all its buffers, and the files filled."""
    count, pinned = sizes.params, sizes.on_gpu

    def host(count: int, kind: torch.dtype) -> Tensor:
        return _aligned(count * kind.itemsize, pinned=pinned).view(kind)

    def many(number: int, kind: torch.dtype, times: int = 1) -> list[Tensor]:
        return [host(times * count, kind) for _ in range(number)]

    def there(number: int) -> list[Tensor]:
        return [torch.empty(count, dtype=dtype, device=device) for _ in range(number)]

    weights = many(SLOTS, dtype)
    generator = torch.Generator(device).manual_seed(SEED)
    x = torch.randn(
        (sizes.tokens, sizes.width), generator=generator, device=device, dtype=torch.float32
    ).to(dtype)
    step = Step(
        sizes,
        files,
        weights,
        there(SLOTS) if sizes.on_gpu else weights,
        many(STATE_SLOTS, torch.float32, STATE_BYTES // torch.float32.itemsize),
        many(STATE_SLOTS, dtype),
        many(sizes.layers, dtype),
        there(SLOTS) if sizes.on_gpu else [],
        [x] + [torch.empty_like(x)] * sizes.layers,
    )
    step.fill()
    return step


def _layer(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return x + torch.relu(x @ first) @ second


def _aligned(num_bytes: int, *, pinned: bool) -> Tensor:
    """Bytes that begin at a page, as `O_DIRECT` wants them; what CUDA pins does, too."""
    if pinned:
        return torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
    return torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=torch.uint8)


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().view(torch.uint8).numpy())
