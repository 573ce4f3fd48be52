"""Weights that depend on the seed and the name alone: those of a shard are cut from the whole."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainplan.profiler.torch_on_use import torch

if TYPE_CHECKING:
    from torch import Tensor

DEVIATION = 0.05
"""Of all matrices: wide enough that every weight moves the loss, small enough that it is finite."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which part of the weights a rank has."""

    tp: int
    tp_rank: int
    etp: int
    etp_rank: int
    first_expert: int
    """Number of its first expert among all."""
    gated: bool
    """The first product of an MLP has two halves, each of which is cut."""
    tied: bool


def fill(model: Any, place: Place, seed: int) -> None:  # noqa: ANN401 (a GPTModel)
    """Give every parameter of a stage its values."""
    for name, parameter in model.named_parameters():
        parameter.data.copy_(_value(name, parameter, model, place, seed))


def _value(name: str, parameter: Any, model: Any, place: Place, seed: int) -> Tensor:  # noqa: ANN401
    """Norms are near one, all else near zero; what is cut is the rank's part of the whole."""
    expert = "local_experts" in name
    ranks, rank = (place.etp, place.etp_rank) if expert else (place.tp, place.tp_rank)
    matrix = parameter.dim() > 1
    cut = ranks > 1 and ((expert and matrix) or getattr(parameter, "tensor_model_parallel", False))
    dimension = _dimension(name, parameter, expert) if matrix else 0
    shape = list(parameter.shape)
    if cut:
        shape[dimension] *= ranks
    whole_name = _whole_name(name, model, place)
    whole = torch.randn(shape, generator=_generator(whole_name, seed)) * DEVIATION
    if "norm" in name and name.endswith("weight"):
        whole = whole + 1
    if not cut:
        return whole
    if "linear_fc1" in name and place.gated:
        return torch.cat([half.chunk(ranks, 0)[rank] for half in whole.chunk(2, 0)], 0)
    return whole.chunk(ranks, dimension)[rank]


def _dimension(name: str, parameter: Any, expert: bool) -> int:  # noqa: ANN401, FBT001
    """Which side is cut; experts do not say."""
    dimension = getattr(parameter, "partition_dim", -1)
    if not expert or dimension >= 0:
        return int(max(dimension, 0))
    return 0 if "linear_fc1" in name else 1


def _whole_name(name: str, model: Any, place: Place) -> str:  # noqa: ANN401
    """The name in a model that nobody has cut: layers and experts by their global numbers."""
    if place.tied and name == "output_layer.weight":
        return "embedding.word_embeddings.weight"
    parts = name.split(".")
    if parts[:2] == ["decoder", "layers"]:
        parts[2] = str(model.decoder.layers[int(parts[2])].layer_number)
    if "local_experts" in parts:
        number = parts.index("local_experts") + 1
        parts[number] = str(int(parts[number]) + place.first_expert)
    return ".".join(parts)


def _generator(name: str, seed: int) -> Any:  # noqa: ANN401 (torch's Generator)
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:6], "big"))
