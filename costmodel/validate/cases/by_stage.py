"""Plans whose stages have degrees or a recomputed share of their own, as layouts of equal stages.

What a rank holds does not depend on the degrees of other ranks, so a stage is priced in a pipeline
as long as its own whose stages all have its degrees.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

from trainplan.costmodel.documents import MeasuredRun, RunStage
from trainplan.costmodel.layout import Layout, stage_specs
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.validate.cases.cases import Case, Skipped, case_of
from trainplan.costmodel.validate.cases.legality import impossible
from trainplan.costmodel.validate.cases.unstated import plan_gradients

LAYER_OPERATIONS, FIRST_OPERATIONS, LAST_OPERATIONS = 13, 1, 2
"""Operations of a decoder layer, of the token table, and of last norm and head.

Source: Aceso's runtime, eth-easl/sailor@cf2c8e3c `sailor/Planner/baselines/Aceso/runtime/megatron/
model/flex_gpt.py`, _gpt.
"""
CORE_OPERATIONS = 4
"""Scores, softmax, dropout and context: the first to run again, for they keep most; then all.

Source: the same runtime, `aceso_cost_model.py`, get_next_recompute_op_group. Between both marks the
bytes that go grow with the number of operations to 4 % of those a layer keeps.
"""


@dataclass(frozen=True, slots=True)
class StagePart:
    """One layout of which a stage of the plan is a mean."""

    stage: int
    case: Case
    layout: Layout
    weight: float
    """Share of this layout in the mean."""


def differs_by_stage(run: MeasuredRun) -> bool:
    """Does the record state degrees or a recomputed share of every stage?"""
    layout = run.layout
    stated = layout.per_stage or layout.recompute_fraction_per_stage
    return stated is not None and len(stated) == layout.pp and (layout.vpp or 1) == 1


def stage_parts(run: MeasuredRun) -> tuple[StagePart, ...] | Skipped:
    """Layouts that every stage is a mean of: of whole layers, and of what runs again."""
    stages = run.layout.per_stage or (RunStage(tp=run.layout.tp, dp=run.layout.dp),) * (
        run.layout.pp or 0
    )
    counted = all(one.ops is not None for one in stages) or run.layout.layers_per_stage
    if len(stages) > 1 and not counted:
        return Skipped(run, "incomplete", "layout.layers_per_stage is not stated")
    degrees = {(one.tp, one.dp) for one in stages}
    cases = {key: case_of(_alike(run, *key)) for key in degrees}
    for case in cases.values():
        if isinstance(case, Skipped):
            return Skipped(run, case.reason, case.detail)
        if broken := impossible(case):
            return Skipped(run, "layout_impossible", broken)
    return tuple(
        StagePart(number, case, layout, weight)
        for number, one in enumerate(stages)
        if isinstance(case := cases[one.tp, one.dp], Case)
        for layout, weight in _means(run, case, number, one)
    )


def _alike(run: MeasuredRun, tp: int | None, dp: int | None) -> MeasuredRun:
    """The run with equal stages of those degrees, on as many GPUs as they need.

    Plans by stage count the micro batch over the replicas of the stage.
    """
    stated, cluster = run.layout, run.cluster
    replicas, gpus = dp or 1, cluster.num_gpus
    update: dict[str, object] = {
        "tp": tp,
        "dp": dp,
        "per_stage": None,
        "recompute": "none",
        "recompute_fraction_per_stage": None,
        "gradient_dtype": stated.gradient_dtype or plan_gradients(run),
    }
    if stated.per_stage and tp and dp and stated.pp:
        gpus = tp * dp * stated.pp
        batch = stated.micro_batch_size
        update["micro_batch_size"] = batch and max(1, batch // replicas)
    per_node = cluster.gpus_per_node
    if gpus and per_node and gpus % min(per_node, gpus):
        per_node = 1
    return run.model_copy(
        update={
            "layout": stated.model_copy(update=update),
            "cluster": cluster.model_copy(update={"num_gpus": gpus, "gpus_per_node": per_node}),
        }
    )


def _means(
    run: MeasuredRun, case: Case, number: int, stage: RunStage
) -> Iterator[tuple[Layout, float]]:
    """Layouts with whole layers and one recomputation, and their weights, which add up to 1."""
    layers, pp = _layers(run, case, number, stage), case.layout.pp
    total = case.job.model.num_hidden_layers
    for count, share in _between(layers):
        split = _with_stage(number, min(count, total), pp, total)
        for recompute, part in _recomputed(_share(run, number, stage)):
            update = {"stages": stage_specs(split) if pp > 1 else None, **recompute}
            yield case.layout.model_copy(update=update), share * part


def _layers(run: MeasuredRun, case: Case, number: int, stage: RunStage) -> float:
    if stage.ops is not None:
        return max(0.0, (stage.ops - _end_operations(run, number)) / LAYER_OPERATIONS)
    stated = case.layout.stages
    return stated[number].layers if stated else case.job.model.num_hidden_layers


def _share(run: MeasuredRun, number: int, stage: RunStage) -> float:
    """Share of the operations of its layers that run again; those of the ends never do.

    Source: Aceso's `model_ops_info.py`, get_no_recompute_op_list.
    """
    shares = run.layout.recompute_fraction_per_stage
    stated = shares[number] if shares else stage.recompute_frac or 0.0
    if stage.ops is None:
        return stated
    inner = stage.ops - _end_operations(run, number)
    return min(1.0, stated * stage.ops / inner) if inner > 0 else 0.0


def _end_operations(run: MeasuredRun, number: int) -> int:
    last = number + 1 == run.layout.pp
    return FIRST_OPERATIONS * (number == 0) + LAST_OPERATIONS * last


def _between(layers: float) -> list[tuple[int, float]]:
    """Whole numbers around it with their shares."""
    below = floor(layers)
    over = layers - below
    return [(below, 1 - over), (below + 1, over)] if over else [(below, 1.0)]


def _recomputed(share: float) -> list[tuple[dict[str, object], float]]:
    """Policies around a share of the operations that run again, with their shares."""
    nothing: dict[str, object] = {}
    core: dict[str, object] = {"recompute": "selective", "recompute_modules": ("core_attn",)}
    full: dict[str, object] = {
        "recompute": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }
    mark = CORE_OPERATIONS / LAYER_OPERATIONS
    found = [(nothing, 1 - share / mark), (core, share / mark)]
    if share > mark:
        over = (share - mark) / (1 - mark)
        found = [(core, 1 - over), (full, over)]
    return [(policy, part) for policy, part in found if part > 0]


def _with_stage(number: int, layers: int, pp: int, total: int) -> tuple[int, ...]:
    """A split with so many layers in one stage, the others as even as can be."""
    others = list(layers_per_stage(total - layers, pp - 1)) if pp > 1 else []
    return (*others[:number], layers, *others[number:])
