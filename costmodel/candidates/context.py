"""Layouts with all that their price depends on: the job, its machine and its runtime."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import Identical
from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import GemmRate, Machine
from trainplan.costmodel.runtimes import RuntimeTraits, traits_of
from trainplan.costmodel.schedules import grouped


@dataclass(frozen=True, slots=True)
class Context:
    """What all layouts of a question share."""

    job: Job
    machine: Machine
    traits: RuntimeTraits

    @property
    def shared(self) -> tuple[Job, Machine, RuntimeTraits]:
        """Its three parts, in the order of the fields."""
        return self.job, self.machine, self.traits

    @property
    def linear(self) -> GemmRate:
        """Curve of the products of layers, whose operands are scaled as the runtime does in fp8."""
        fp8 = self.job.training.precision == "fp8"
        recipe = self.traits.kernels.fp8_recipe if fp8 else "tensorwise"
        linear = self.machine.linear
        return linear if linear.recipe == recipe else replace(linear, recipe=recipe)

    def with_table(self, table: LayoutTable) -> Candidates:
        """These layouts, or others, in this context."""
        return Candidates(*self.shared, table)


@dataclass(frozen=True, slots=True)
class Candidates(Context):
    """Layouts in their context."""

    table: LayoutTable

    def take(self, rows: IntColumn | BoolColumn) -> Candidates:
        """The rows picked by an index or a mask."""
        return self.with_table(self.table.take(rows))

    def schedule_of(self, row: int) -> str:
        """Name of the schedule of a row, in its groups. Source: as `grouped`."""
        table = self.table
        name, pp = SCHEDULE_NAMES[table.schedule[row]], int(table.pp[row])
        replicas = int(table.dp[row] * table.micro_batch_size[row])
        microbatches = self.job.training.global_batch_size // replicas
        return grouped(name, self.job.options.microbatch_group_size, pp, microbatches)

    @property
    def as_executed(self) -> Candidates:
        """The layouts as the runtime runs them.

        Source: `Sharding.whole_under_pipeline`; torch.distributed.pipelining `stage.py`,
        set_reshard_after_backward and set_requires_gradient_sync off until the last micro batch.
        """
        table = self.table
        if not self.traits.sharding.whole_under_pipeline:
            return self
        whole = (table.pp > 1) & (table.zero_stage >= 2)
        return self.with_table(table.replaced(zero_stage=np.where(whole, 1, table.zero_stage)))


@lru_cache(maxsize=64)
def _jobs_of_kinds(key: Identical[Job]) -> tuple[Job, ...]:
    return tuple(_job_of_kind(key.of, kind) for kind in key.of.model.kinds)


def _job_of_kind(job: Job, kind: ModelSpec) -> Job:
    """The job of a model of that kind of layer alone, in the precision that it multiplies in."""
    update: dict[str, object] = {"model": kind}
    if kind.wide_products and job.training.casts:
        update["training"] = job.training.model_copy(update={"precision": "bf16"})
    return job.model_copy(update=update)


def of_kinds(candidates: Candidates) -> tuple[Candidates, ...]:
    """The layouts with a model of each kind of layer alone, in the order of `ModelSpec.kinds`."""
    jobs = _jobs_of_kinds(Identical(candidates.job))
    return tuple(replace(candidates, job=job) for job in jobs)


def context_of(job: Job, machine: Machine) -> Context:
    """A job on a machine, in the runtime that it names."""
    return Context(job, machine, traits_of(job))
