"""What a runtime can train beside every weight, and how it holds what is frozen and adapted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.architecture import Method
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes.traits.settings import stated_or


@dataclass(frozen=True, slots=True)
class Adapting:
    """Adapters and frozen weights of a runtime; by default it trains every weight or nothing."""

    methods: tuple[Method, ...] = ()
    """What it takes of `Trained.method`."""
    joins: bool = False
    """Queries, keys and values are one matrix with one adapter, and so are gate and up."""
    experts: bool = False
    """Routed experts may have adapters: the local ones of a rank share one."""
    local: bool = False
    """Halves of adapters beside the uncut side of a matrix are whole, and see a rank's own tokens;
    every expert has adapters of its own."""
    widens: bool = False
    """Adapters may be in fp32 beside frozen weights in 16 bits."""
    caches_transposes: bool = True
    """Of frozen weights in 8 bits alone the transpose is kept, where products need one."""
    plain_replicas: bool = False
    """Where nothing is sharded adapters and their gradients are in 16 bits, without a master
    weight, and their moments in fp32."""

    def with_options(self, options: RuntimeOptions) -> Adapting:
        """That of a run that may say whether transposes are kept."""
        kept = stated_or(options.fp8_transpose_cache, self.caches_transposes)
        return replace(self, caches_transposes=kept)

    def replicated(self, job: Job, table: LayoutTable) -> BoolColumn:
        """Are adapters and their gradients in 16 bits, without a master weight?

        Source: `Adapting.plain_replicas`. Of those in fp32 autocast keeps copies in 16 bits.
        """
        adapts = job.model.trained is not None and job.model.trained.adapts
        adapts = adapts and job.options.adapter_dtype != "fp32"
        return np.asarray((table.zero_stage == 0) & adapts & self.plain_replicas)


NOTHING = Adapting()
