"""What is asked: a model, how it is trained, where, and with which runtime."""

from __future__ import annotations

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
    may_offload_activations: bool = False
    """A search tries `offload_modules`, too."""
