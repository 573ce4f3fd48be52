"""What to measure where nobody says: a request fit for the device."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import LOW_PRECISION
from trainplan.costmodel.presets import preset
from trainplan.costmodel.profiles import MEASURED_RUNTIME
from trainplan.profiler.bench import (
    LAYER,
    caps,
    megatron_notes,
    model_shapes,
    products,
    torch_tasks,
)
from trainplan.profiler.bench import RUNTIME as MEGATRON
from trainplan.profiler.task import Place, Request
from trainplan.profiler.train import is_installed as megatron_is_installed

Device = Literal["cuda", "cpu"]
TINY_LLAMA = ModelSpec(
    name="tiny-llama",
    num_hidden_layers=4,
    hidden_size=512,
    intermediate_size=1408,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    vocab_size=4096,
    max_position_embeddings=4096,
)
"""The default on a CPU: shaped like Llama 3 and so small that two cores run a layer in some ms,
yet its products are large enough to be compute and not launches."""
DEFAULT_GPU_MODEL = "llama3-8b"
"""The default on a GPU: one layer of it fits every GPU, and its widths are those of many models."""
SEQ_LENGTH: Mapping[Device, int] = {"cuda": 4096, "cpu": 512}
QUICK_SEQ_LENGTH: Mapping[Device, int] = {"cuda": 4096, "cpu": 256}
LARGEST_TENSOR_PARALLEL: Mapping[Device, int] = {"cuda": 8, "cpu": 4}
"""Slices need no neighbours: a single GPU tells how fast those of a node of 8 will be."""
MICRO_BATCH_SIZES: Mapping[Device, tuple[int, ...]] = {"cuda": (1, 2, 4), "cpu": (1, 2)}
NOTHING: Mapping[str, object] = MappingProxyType({})


def device_of(gpus: int) -> Device:
    """What is measured on a node with that many GPUs."""
    return "cuda" if gpus else "cpu"


def request_for(
    model: ModelSpec | None,
    device: Device,
    gpus_per_node: int,
    *,
    quick: bool,
    stated: Mapping[str, object] = NOTHING,
) -> Request:
    """A request with what is `stated`, by field of `Request`, and the device's defaults else.

    Raises:
        pydantic.ValidationError: What is stated does not fit its field.
    """
    chosen = model or (TINY_LLAMA if device == "cpu" else preset(DEFAULT_GPU_MODEL))
    length = (QUICK_SEQ_LENGTH if quick else SEQ_LENGTH)[device]
    sizes = MICRO_BATCH_SIZES[device]
    defaults: Mapping[str, object] = {
        "model": chosen.model_dump(),
        "tensor_parallel": tensor_parallel_degrees(
            chosen, max(gpus_per_node, LARGEST_TENSOR_PARALLEL[device]), quick=quick
        ),
        "micro_batch_sizes": sizes[:1] if quick else sizes,
        "seq_length": min(length, chosen.max_position_embeddings),
        "precision": "fp32" if device == "cpu" else "bf16",
        "quick": quick,
        "runtimes": installed(),
    }
    return Request.model_validate({**defaults, **stated})


def installed() -> tuple[str, ...]:
    """Runtimes whose layers can be run here: plain PyTorch, and Megatron-LM's where it is there."""
    return (MEASURED_RUNTIME, *((MEGATRON,) if megatron_is_installed() else ()))


def tensor_parallel_degrees(model: ModelSpec, largest: int, *, quick: bool) -> tuple[int, ...]:
    """Tensor-parallel degrees: powers of two that divide heads and MLP; two of them if quick."""
    degrees = [1]
    while 2 * degrees[-1] <= largest and not any(
        size % (2 * degrees[-1]) for size in (model.num_attention_heads, model.intermediate_size)
    ):
        degrees.append(2 * degrees[-1])
    return tuple(dict.fromkeys((degrees[0], degrees[-1]))) if quick else tuple(degrees)


def notes(request: Request, place: Place) -> Iterator[str]:
    """What of the request is not measured, for the user: one sentence each."""
    limit = caps(place.device, quick=request.quick)
    wants_layers = not request.only or LAYER.name in request.only
    name, longest = request.model.name, request.seq_length * min(request.micro_batch_sizes)
    wanted = set(products(request.model, longest, min(request.tensor_parallel)))
    left = sum(not shape.fits(limit) for shape in wanted)
    if left and place.device == "cpu":
        yield (
            f"{left} of {len(wanted)} products of {name} are too much work for a CPU and were left "
            "out: the fitted surface extrapolates to them"
        )
    if MEGATRON in request.runtimes and wants_layers:
        yield from megatron_notes(request, place)
    if wants_layers and not any(True for _ in torch_tasks(request, place)):
        yield f"a layer of {name} is too much work for this device and was not measured whole"
    if not any(model_shapes(request, limit)):
        yield f"no product of {name} was measured: choose a smaller model or a shorter sequence"
    if request.precision in LOW_PRECISION and place.device == "cpu":
        yield f"a CPU multiplies no {request.precision}: bf16 was measured"
