"""Pipeline parallelism: virtual stages hold whole layers; `vpp` of them share a rank.

Stages may be given one by one: their layers and, where a cluster has several, their node groups.
"""

from collections.abc import Iterator

import numpy as np

from trainplan.costmodel.axes.axis import Apart, Axis, Memory, Tried
from trainplan.costmodel.axes.values import all_virtual_stages, degrees, schedules_under
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, StageSpec
from trainplan.costmodel.layouts import (
    EMPTY_ENDS,
    LayoutTable,
    Rule,
    num_microbatches,
    rule,
    stage_codes,
)
from trainplan.costmodel.pipeline import in_groups, misplaced
from trainplan.costmodel.schedules import SCHEDULES, ShapeRule

INTERLEAVED = "Narayanan et al., arXiv:2104.04473, section 2.2.2"


@rule(
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
    "pp",
    "layers with the weights of an earlier one lie on its rank: pp = 1",
    "derived: another rank has neither those weights nor their gradients (Zamba, arXiv:2405.16712)",
)
def layers_repeat_on_one_rank(job: Job, table: LayoutTable) -> BoolColumn:
    """No stages for a model that repeats layers."""
    repeats = any(kind.own_weights is not None for kind in job.model.kinds)
    return np.asarray((table.pp > 1) & repeats)


@rule("pp vpp", "vpp > 1 needs pp > 1: one rank has no bubble to fill", INTERLEAVED)
def vpp_needs_pp(job: Job, table: LayoutTable) -> BoolColumn:
    """Interleaving on one rank is an order without effect."""
    return np.asarray((table.vpp > 1) & (table.pp == 1))


@rule(
    "pp vpp stages",
    "stages hold every layer of the model once, and none but the first, the last and one for "
    "multi-token prediction is empty: correct their layers",
    "costmodel/layouts/table.py; Megatron-LM pipeline_parallel_layer_layout.py, a stage `m`",
)
def stages_hold_the_model(job: Job, table: LayoutTable) -> BoolColumn:
    """Stages that a layout gives are a split of the model."""

    def wrong(stages: tuple[StageSpec, ...] | None) -> bool:
        counts = [stage.layers for stage in stages or ()]
        return bool(counts) and not (sum(counts) == layers and all(counts[1:before_last]))

    layers = job.model.num_hidden_layers
    before_last = -2 if job.model.num_nextn_predict_layers else -1
    codes, splits = stage_codes(table)
    return np.array([wrong(stages) for stages in splits])[codes]


@rule(
    "pp vpp stages recompute_num_layers",
    "recompute_num_layers must not exceed the layers of a virtual stage: lower it",
    "derived: more layers than a stage holds change nothing",
)
def recompute_within_stage(job: Job, table: LayoutTable) -> BoolColumn:
    """A stage cannot recompute more layers than it holds."""
    largest = -(-job.model.num_hidden_layers // (table.pp * table.vpp))
    codes, splits = stage_codes(table)
    own = np.array([max((stage.layers for stage in stages or ()), default=0) for stages in splits])
    return np.asarray(table.recompute_num_layers > np.where(codes > 0, own[codes], largest))


def vpp_rule(name: str) -> Rule:
    """A schedule is written for a number of virtual stages, as a rule of layouts."""
    schedule, code = SCHEDULES[name], SCHEDULE_NAMES.index(name)

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """The layout has another number."""
        outside = (table.vpp < schedule.least_vpp) | (table.vpp > schedule.most_vpp)
        return np.asarray((table.schedule == code) & outside)

    return Rule(
        name=f"{name.replace('-', '_')}_vpp",
        columns=frozenset({"vpp", "schedule"}),
        broken=broken,
        says=f"{name} runs {schedule.vpp_text()}: change vpp or schedule",
        source=f"costmodel/schedules: {name}",
    )


def shape_rules(name: str) -> Iterator[Rule]:
    """What a schedule needs of pp, vpp and the number of micro batches, as rules of layouts."""
    code = SCHEDULE_NAMES.index(name)
    for number, needed in enumerate(SCHEDULES[name].rules, start=1):

        def broken(job: Job, table: LayoutTable, needed: ShapeRule = needed) -> BoolColumn:
            """A schedule runs in the shapes it is written for, or in groups that are stated."""
            stated = name == "interleaved" and job.options.microbatch_group_size is not None
            rows = np.flatnonzero((table.schedule == code) & (not stated))
            result: BoolColumn = np.zeros(len(table), dtype=bool)
            if len(rows):
                some = table.take(rows)
                result[rows] = needed.broken(some.pp, some.vpp, num_microbatches(job, some))
            return result

        yield Rule(
            name=f"{name.replace('-', '_')}_shape" + (f"_{number}" if number > 1 else ""),
            columns=frozenset({"schedule", "vpp", "pp", "dp", "micro_batch_size"}),
            broken=broken,
            says=f"{name}: {needed.message}",
            source=f"costmodel/schedules: {name}",
        )


PP = Axis(
    name="pp",
    off=1,
    search=Tried(degrees),
    memory=Memory("neither", (), "fewer layers on a rank, and more micro batches in flight"),
    rules=(
        *(vpp_rule(name) for name in SCHEDULE_NAMES),
        *(one for name in SCHEDULE_NAMES for one in shape_rules(name)),
        stages_hold_layers,
        layers_repeat_on_one_rank,
        vpp_needs_pp,
        stages_hold_the_model,
        recompute_within_stage,
    ),
)
VPP = Axis(
    name="vpp",
    off=1,
    search=Tried(all_virtual_stages),
    memory=Memory("neither", (), "1F1B keeps more micro batches, other schedules as many"),
)
SCHEDULE = Axis(
    name="schedule",
    off="1f1b",
    search=Tried(lambda job, traits: traits.pipeline.schedules, schedules_under),
    memory=Memory("neither", (), "each has its own number of passes in flight"),
)


@rule(
    "tp cp dp pp vpp schedule stages",
    "every node group runs as many whole pipeline ranks in a row as its GPUs / (tp cp dp): "
    "correct the groups of the stages, or leave them out",
    "costmodel/pipeline/node_groups.py",
)
def stages_live_in_groups(job: Job, table: LayoutTable) -> BoolColumn:
    """Groups are given for the whole pipeline, and no rank straddles two."""
    result: BoolColumn = np.zeros(len(table), dtype=bool)
    for row in np.flatnonzero(in_groups(table)).tolist():
        result[row] = misplaced(job, table, row)
    return result


STAGES = Axis(
    name="stages",
    off=None,
    search=Apart("uneven stages are searched for layouts that have all else"),
    memory=Memory("neither", (), "layers move from one rank to another"),
    rules=(stages_live_in_groups,),
)
