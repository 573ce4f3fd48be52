"""Tokens that are trained on: a function of the seed, the step and the place in the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainplan.profiler.torch_on_use import torch
from trainplan.profiler.train.request import TrainingRequest

if TYPE_CHECKING:
    from torch import Tensor


def microbatches(request: TrainingRequest, dp_rank: int, step: int) -> Iterator[Tensor]:
    """Micro batches of one replica in one step, each (sequences, tokens + 1).

    Replicas take turns, so that every micro batch is one of those of a single replica.
    """
    layout, training = request.layout, request.job.training
    size = layout.micro_batch_size
    for first in range(dp_rank * size, training.global_batch_size, layout.dp * size):
        yield torch.stack([_sequence(request, step, first + one) for one in range(size)])


def _sequence(request: TrainingRequest, step: int, place: int) -> Tensor:
    training = request.job.training
    number = step * training.global_batch_size + place
    generator = torch.Generator().manual_seed(request.seed * 1_000_003 + number)
    size = (training.seq_length + 1,)
    return torch.randint(0, request.job.model.vocab_size, size, generator=generator)
