"""The pipeline: a schedule by name or as a table of ops, and the modules of every stage.

Source: torch.distributed.pipelining `schedules.py`, get_schedule_class; torchtitan
`distributed/pipeline_parallel.py`.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.program import EQUAL, Program, Shape
from trainplan.costmodel.schedules import SCHEDULES, program_for, torch_class
from trainplan.costmodel.step import price, virtual_stage_seconds
from trainplan.costmodel.timeline import relative_seconds, units_of

PLACED: Mapping[str, str] = MappingProxyType({"loop": "1F1B", "v": "ZBVZeroBubble"})
"""Class named beside a table of ops: it says which stages share a rank, the table the rest."""


def schedule_name(layout: Layout) -> str:
    """`pipeline_parallel_schedule`."""
    return torch_class(layout) or PLACED[SCHEDULES[layout.schedule].placement]


def by_table(layout: Layout) -> bool:
    """Has torch no class for it, so that a table of its ops is needed?"""
    return torch_class(layout) is None


def priced_program(job: Job, layout: Layout) -> Program:
    """The ops whose time the price of a layout is.

    Raises:
        PlanError: The schedule does not run in this shape.
    """
    shape = Shape(layout.pp, layout.vpp, num_microbatches(job, layout))
    if not SCHEDULES[layout.schedule].adapts:
        return program_for(layout.schedule, shape, EQUAL)
    candidates = context_of(job, machine_for(job)).with_table(LayoutTable.of([layout]))
    priced = price(candidates, merged=False)
    seconds = virtual_stage_seconds(priced, np.array([0]))
    units = units_of(layout.schedule)
    return program_for(
        layout.schedule, shape, relative_seconds(seconds, priced.seconds.p2p[:1], units)[0]
    )


def modules_of_stages(layers: tuple[int, ...]) -> list[list[str]]:
    """`module_fqns_per_model_part`: names of the modules each virtual stage holds."""
    ends = np.cumsum(layers).tolist()
    parts = [
        [f"layers.{number}" for number in range(end - count, end)]
        for count, end in zip(layers, ends, strict=True)
    ]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts
