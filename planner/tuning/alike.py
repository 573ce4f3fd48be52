"""How similar two layouts are: errors of the model that they share."""

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import FULL, SELECTIVE, LayoutTable
from trainplan.planner.tuning.contenders import Contenders

DOUBLED = ("tp", "pp", "vpp", "cp", "dp", "ep", "etp", "micro_batch_size", "dp_replicate")
"""Columns whose doubling is one step away."""
SWITCHED = ("sequence_parallel", "zero_stage", "schedule", "tiled_loss", "tiled_mlp")
"""Columns of which another value is one step away."""


def features(job: Job, table: LayoutTable) -> FloatColumn:
    """Places of layouts, shape (row, feature): two layouts within one step in each are similar.

    Recomputation counts by its share of the layers, half for some modules of them.
    """
    doubled = [np.log2(getattr(table, name)) for name in DOUBLED]
    switched = [np.asarray(getattr(table, name), dtype=float) for name in SWITCHED]
    stage = -(-job.model.num_hidden_layers // (table.pp * table.vpp))
    share = np.where(table.recompute_num_layers > 0, table.recompute_num_layers / stage, 1.0)
    again = np.select([table.recompute == FULL, table.recompute == SELECTIVE], [share, 0.5], 0.0)
    away = [table.offload_optimizer, (table.offload_modules > 0).astype(float)]
    return np.stack([*doubled, *switched, again, *away], axis=1)


def alikeness(contenders: Contenders, steps: float) -> FloatColumn:
    """Correlation of what is shared, by the steps between two layouts.

    Another setting of the runtime is a step. Source: exponential in the distance (Rasmussen and
    Williams, Gaussian Processes for Machine Learning, 2006, section 4.2.1); its length, `steps`, is
    `likeness` of catalog/spreads.toml.
    """
    places = np.concatenate([features(group.job, group.table) for group in contenders.groups])
    numbers = [np.full(len(g.table), i) for i, g in enumerate(contenders.groups)]
    setting = np.concatenate(numbers)
    square = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    square = square + (setting[:, None] != setting[None])
    return np.asarray(np.exp(-np.sqrt(square) / steps))
