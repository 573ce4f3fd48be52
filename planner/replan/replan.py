"""The next best plan on what is left of a cluster, under what a checkpoint of the plan allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, get_args

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.run_costs import refuse_endless
from trainplan.planner.cases import Case, with_batch, with_setting
from trainplan.planner.operations import CheckpointMove, Loadable, Loads, checkpoint_move, loadable
from trainplan.planner.plan import Candidate, OuterStep, Plan, Spent, Tried
from trainplan.planner.questions import estimate, search
from trainplan.planner.replan.islands import on_islands, parts_left
from trainplan.planner.replan.kept import batches_near, elapsed_s, held_choices, kept_plan, parts_of
from trainplan.planner.space import Choice
from trainplan.planner.work import ALONE, Budget, Workers

Saved = Literal["as-launched", "reshardable", "weights"]
"""How the checkpoint was saved: as the launch of the plan saves, so that its runtime reshards it,
or its weights alone are loaded, and moments start anew."""
EXPANDED_FOR_UNEVEN = 8
"""Layouts opened for uneven stages where no even ones fit: they take ten times as long to search.
"""
Taken = Literal["best", "after", "anew", "batch", "fewer", "alone"]
"""Which plan of a `Replan`."""
CHANGES = "changes the training"
EVERY = frozenset(Layout.model_fields)
DEGREES = frozenset(("dp", "cp", "dp_replicate", "micro_batch_size"))
"""What layouts with another batch are tried with."""
GAIN = 0.01
"""A plan that costs more than a restart, or another batch, is shown where it is faster by more.

Source: assumed; the slack of a search."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A plan on what is left, and how the training gets there and back."""

    plan: Plan
    checkpoint: CheckpointMove
    """What a checkpoint of the plan before needs before this one can load it."""
    back: CheckpointMove
    """The same of this one's in the plan before."""
    tokens_per_s: float
    """Of the whole job; where failures are stated, with what they take."""
    rate: float
    """Tokens per second over those of the plan before."""
    restarts: int
    """Starts of the training until it runs: two where a checkpoint is saved once more first."""
    proved: bool
    """Of layouts with even stages, or with those of the plan before, none that loads so is faster
    (of the plan with another batch: none with the same degrees)."""

    @property
    def changes(self) -> tuple[str, ...]:
        """What of it changes the training, a sentence each."""
        return tuple(note for note in self.plan.notes if note.startswith(CHANGES))


@dataclass(frozen=True, slots=True)
class Replan:
    """What to go on with on another cluster than that of a plan."""

    job: Job
    """Of the plan before."""
    before: Candidate
    left: ClusterSpec
    tokens_per_s: float
    """Of the plan before."""
    best: Resumed | None
    """The plan to go on with; null: none loads the checkpoint, is legal and fits."""
    after: Resumed | None
    """A faster one that loads the checkpoint after a command; null: none is."""
    anew: Resumed | None
    """A faster one that does not load it whole, or of which that is not known; null: none is."""
    batch: Resumed | None
    """A faster one in tokens with another global batch, which changes the training."""
    saved: Saved
    idle_nodes: int = 0
    """That the plan before leaves idle: of `left`, or lost."""
    fewer: Resumed | None = None
    """Of islands, the fastest with some of them idle; null: none is."""
    alone: Resumed | None = None
    """Of islands, one alone without outer steps; null: none is, or it is `best`."""
    undivided: tuple[int, ...] = ()
    """Numbers of islands among which the global batch does not divide."""

    @property
    def fastest(self) -> Taken:
        """Of plans that start at once; of equals the first."""
        names: tuple[Taken, ...] = ("best", "fewer", "alone")
        return max(names, key=lambda name: one.rate if (one := self.plans[name]) else 0.0)

    @property
    def plans(self) -> dict[Taken, Resumed | None]:
        """All of them by name."""
        return {name: getattr(self, name) for name in get_args(Taken)}


def replan(
    case: Case,
    layout: Layout,
    left: ClusterSpec,
    budget: Budget,
    workers: Workers = ALONE,
    *,
    saved: Saved = "as-launched",
    batch: int | None = None,
    idle_nodes: int = 0,
) -> Replan:
    """The next best plans on a cluster, of a plan with the job of `case` and its layout.

    Best is the fastest that loads a checkpoint as it is; where none does, of those that load it
    after a command. With weights alone, or where no way to save was looked up, it is the fastest.
    The global batch stays, unless another is stated. What is left has `idle_nodes` that the plan
    does not use, or they are lost.

    Of islands, of which `left` has one in each group, it is the fastest with all of them, as large
    as the smallest; `fewer` and one `alone` leave some idle. Batches are those of all islands.

    Raises:
        PlanError: The layout is not legal for the job, the job is none for the cluster, or nodes of
            the plan fail so often that its run does not end.
    """
    refuse_endless(case.job)
    priced = estimate(case.job, layout, case.measured, memory_margin=case.margin)
    before = Candidate(rank=1, layout=layout, estimate=priced)
    question, *others = (
        _Question(case, before, island, budget, workers, saved, batch, count)
        for count, island in parts_left(case.job, left)
    )
    fields = None if saved == "weights" else loadable(case.job, layout)
    best = second = anew = other = None
    if fields is None:
        best = question.fastest(EVERY)
    else:
        if saved == "reshardable":
            fields = replace(fields, as_it_is=fields.after, under_the_first=False, bucket_mb=None)
        own, stages = fields.as_it_is, fields.zero_stages
        best = _loading(question.fastest(own, stages), "as it is")
        if best is None and fields.bucket_mb:
            sized = replace(question, bucket_mb=fields.bucket_mb)
            best = _loading(sized.fastest(own, stages), "as it is")
        if own != fields.after and (best or not fields.under_the_first):
            second = _loading(question.fastest(fields.after, stages), "as it is", "after")
        if second and fields.under_the_first:
            second = replace(second, restarts=2)
        if second and not best:
            best, own = second, fields.after
        if batch is None and (best or others):
            other = question.with_another_batch(own, best)
        if not second:  # than which it is hardly faster
            anew = question.fastest(EVERY)
    after, anew = _if_faster(second, best), _if_faster(anew, best, second)
    found = Replan(
        case.job,
        before,
        left,
        _speed(case.job, before),
        best,
        after,
        anew,
        other,
        saved,
        idle_nodes,
    )
    return _with_fewer(found, (question, *others), fields) if others else found


def _with_fewer(found: Replan, questions: Sequence[_Question], fields: Loadable | None) -> Replan:
    """With plans that leave islands idle, and batches that divide among fewer of them."""
    free, stages = EVERY, tuple(range(4))
    if fields:
        free = fields.as_it_is if fields.under_the_first else fields.after
        stages = fields.zero_stages
    fewer, batches, alone = list[Resumed](), [found.batch], None
    for one in questions[1:]:
        plan = one.fastest(free, stages)
        if fields:
            plan = _loading(plan, "as it is", "after")
        if one.islands == 1:
            alone = plan
            continue
        if plan:
            fewer.append(plan)
        if fields and one.batch is None:
            batches.append(one.with_another_batch(free, plan))
    most = max(fewer, key=_tokens_per_s, default=None)
    other = max(filter(None, batches), key=_tokens_per_s, default=None)
    return replace(
        found,
        fewer=most,
        alone=alone,
        batch=_if_faster(other, found.best, most),
        undivided=tuple(one.islands for one in questions if one.changed is None),
    )


def _tokens_per_s(one: Resumed) -> float:
    return one.tokens_per_s


def _loading(found: Resumed | None, *loads: Loads) -> Resumed | None:
    """What loads in one of these ways."""
    return found if found and found.checkpoint.loads in loads else None


def _if_faster(one: Resumed | None, *others: Resumed | None) -> Resumed | None:
    """One that is faster than others."""
    most = max((other.tokens_per_s * (1 + GAIN) for other in others if other), default=0.0)
    return one if one and one.tokens_per_s > most else None


@dataclass(frozen=True, slots=True)
class _Question:
    case: Case
    before: Candidate
    left: ClusterSpec
    budget: Budget
    workers: Workers
    saved: Saved
    batch: int | None
    islands: int
    """Each on `left`; 1: without outer steps."""
    bucket_mb: float | None = None
    """Size that gradient buckets are to have; null: as the job states."""

    @property
    def changed(self) -> Case | None:
        """With the stated batch, islands and buckets, on the cluster of the plan before.

        Null: the batch does not divide among the islands.
        """
        case = on_islands(self.case, self.islands, self.batch)
        return with_setting(case, "bucket_mb", self.bucket_mb) if case and self.bucket_mb else case

    def fastest(
        self, free: frozenset[str], zero_stages: Sequence[int] = range(4)
    ) -> Resumed | None:
        """The fastest layout on any part of what is left that differs in these fields alone.

        Its stages are even, those of the plan, or uneven where no even ones fit. Layouts that keep
        the plan's degrees fill parts that a search of a large cluster leaves out.
        """
        layout, case = self.before.layout, self.changed
        if case is None:
            return None
        parts = parts_of(case.job.cluster, layout, self.left)
        kept = kept_plan(case, layout, parts, free)
        found, proved = None, True
        if layout.stages is None or "stages" in free:
            found, proved = self._searched(case.job, held_choices(layout, free, zero_stages))
        plans = [one for one in (kept, found) if one]
        if not plans:
            return None
        best = min(plans, key=lambda one: elapsed_s(one.job, one.best))
        return self._resumed(best, proved=proved)

    def _searched(self, job: Job, held: Sequence[Choice]) -> tuple[Plan | None, bool]:
        """The best plan, and whether it is proved, or that there is none."""
        own = self.case.options
        fixed = {choice.field for choice in own.fix}
        options = own.model_copy(
            update={
                "fix": (*own.fix, *(x for x in held if not x.excluded and x.field not in fixed)),
                "exclude": (*own.exclude, *(one for one in held if one.excluded)),
                "objective": "time",
                "only_answer": True,
                "near": self.before.layout,
            }
        )
        split = options.model_copy(update={"tries_uneven": EXPANDED_FOR_UNEVEN})
        job = job.model_copy(update={"cluster": self.left})
        for tried in (options, split):
            try:
                found = search(job, tried, self.budget, self.case.measured, self.workers)
            except PlanError:  # none is found in time, or what is held is not one of the job
                return None, False
            if isinstance(found, Plan):
                plan = found.model_copy(update={"choices": own.held})
                return plan, tried is options and found.certificate.optimal
        return None, True

    def with_another_batch(self, free: frozenset[str], best: Resumed | None) -> Resumed | None:
        """The plan's degrees with the nearest batches that fill more of what is left.

        Of another number of islands that of each as it was, too.
        """
        found, free, layout, job = best, free & DEGREES, self.before.layout, self.case.job
        own = job.training.global_batch_size
        each = on_islands(self.case, self.islands, self.islands * own)
        assert each is not None, "a multiple divides"
        near = batches_near(job, layout, self.left)
        if self.islands != job.islands:
            parts = islice(parts_of(job.cluster, layout, self.left), 1)
            near = [*((own, part) for part in parts), *near]
        for batch, part in near:
            case = with_batch(each, batch)
            below = _tokens(case.job) / found.tokens_per_s / (1 + GAIN) if found else math.inf
            if plan := kept_plan(case, layout, [part], free, below):
                found = self._resumed(plan, proved=True)
        return None if found is best else found

    def _resumed(self, plan: Plan, *, proved: bool) -> Resumed:
        first, second = (self.case.job, self.before.layout), (plan.job, plan.best.layout)
        move, back = checkpoint_move(*first, *second), checkpoint_move(*second, *first)
        if self.saved == "reshardable" and move.loads == "after":
            move = replace(move, loads="as it is", why="saved so that it reshards", commands=())
        if self.bucket_mb and move.loads == "as it is":
            move = replace(move, why=f"bucket_mb={self.bucket_mb:g} keeps gradient buckets equal")
        jobs = (self.case.job, plan.job)
        before, after = (one.islands * one.training.global_batch_size for one in jobs)
        changes = [f"{CHANGES}: {move.sentence.rstrip('.')}"] * (move.loads == "weights alone")
        if self.islands != self.case.job.islands:
            now = f"{self.islands} islands" if self.islands > 1 else "one island alone"
            changes.append(f"{CHANGES}: {now} in place of {self.case.job.islands} islands")
        if before != after:
            changes.append(f"{CHANGES}: {after:,} sequences a step in place of {before:,}")
        cluster = plan.job.cluster
        if cluster.links and len(cluster.links.nodes) != cluster.num_nodes:
            cluster = cluster.model_copy(update={"links": None})  # those of some nodes are unknown
        elif cluster.links:
            changes.append("nodes are in the order of the cluster: `plan search` places them")
        job = plan.job.model_copy(update={"cluster": cluster})
        on, step_s = context_for(job, self.case.measured), plan.best.estimate.step_time_s
        spent = Spent.of(on, plan.best.layout, step_s)
        joined = OuterStep.of(job, on.machine, plan.best.estimate)
        own: dict[str, object] = {"job": job, "notes": (*changes, *plan.notes), "spent": spent}
        own["outer_step"] = joined
        certificate = plan.certificate
        if not certificate.objective.tried:  # the nodes that it leaves idle are known by it
            bound = step_s if proved else 0.0
            tried = Tried.of(cluster, step_s, bound), Tried.of(self.left, math.inf, bound)
            target = certificate.objective.model_copy(update={"tried": tried})
            own["certificate"] = certificate.model_copy(update={"objective": target})
        plan = plan.model_copy(update=own)
        speed, rate = _speed(job, plan.best), _speed(self.case.job, self.before)
        return Resumed(plan, move, back, speed, speed / rate, 1, proved)


def _speed(job: Job, candidate: Candidate) -> float:
    """Tokens per second of the whole job."""
    return _tokens(job) / elapsed_s(job, candidate)


def _tokens(job: Job) -> float:
    """Of a step of the whole job."""
    return job.islands * real_tokens_per_step(job.training)
