"""The nouns: what a user states, frozen and validated once at the edge.

A `Job` is a model, a training and a cluster on a runtime; a `Layout` is one answer to it. No
formulas here. `evidence` has the documents that measurements come in, `sourced` a number with its
source.
"""

from trainplan.costmodel.spec.cluster import ClusterSpec
from trainplan.costmodel.spec.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.spec.layout import Layout, StageSpec
from trainplan.costmodel.spec.lengths import LengthSpec
from trainplan.costmodel.spec.model import ModelSpec, MoeSpec

__all__ = [
    "ClusterSpec",
    "Job",
    "Layout",
    "LengthSpec",
    "ModelSpec",
    "MoeSpec",
    "RuntimeOptions",
    "StageSpec",
    "TrainingSpec",
]
