"""Which pipelines a runtime executes, how it cuts layers, and how messages pass between stages."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import BoolColumn, IntColumn
from trainplan.costmodel.layout import Schedule


def splits_groups(pp: IntColumn | int, num_microbatches: IntColumn | int) -> BoolColumn:
    """Do the micro batches not fill groups of pp? Source: that of `whole_groups`' rule."""
    return np.asarray((num_microbatches < pp) | (num_microbatches % pp != 0))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Schedules, stages and the messages between them."""

    schedules: tuple[Schedule, ...] = ("1f1b", "interleaved")
    """Schedules it executes."""
    cuts_layers: bool = True
    """Cuts layers among pipeline ranks at all."""
    whole_groups: bool = False
    """Interleaves groups of exactly pp micro batches."""
    splits_freely: bool = False
    """An option says how many layers each virtual stage holds."""
    unsynchronised: tuple[Schedule, ...] = ()
    """Schedules under which a rank starts its next step without waiting for the others: the norm
    of the gradients is checked after the optimizer step, and the step undone if need be."""
    scatters_messages: bool = False
    """Each tensor rank sends its slice to the next stage and the receivers gather it."""
    waits_for_messages: tuple[Schedule, ...] = ()
    """Schedules under which a rank computes nothing while it sends or receives an activation or its
    gradient."""

    def executes(self, schedule: str, pp: int, num_microbatches: int) -> bool:
        """Does it run a pipeline of this shape under the schedule, unless a model forbids it?"""
        grouped = self.whole_groups and schedule == "interleaved"
        refused = grouped and bool(splits_groups(pp, num_microbatches))
        return schedule in self.schedules and (self.cuts_layers or pp == 1) and not refused
