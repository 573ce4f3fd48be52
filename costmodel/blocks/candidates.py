"""Layouts with all that their price depends on: the job, its machine and its runtime."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.costmodel.layouts import BoolColumn, IntColumn, LayoutTable
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.spec import Job


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


def context_of(job: Job, machine: Machine) -> Context:
    """A job on a machine, in the runtime that it names."""
    return Context(job, machine, traits_of(job))
