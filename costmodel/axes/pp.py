"""Pipeline parallelism: virtual stages hold whole layers; `vpp` of them share a rank."""

from __future__ import annotations

import numpy as np

from costmodel.rules import Rule, num_microbatches, rule
from costmodel.schedules import SCHEDULES
from costmodel.spec.job import Job
from costmodel.spec.layout import SCHEDULE_NAMES
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


def _vpp_text(name: str) -> str:
    least, most = SCHEDULES[name].least_vpp, SCHEDULES[name].most_vpp
    if least == most:
        return f"{name} with vpp={least}"
    return f"{name} with vpp > {least - 1}"


LEAST_VPP = np.array([SCHEDULES[name].least_vpp for name in SCHEDULE_NAMES])
MOST_VPP = np.array([SCHEDULES[name].most_vpp for name in SCHEDULE_NAMES])


@rule(
    "schedule_matches_vpp",
    "vpp schedule",
    f"the schedule runs {', '.join(map(_vpp_text, SCHEDULE_NAMES))}: change vpp or schedule",
    INTERLEAVED,
)
def schedule_matches_vpp(job: Job, table: LayoutTable) -> BoolColumn:
    """Every schedule is written for a number of virtual stages."""
    least, most = LEAST_VPP[table.schedule], MOST_VPP[table.schedule]
    return np.asarray((table.vpp < least) | (table.vpp > most))


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


@rule(
    "interleaved_needs_whole_groups",
    "schedule dp micro_batch_size pp",
    "the interleaved schedule needs micro batches >= pp in multiples of pp: "
    "lower micro_batch_size or dp, or use vpp=1",
    "Megatron Core schedules.py:1161-1180, microbatch group size of a virtual stage",
)
def interleaved_needs_whole_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Interleaving walks groups of pp micro batches."""
    m = num_microbatches(job, table)
    return np.asarray((table.schedule == 1) & ((m < table.pp) | (m % table.pp != 0)))


RULES: tuple[Rule, ...] = (
    interleaved_needs_whole_groups,
    stages_hold_layers,
    vpp_needs_pp,
    schedule_matches_vpp,
    recompute_within_stage,
)
