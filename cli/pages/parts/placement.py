"""Where ranks run, as text: the order of the nodes, and which group has which stages."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from math import ceil

import numpy as np

from trainplan.cli.blocks import Part, headed
from trainplan.cli.terminal import WIDTH
from trainplan.cli.words import percent, plural, seconds_like
from trainplan.costmodel.hardware import Placement
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.pipeline import rank_groups
from trainplan.planner.plan import Plan

MORE = " ..., see `placement` of the plan"


def placement_text(plan: Plan, placement: Placement) -> str:
    """Which node holds the first ranks, what that gains, and how sure it is."""
    step = placement.step_time_s
    given = placement.identity_step_time_s
    took = f"{seconds_like(step, step)} a step on the measured links"
    if placement.gap_fraction:
        took += f", at most {percent(ceil(placement.gap_fraction * 1e4) / 1e4, 2)} off the best"
    else:
        took += ", proved the best order"
    if step >= given:
        return f"Nodes in the given order: {took}.{_chosen(plan)}"
    gain = f"{percent(placement.gain_fraction)} faster than the given order"
    return f"{_names(placement.nodes)}\n{gain}: {took}.{_chosen(plan)}"


def _chosen(plan: Plan) -> str:
    """Why the answer is not the fastest of the table."""
    step = plan.best.estimate.step_time_s
    if all(other.estimate.step_time_s >= step for other in plan.candidates):
        return ""
    return (
        f"\nIt is the fastest there of the {len(plan.candidates)} layouts of the table; the proof "
        "above is for links all\nas fast as the fastest."
    )


def _names(nodes: tuple[str, ...]) -> str:
    """As many names as a line holds; a common domain is left out."""
    shown = _short(nodes)
    line = "Place nodes as " + " ".join(shown)
    if len(line) <= WIDTH:
        return line
    return line[: WIDTH - len(MORE)].rpartition(" ")[0] + MORE


def _short(nodes: tuple[str, ...]) -> list[str]:
    """Names without what all end in."""
    ends = {name.partition(".")[2] for name in nodes}
    same = len(ends) == 1 and len({name.partition(".")[0] for name in nodes}) == len(nodes)
    return [name.partition(".")[0] if same else name for name in nodes]


def groups_part(job: Job, layout: Layout) -> Iterator[Part]:
    """A line for each node group, where the stages name theirs."""
    if lines := group_lines(job, layout):
        yield headed("Where stages run", *(f"  {line}" for line in lines))


def group_lines(job: Job, layout: Layout) -> list[str]:
    """Which pipeline ranks and layers each node group has; none where stages name no group."""
    stages = layout.stages or ()
    if not any(stage.group for stage in stages):
        return []
    schedule = SCHEDULE_NAMES.index(layout.schedule)
    ranks = rank_groups(stages, schedule, layout.pp)
    lines = []
    for group, run in groupby(range(layout.pp), key=lambda rank: int(ranks[rank])):
        first, *_ = here = list(run)
        nodes = job.cluster.groups[group]
        layers = int(np.sum([stage.layers for stage in stages if stage.group == group]))
        which = f"{first} to {here[-1]}" if len(here) > 1 else f"{first}"
        lines.append(
            f"pipeline rank{'s' * (len(here) > 1)} {which}: {plural(layers, 'layer')} on group "
            f"{group}, {plural(nodes.num_nodes, 'node')} of {nodes.gpus_per_node} {nodes.gpu}"
        )
    return lines
