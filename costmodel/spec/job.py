"""What is asked: a model, how it is trained, where, and with which runtime."""

from __future__ import annotations

from typing import Self

from pydantic import NonNegativeInt, model_validator

from costmodel.spec.base import Spec
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.model import ModelSpec
from costmodel.spec.options import RuntimeOptions
from costmodel.spec.training import TrainingSpec


class Job(Spec):
    """The question a plan answers."""

    model: ModelSpec
    training: TrainingSpec
    cluster: ClusterSpec
    runtime: str = "megatron-lm"
    options: RuntimeOptions = RuntimeOptions()
    layers_per_stage: tuple[NonNegativeInt, ...] | None = None
    """Decoder layers of every virtual stage in pipeline order, where a run states them; null: the
    runtime's even split."""

    @model_validator(mode="after")
    def _split_is_whole(self) -> Self:
        split = self.layers_per_stage
        if split is not None and sum(split) != self.model.num_hidden_layers:
            raise ValueError(
                f"layers_per_stage holds {sum(split)} layers, the model has "
                f"{self.model.num_hidden_layers}"
            )
        return self
