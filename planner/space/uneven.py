"""Which layouts may have their layers split freely."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, LayoutTable
from trainplan.costmodel.layouts.table import BLOCK
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.spec.layout import SCHEDULE_NAMES


def allows_any_split(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Rows whose layers may be split freely.

    The order of the pipeline ignores durations, and its ranks do not wait for messages: the length
    of a path is the seconds of its passes and messages alone.
    """
    other = {*traits.pipeline.unsynchronised, *traits.pipeline.waits_for_messages}
    fixed = [not SCHEDULES[name].adapts and name not in other for name in SCHEDULE_NAMES]
    return np.asarray(
        (table.pp > 1) & np.array(fixed)[table.schedule] & recompute_allows_any_split(traits, table)
    )


def recompute_allows_any_split(traits: RuntimeTraits, table: LayoutTable) -> BoolColumn:
    """Rows whose recomputation the runtime can be told of, however their layers are split.

    Source: `Recompute.layers`; every k-th layer is as many on stages of equal length alone.
    """
    return np.asarray((traits.recompute.layers != "every_kth") | (table.recompute_method != BLOCK))
