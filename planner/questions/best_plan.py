"""The verbs behind the commands: search a job, estimate a layout."""

from dataclasses import replace
from typing import Final

import numpy as np

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for, measured_notes
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.families import notes_of
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.outer import island_job
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.runtimes import RUNTIMES, runtime
from trainplan.costmodel.step import Estimate
from trainplan.costmodel.timeline import settled
from trainplan.planner.cases import Case, Relaxations, relaxations
from trainplan.planner.evidence import evidence_on
from trainplan.planner.goals import (
    Reached,
    SearchContext,
    answer,
    check_disaggregated,
    check_uneven,
    disaggregated_tower,
    looks_for_uneven,
    part_alone,
    roomy,
    time_before_part,
    time_before_ties,
    too_late,
    uses_all_nodes,
    wants_uneven,
    with_simpler,
)
from trainplan.planner.plan import (
    NO_EXPORT,
    Apart,
    Certificate,
    Infeasible,
    Plan,
    SearchOptions,
    Source,
)
from trainplan.planner.questions.assumed_settings import StepFacts
from trainplan.planner.questions.batch_notes import batch_notes
from trainplan.planner.questions.candidates import candidates_of
from trainplan.planner.questions.domain_notes import domain_notes, expert_notes
from trainplan.planner.questions.estimation import check_model
from trainplan.planner.questions.kernel_widths import width_notes
from trainplan.planner.questions.launch_bound import launch_bound_note
from trainplan.planner.questions.load_shift import estimate, excluded_notes
from trainplan.planner.questions.offload_gain import offload_gain
from trainplan.planner.questions.offload_notes import check_drives, host_change, offload_notes
from trainplan.planner.questions.placement import not_placed, placed, unproved
from trainplan.planner.questions.setting_notes import (
    bucket_notes,
    model_notes,
    module_notes,
    setting_notes,
)
from trainplan.planner.questions.trust import (
    check_trusted,
    or_published,
    price_of_reserve,
    price_of_trust,
    published_instead,
    searched_published,
    time_before_published,
    time_for_answer,
    with_price_of_published,
)
from trainplan.planner.questions.unequal_experts import imbalance_notes
from trainplan.planner.runtimes import EXPORTERS, TRAINERS, check_able
from trainplan.planner.schedules import other_schedules
from trainplan.planner.settings import values_of
from trainplan.planner.space import allowed, values_outside_grid
from trainplan.planner.work import ALONE, Budget, Unlimited, Workers, part_of

NO_FILES = "no launch files are written for"
"""A note of plans that cannot be exported starts so."""
NOT_COMPARED = "no other schedules are compared with this one: the time limit struck"


def search(
    job: Job,
    options: SearchOptions | None = None,
    budget: Budget | None = None,
    measured: Measured = NOTHING,
    workers: Workers = ALONE,
) -> Plan | Infeasible:
    """Find the best layout of a job, with alternatives and a certificate.

    Best is by `options.objective`; where that may leave nodes out, the plan's job has fewer.

    What was measured of the machine replaces the catalog; the proof then holds for that machine.

    Raises:
        PlanError: The job names something unknown or lacks a number it needs, or the budget was
            spent before anything was found.
    """
    options = options or SearchOptions()
    job = allowed(options.trained(island_job(job)), options.choices)
    if options.only_written and options.tower != "apart" and not options.trainer:
        check_able(job)
    check_model(job)
    budget, late = budget or Unlimited(), False
    whole = time_for_answer(options, budget, reserve=job.reserves)
    on = context_for(job, measured)
    context = SearchContext(*on.shared, options, measured, whole, workers)
    limit = _time_before_part(context, time_before_ties(options, whole))
    check_drives(context)
    check_uneven(context)
    check_trusted(context)
    context = replace(context, budget=time_before_published(context, limit))
    apart: Apart | None = None
    published: Reached | None = None
    if options.tower == "apart":
        check_disaggregated(context)
        reached, apart = disaggregated_tower(context)
    else:
        reached = answer(context)
        if context.budget is not limit and context.budget.spent():
            published = searched_published(replace(context, budget=limit), generation=True)
            reached = or_published(reached, published)
    # The deadline: the fastest of all these meets it.
    _check_deadline(reached)
    if reached.found.finalists is None or reached.target is None:
        return _infeasible(reached)
    # The plan: the answer and its alternatives run on the clock, and what is known beside them.
    reached, plan = _answered(replace(context, budget=limit), reached, whole, published)
    own = reached.context
    job, machine = own.job, own.machine
    if not options.only_answer:
        plan = placed(plan, machine, budget)
        late = budget.spent()
        margin = options.margin(job)
        slower = () if late else other_schedules(own, plan.best.layout, margin)
        best, certificate = plan.best, _priced(replace(context, budget=budget), plan)
        proof: dict[str, object] = {
            "evidence": evidence_on(own, best.layout),
            "certificate": certificate,
        }
        if not apart:
            proof |= StepFacts.of(job, best.layout, best.estimate, measured)._asdict()
        plan = plan.model_copy(update={"other_schedules": slower, **proof})
    layout = plan.best.layout
    texts = [
        *_part_alone(replace(context, budget=budget), plan),
        *_without_files(own, layout, options.trainer),
        *imbalance_notes(job, layout),
        *excluded_notes(job, plan.refused),
        *offload_notes(layout, plan.best.estimate, measured.profile),
        *(() if options.only_answer or apart else offload_gain(own, plan, context)),
        *width_notes(own, layout, plan.best.estimate),
        *expert_notes(own, layout),
        *notes_on(own, measured),
    ]
    if reason := unproved(plan.placement):
        texts.append(reason)
    if late and layout.pp > 1:
        texts.append(NOT_COMPARED)
    if apart:
        texts = [*(text for text in texts if "`plan export`" not in text), NO_EXPORT]
    return plan.model_copy(update={"notes": tuple(texts), "apart": apart})


def _time_before_part(context: SearchContext, limit: Budget) -> Budget:
    """A limit without what the question of a faster part may take, where none is searched."""
    options = context.options
    whole = options.whole_cluster or uses_all_nodes(context)
    return time_before_part([context.job], limit) if whole and _tells_all(options) else limit


def _part_alone(context: SearchContext, plan: Plan) -> tuple[str, ...]:
    """Where no part was searched, a sentence if one is faster, or if that is not known."""
    if not _tells_all(context.options) or len(plan.certificate.objective.tried) > 1:
        return ()
    job = context.job.model_copy(update={"training": plan.job.training})
    return part_alone(context.with_job(job), plan.best.estimate)


def _tells_all(options: SearchOptions) -> bool:
    return not options.only_answer and options.tower != "apart"


def _priced(context: SearchContext, plan: Plan) -> Certificate:
    """The certificate with what `--trusted` and `--reserve` cost."""
    certificate = plan.certificate
    target, both = certificate.objective, context.options.trusted and context.job.reserves
    first = replace(context, budget=part_of(context.budget, 1 / 2)) if both else context
    prices = {
        "trusted": price_of_trust(first, target) or certificate.trusted,
        "reserve": price_of_reserve(context, target),
    }
    return certificate.model_copy(update=prices)


def _check_deadline(reached: Reached) -> None:
    """Is the fastest layout in time? Other objectives take no slower ones for an answer."""
    target = reached.target
    if target is None or target.name != "time" or target.step_time_limit_s is None:
        return
    if target.value > target.step_time_limit_s:
        free = reached.context.traits.pipeline.splits_freely
        even = free and not looks_for_uneven(reached.context)
        raise too_late(reached.context, target.value, even=even)


def _answered(
    context: SearchContext, reached: Reached, whole: Budget, published: Reached | None
) -> tuple[Reached, Plan]:
    """The plan and what it is made of: layouts like published ones come first."""
    plan = _plan(context, reached, whole)
    instead = published_instead(context, reached, plan, published)
    if instead is None:
        return reached, plan
    other, not_taken = instead
    own = _plan(context, other, whole)
    if again := published_instead(context, other, own, None):
        other, own = again[0], _plan(context, again[0], whole)
    return other, with_price_of_published(own, other, plan, not_taken)


def _plan(context: SearchContext, reached: Reached, whole: Budget) -> Plan:
    """The answer with its alternatives and its proof, its budget what is left of the whole."""
    reached = replace(reached, context=replace(reached.context, budget=whole))
    own, found, options = reached.context, reached.found, context.options
    target = reached.target
    assert target is not None
    finalists = with_simpler(reached)
    candidates = candidates_of(own, options, finalists)
    best, room_searched = candidates[0], False
    if options.takes_simplest and not best.is_roomy:
        known = (one.estimate.step_time_s for one in candidates if one.is_roomy)
        free = roomy(reached, min(known, default=np.inf))
        room_searched = free is not None and free.complete
        if free is not None and free.finalists is not None:
            finalists = LayoutTable.concat([finalists, free.finalists])
            candidates = candidates_of(own, options, finalists)
            best = candidates[0]
    fastest = next(one for one in candidates if one.layout == finalists.row(0))
    step = fastest.estimate.step_time_s
    value = step if target.name == "time" else target.value
    bound = settled(value, target.lower_bound)
    proved = bound >= value
    own_target = {"value": value, "lower_bound": bound, "rank": fastest.rank}
    if options.takes_simplest:
        own_target["slack_fraction"] = options.slack_fraction
    if fastest is not best:
        share = best.estimate.step_time_s / step if target.name in ("time", "cost") else 1.0
        own_target["of_answer"] = value * share
    target = target.model_copy(update=own_target)
    return Plan(
        job=own.job,
        runtime_version=own.traits.version,
        memory_margin=options.margin(own.job),
        choices=options.held,
        best=best,
        candidates=candidates,
        certificate=Certificate(
            optimal=proved,
            time_limit_struck=not proved and context.budget.seconds_left() <= 0,
            alternatives_complete=found.complete,
            room_searched=room_searched,
            lower_bound_s=settled(step, reached.lower_bound_s),
            gap_fraction=target.gap_fraction,
            relaxed_bound_s=min(found.relaxed_bound_s, reached.lower_bound_s),
            space=_space(context, reached, best.layout),
            space_size=found.space.size,
            bounded=found.bounded,
            priced=found.priced,
            evaluated=found.evaluated,
            objective=target,
            settings=reached.settings,
            uneven_stages=reached.uneven,
        ),
        refused=dict(sorted(found.refused.items(), key=lambda item: -item[1])),
        sources=tuple(
            Source.model_validate(one, from_attributes=True) for one in own.machine.provenance
        ),
    )


def _space(
    context: SearchContext, reached: Reached, best: Layout
) -> dict[str, list[int | float | str]]:
    """Values of every axis, and of every setting that was varied."""
    options = context.options
    timed = options.objective in ("time", "cost", "gpus")
    groups = timed and is_heterogeneous(reached.job.cluster)
    uneven = best.stages or reached.uneven or groups
    stages = ("even", "uneven") if uneven else ("even",)
    varied = options.combinations(context) if reached.settings else ()
    return {
        **reached.found.space.axis_values(),
        "stages": [*(stages[1:] if wants_uneven(options) else stages)],
        **{name: [*values] for name, values in values_of(varied).items()},
    }


def _infeasible(reached: Reached) -> Infeasible:
    """What kept every layout from fitting, and what would help.

    Raises:
        SpecError: The budget was spent before anything was found.
    """
    context, found = reached.context, reached.found
    job, options = context.job, context.options
    if found.finalists is None and not found.complete:
        raise SpecError("the time limit struck before any layout was found: raise --time-limit")
    changes: Relaxations = ()
    if not options.only_answer:
        changes = relaxations(Case(job, options, context.measured), context.budget)
    used, least_memory = found.least_memory or (None, None)
    if host := host_change(context, found.least_host_bytes):
        changes = ((host,), *(one for one in changes if len(one) == 1))
    smallest = least_memory.row(0) if least_memory else None
    fits: bool | None = False
    if smallest and job.rows_shift:
        margin = options.margin(job)
        fits = estimate(job, smallest, context.measured, memory_margin=margin).memory.fits
    return Infeasible(
        job=job,
        least_memory_fits=fits,
        refused=dict(sorted(found.refused.items(), key=lambda item: -item[1])),
        space_size=found.space.size,
        least_memory_bytes=used,
        least_memory_layout=smallest,
        capacity_bytes=context.usable_bytes,
        least_host_bytes=found.least_host_bytes,
        changes=tuple(one[0] for one in changes if len(one) == 1),
        relaxations=changes,
        untried=values_outside_grid(found.space, options.choices),
    )


def _without_files(on: Context, layout: Layout, trainer: str | None) -> tuple[str, ...]:
    """A plan that cannot be exported has a note; `notes` name a model that cannot."""
    job = on.job
    if job.runtime in EXPORTERS:
        try:
            (TRAINERS[trainer] if trainer else EXPORTERS[job.runtime])(job, layout)
        except UnsupportedError as error:
            return () if on.traits.refuses(job.model) else (f"{NO_FILES} this layout: {error}",)
        return ()
    return (no_files(job.runtime),)


def no_files(name: str) -> str:
    """Why a runtime without an exporter has no launch files."""
    method = runtime(name).method
    what = f", priced as a method that no runtime has ({method})" if method else ""
    return f"{NO_FILES} {name}{what}: `plan export` knows {', '.join(EXPORTERS)}"


def no_cpu(name: str) -> str:
    """That a runtime does not train without GPUs, and which ones do."""
    there = [one.name for one in RUNTIMES.values() if one.trains_on_cpu]
    return f"{name} trains on no CPU, as {' and '.join(there)} do"


def notes(job: Job, measured: Measured = NOTHING) -> tuple[str, ...]:
    """What a reader of any figure for this job should know: assumed constants, stretched limits.

    Raises:
        PlanError: The job names something unknown or lacks a number it needs.
    """
    return notes_on(context_for(job, measured), measured)


def layout_notes(
    job: Job, layout: Layout, priced: Estimate, measured: Measured = NOTHING
) -> tuple[str, ...]:
    """What a reader of the price of a layout should know, and of any figure for its job.

    Raises:
        PlanError: As `notes`.
    """
    on = context_for(job, measured)
    return (
        *imbalance_notes(job, layout),
        *offload_notes(layout, priced, measured.profile),
        *width_notes(on, layout, priced),
        *expert_notes(on, layout),
        *module_notes(on, layout),
        *bucket_notes(on, layout),
        *notes_on(on, measured),
    )


SCANS: Final = frozenset(("linear_attention", "mamba", "attention_and_mamba"))
"""Mixers with a kernel of their own. Source: transformers 5.24, integrations/hub_kernels.py."""


def notes_on(on: Context, measured: Measured) -> tuple[str, ...]:
    """As `notes`, of a job that is resolved."""
    job, machine = on.job, on.machine
    found = list(measured_notes(job, measured))
    found += [f"{p.quantity}: {p.source}" for p in machine.provenance if p.kind == "assumed"]
    tower = job.model.tower
    if tower and tower.patches_assumed:
        found.append(
            f"assumed: a sample has {tower.patches_per_sample:,} patches, "
            f"{tower.tokens_per_sample:,} tokens, as the model takes any size: "
            "`--tower samples=N,patches=N` states yours"
        )
    found += [f"{job.model.model_type}: {note}" for note in notes_of(job.model.model_type)]
    if without := job.model.left_out:
        found.append(
            f"without its {without}: neither its memory nor its time is priced, so that it is not "
            "known whether all of it fits"
        )
    if on.traits.kernels.elementwise == "eager" and set(job.model.mixers) & SCANS:
        found.append(
            "layers with a state are priced with the fused kernels of mamba-ssm or "
            "flash-linear-attention; transformers without them takes several times as long"
        )
    if is_heterogeneous(job.cluster):
        found.append(
            "mixed node groups: stages that name their group (stages=13@0+9@1) are priced at its "
            "speed and memory, all others at those of the slowest group"
        )
    if reason := on.traits.refuses(job.model):
        found.append(f"{job.runtime} cannot express {reason}: `plan export` will refuse")
    if reason := not_placed(job.cluster, machine):
        found.append(reason)
    if job.model.read_by_fields:
        found.append(
            f"model_type {job.model.model_type!r} is of no known family: read by its fields, as "
            "a Llama where they are absent; check the parameters (`plan catalog models`)"
        )
    longest, sequence = job.model.max_position_embeddings, job.training.seq_length
    if sequence > longest:
        found.append(f"seq_length {sequence} is longer than the {longest} of {job.model.name}")
    found += [*batch_notes(job), *domain_notes(on), *model_notes(job.model), *setting_notes(on)]
    return (*found, *launch_bound_note(on))
