"""What is asked: a model, how it is trained, where, and with which runtime."""

from __future__ import annotations

from trainplan.costmodel.spec.base import Spec
from trainplan.costmodel.spec.cluster import ClusterSpec
from trainplan.costmodel.spec.model import ModelSpec
from trainplan.costmodel.spec.options import RuntimeOptions
from trainplan.costmodel.spec.training import TrainingSpec

DEFAULT_RUNTIME = "megatron-lm"
"""Of a job that names none."""


class Job(Spec):
    """The question a plan answers."""

    model: ModelSpec
    training: TrainingSpec
    cluster: ClusterSpec
    runtime: str = DEFAULT_RUNTIME
    options: RuntimeOptions = RuntimeOptions()
    may_offload_activations: bool = False
    """A search tries `offload_modules`, too."""
