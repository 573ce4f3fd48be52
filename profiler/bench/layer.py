"""A whole transformer layer of the model, as plain torch runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from trainplan.costmodel.model.params import (
    attention_matrix_params,
    expert_params,
    mlp_params,
    shared_expert_params,
)
from trainplan.costmodel.spec import ModelSpec
from trainplan.costmodel.spec.evidence.profile import MEASURED_RUNTIME, LayerPoint, Point
from trainplan.profiler.bench.attention import DEFAULT, MATH, core_of, kernels
from trainplan.profiler.bench.inputs.shapes import FP32_BYTES, caps
from trainplan.profiler.bench.inputs.tensors import (
    check_finite,
    difference,
    task,
    tensors,
    working_precision,
)
from trainplan.profiler.bench.layers.decoder import Layer, rotation
from trainplan.profiler.bench.layers.modules import Sharding
from trainplan.profiler.task import Clock, Item, MeasurementTask, Place, Request
from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

EAGER_KERNELS = ("flash", "efficient", MATH)
"""The kernel that the runtime names, then those for the shapes it refuses."""


@dataclass(frozen=True, slots=True)
class Case:
    """One layer to measure."""

    model: ModelSpec
    moe: bool
    sharding: Sharding
    micro_batch_size: int
    seq_length: int

    @property
    def text(self) -> str:
        """For the key of a task."""
        sort = "moe" if self.moe else "dense"
        sharding = f"tp={self.sharding.tp}" + (f" ep={self.sharding.ep}" if self.moe else "")
        return f"{sort} {sharding} batch={self.micro_batch_size} seq={self.seq_length}"

    @property
    def tokens(self) -> int:
        """Of one micro batch."""
        return self.micro_batch_size * self.seq_length

    @property
    def flop(self) -> float:
        """Forward.

        Source: a multiplication and an addition for each weight that a token meets, of its experts
        alone, and the products of the attention core.
        """
        model, moe, tp = self.model, self.model.moe, self.sharding.tp
        met = attention_matrix_params(model) / tp
        if self.moe and moe:
            met += moe.num_experts_per_tok * expert_params(model, moe)
            met += shared_expert_params(model, moe) / tp
        else:
            met += mlp_params(model, model.intermediate_size, bias=False) / tp
        core = core_of(model, tp, self.micro_batch_size, self.seq_length)
        return 2.0 * self.tokens * met + core.flop


def measured_model(model: ModelSpec) -> ModelSpec:
    """The model whose layer runs: torch's kernel knows no window, no sink and no cap of logits."""
    changed = {
        "mixer": "full_attention",
        "layer_kinds": (),
        "layers": None,
        "sliding_window": None,
        "attention_sinks": False,
        "attn_logit_softcapping": None,
    }
    return ModelSpec.model_validate({**model.model_dump(), **changed})


def expert_ranks(model: ModelSpec, limit_bytes: float) -> int:
    """Least expert-parallel degree, a power of two, at which no expert tensor is too large."""
    moe = model.moe
    if moe is None:
        return 1
    matrix, ep = FP32_BYTES * model.hidden_size * moe.moe_intermediate_size, 1
    while moe.num_experts % (2 * ep) == 0 and matrix * moe.num_experts / ep > limit_bytes:
        ep *= 2
    return ep


def layer_tasks(request: Request, place: Place) -> Iterator[MeasurementTask]:
    """One task for each micro batch, cut and sort of layer, as far as the device allows."""
    model, limit = measured_model(request.model), caps(place.device, quick=request.quick)
    ep = expert_ranks(model, limit.tensor_bytes)
    sorts = sorted(set(model.moe_layers))
    for size, tp, moe in product(request.micro_batch_sizes, request.tensor_parallel, sorts):
        case = Case(model, moe, Sharding(tp, ep if moe else 1), size, request.seq_length)
        widest = max(model.hidden_size, 0 if moe else model.intermediate_size // tp)
        matrix = FP32_BYTES * widest * max(model.hidden_size, case.tokens)
        if case.flop <= limit.layer_flop and matrix <= limit.tensor_bytes:
            precision = working_precision(request, place)
            measure = partial(_measure, case, request, place)
            yield task(place, f"{case.text} {precision}", measure)


def _measure(case: Case, request: Request, place: Place, clock: Clock) -> Iterator[Point]:
    precision = working_precision(request, place)
    with kernels(*(EAGER_KERNELS if place.device == "cuda" else (DEFAULT,))):
        run = LayerRun(case, request, place)
        forward = clock.time(run.forward)
        result, saved = run.kept()
        check_finite(result, f"layer {case.text}")
        check_finite(run.input_gradient(result)[0], f"input gradient of layer {case.text}")
        backward = clock.time(partial(run.backward, result))
        inputs = clock.time(partial(run.input_gradient, result))
    yield LayerPoint(
        model=case.model,
        moe=case.moe,
        runtime=MEASURED_RUNTIME,
        tp=case.sharding.tp,
        ep=case.sharding.ep,
        micro_batch_size=case.micro_batch_size,
        seq_length=case.seq_length,
        precision=precision,
        forward=forward,
        backward=backward,
        weight=difference(backward, inputs),
        saved_bytes=saved,
    )


class LayerRun:
    """A layer with its input, the gradient of its output and the fp32 gradients of its weights."""

    def __init__(self, case: Case, request: Request, place: Place) -> None:
        make = tensors(place, working_precision(request, place))
        self.layer = Layer(make, case.model, case.sharding, moe=case.moe)
        self.table = rotation(make, case.model, case.seq_length)
        shape = case.micro_batch_size, case.seq_length, case.model.hidden_size
        self.x, self.gradient = make.normal(*shape).requires_grad_(), make.normal(*shape)
        self.totals = [torch.zeros_like(p, dtype=torch.float32) for p in self.layer.parameters]

    def forward(self) -> Tensor:
        """The layer's output, with its graph."""
        return self.layer(self.x, self.table)

    def kept(self) -> tuple[Tensor, int]:
        """The output, and the bytes its graph keeps beside weights and the table of rotations."""
        owned = [*self.layer.parameters, *(() if self.table is None else (self.table,))]
        return kept_bytes(self.forward, owned)

    def input_gradient(self, result: Tensor) -> tuple[Tensor, ...]:
        """Gradient of the input alone."""
        return tuple(torch.autograd.grad(result, [self.x], self.gradient, retain_graph=True))

    def backward(self, result: Tensor) -> None:
        """Gradients of the input and of all weights, which are added to the fp32 ones."""
        wanted = [self.x, *self.layer.parameters]
        found = torch.autograd.grad(result, wanted, self.gradient, retain_graph=True)
        for total, gradient in zip(self.totals, found[1:], strict=True):
            total.add_(gradient)


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


LAYER = Item("layer", "whole layers: forward, backward, bytes kept", layer_tasks, 2.0)
