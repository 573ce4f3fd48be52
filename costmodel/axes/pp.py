"""Pipeline parallelism: virtual stages hold whole layers; `vpp` of them share a rank."""

from __future__ import annotations

import numpy as np

from costmodel.rules import Rule, rule
from costmodel.spec.job import Job
from costmodel.splits import EMPTY_ENDS
from costmodel.table import BoolColumn, LayoutTable

INTERLEAVED = "Narayanan et al., arXiv:2104.04473, section 2.2.2"


@rule(
    "stages_hold_layers",
    "pp vpp",
    "only the first and the last stage may be empty, pp * vpp <= num_hidden_layers + 2: "
    "lower pp or vpp",
    "Llama 3, arXiv:2407.21783, section 3.3.2",
)
def stages_hold_layers(job: Job, table: LayoutTable) -> BoolColumn:
    """No empty stage but at the ends, and never more ranks than layers."""
    layers = job.model.num_hidden_layers
    return np.asarray((table.pp * table.vpp > layers + EMPTY_ENDS) | (table.pp > layers))


@rule(
    "vpp_needs_pp",
    "pp vpp",
    "vpp > 1 needs pp > 1: one rank has no bubble to fill",
    INTERLEAVED,
)
def vpp_needs_pp(job: Job, table: LayoutTable) -> BoolColumn:
    """Interleaving on one rank is an order without effect."""
    return np.asarray((table.vpp > 1) & (table.pp == 1))


@rule(
    "schedule_matches_vpp",
    "vpp schedule",
    "schedule 1f1b runs with vpp=1, interleaved with vpp > 1",
    INTERLEAVED,
)
def schedule_matches_vpp(job: Job, table: LayoutTable) -> BoolColumn:
    """1F1B is the interleaved schedule of one virtual stage."""
    return np.asarray((table.schedule == 1) != (table.vpp > 1))


@rule(
    "recompute_within_stage",
    "pp vpp recompute_num_layers",
    "recompute_num_layers must not exceed the layers of a virtual stage: lower it",
    "derived: more layers than a stage holds change nothing",
)
def recompute_within_stage(job: Job, table: LayoutTable) -> BoolColumn:
    """A stage cannot recompute more layers than it holds."""
    largest = -(-job.model.num_hidden_layers // (table.pp * table.vpp))
    return np.asarray(table.recompute_num_layers > largest)


RULES: tuple[Rule, ...] = (
    stages_hold_layers,
    vpp_needs_pp,
    schedule_matches_vpp,
    recompute_within_stage,
)
