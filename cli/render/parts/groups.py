"""Which node group runs which part of a pipeline, as text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from trainplan.cli.render.parts.text import plural
from trainplan.costmodel.pipeline.node_groups import rank_groups
from trainplan.costmodel.spec import Job, Layout
from trainplan.costmodel.spec.layout import SCHEDULE_NAMES


def groups_part(job: Job, layout: Layout) -> Iterator[RenderableType]:
    """A line for each node group, where the stages name theirs."""
    stages = layout.stages or ()
    if not any(stage.group for stage in stages):
        return
    schedule = SCHEDULE_NAMES.index(layout.schedule)
    ranks = rank_groups(stages, schedule, layout.pp)
    lines = []
    for group, run in groupby(range(layout.pp), key=lambda rank: int(ranks[rank])):
        first, *_ = here = list(run)
        nodes = job.cluster.groups[group]
        layers = int(np.sum([stage.layers for stage in stages if stage.group == group]))
        which = f"{first} to {here[-1]}" if len(here) > 1 else f"{first}"
        lines.append(
            f"  pipeline rank{'s' * (len(here) > 1)} {which}: {plural(layers, 'layer')} on group "
            f"{group}, {plural(nodes.num_nodes, 'node')} of {nodes.gpus_per_node} {nodes.gpu}"
        )
    yield Group(Text("Where stages run", style="bold"), *lines)
