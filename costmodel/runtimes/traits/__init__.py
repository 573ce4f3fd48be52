"""What a runtime does, in small values by concern: a formula reads one of them, or two.

Each field that few runtimes need has the value of the others as its default. A value that options
of a run may change has `with_options`.
"""

from trainplan.costmodel.runtimes.traits.communication import Communication, Experts
from trainplan.costmodel.runtimes.traits.kernels import (
    AttentionKernel,
    Host,
    Kernels,
    attention_with,
)
from trainplan.costmodel.runtimes.traits.offloading import Offload, Offloading
from trainplan.costmodel.runtimes.traits.pipeline import Pipeline, splits_groups
from trainplan.costmodel.runtimes.traits.recipe import Recipe
from trainplan.costmodel.runtimes.traits.recompute import Recompute
from trainplan.costmodel.runtimes.traits.settings import Setting, Stated
from trainplan.costmodel.runtimes.traits.sharding import Gradients, Sharding
from trainplan.costmodel.runtimes.traits.tiling import Tiling
from trainplan.costmodel.runtimes.traits.training import Adapting

__all__ = [
    "Adapting",
    "AttentionKernel",
    "Communication",
    "Experts",
    "Gradients",
    "Host",
    "Kernels",
    "Offload",
    "Offloading",
    "Pipeline",
    "Recipe",
    "Recompute",
    "Setting",
    "Sharding",
    "Stated",
    "Tiling",
    "attention_with",
    "splits_groups",
]
