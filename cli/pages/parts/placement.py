"""Where ranks run: the order of the nodes, which group has which stages, a tower of its own."""

from collections.abc import Iterator
from itertools import groupby
from math import ceil

import numpy as np

from trainplan.cli.blocks import Part, headed, number, stacked, table
from trainplan.cli.terminal import WIDTH
from trainplan.cli.words import gib, percent, plural, seconds, seconds_like
from trainplan.costmodel.hardware import Placement
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.pipeline import rank_groups
from trainplan.planner.plan import Apart, Plan

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


def disaggregated_part(apart: Apart) -> Iterator[Part]:
    """The step of the whole first; the layout of the page is that of the decoder."""
    yield stacked(disaggregated_text(apart), unified_text(apart), proof_text(apart))
    columns = (number("GPUs of the tower", str), number("bound", seconds), number("step", seconds))
    rows = ((one.tower_gpus, one.lower_bound_s, one.step_time_s) for one in apart.splits)
    yield table("", columns, rows)


def disaggregated_text(apart: Apart) -> str:
    """The split and both steps."""
    return (
        f"Tower on its own GPUs: {seconds(apart.step_time_s)} a step. The layout above is the "
        f"decoder's, on {plural(apart.decoder_gpus, 'GPU')} ({seconds(apart.decoder_step_s)}); "
        f"the tower runs on {plural(apart.tower_gpus, 'GPU')} ({seconds(apart.tower_step_s)}, tp "
        f"{apart.tower_tp} dp {apart.tower_dp}, {plural(apart.samples_at_once, 'sample')} at once, "
        f"keeps {apart.keeps}, {gib(apart.tower_used_bytes)} GiB). Handing embeddings over exposes "
        f"{seconds_like(apart.exposed_s, apart.step_time_s)}."
    )


def unified_text(apart: Apart) -> str:
    """What the tower on the first stage of all GPUs would take."""
    other = apart.unified_step_s
    if other is None:
        return "Unified, on the first stage of all GPUs, nothing fits."
    change = apart.step_time_s / other - 1
    words = "less" if change < 0 else "more"
    return (
        f"Unified, on the first stage of all GPUs, a step takes {seconds(other)}: on its own GPUs "
        f"it takes {percent(abs(change))} {words}."
    )


def proof_text(apart: Apart) -> str:
    """What is proved of other splits."""
    gap = 1 - apart.lower_bound_s / apart.step_time_s
    searched = sum(one.step_time_s is not None for one in apart.splits)
    tried = (
        f"{searched} of {plural(len(apart.splits), 'split')} searched, a bound excludes the rest"
    )
    if gap <= 0:
        return f"Proved: no other split is faster; {tried}."
    return f"Proved: no split is more than {percent(gap)} faster; {tried}."
