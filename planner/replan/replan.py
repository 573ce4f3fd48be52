"""The next best plan on what is left of a cluster, under what a checkpoint of the plan allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.planner.cases import Case, with_batch, with_setting
from trainplan.planner.operations import CheckpointMove, checkpoint_move, loadable
from trainplan.planner.plan import Candidate, Plan
from trainplan.planner.questions import estimate, search
from trainplan.planner.replan.kept import batches_near, held_choices, kept_plan
from trainplan.planner.space import Choice
from trainplan.planner.work import ALONE, Budget, Workers

Saved = Literal["as-launched", "reshardable", "weights"]
"""How the checkpoint was saved: as the launch of the plan saves, so that its runtime reshards it,
or its weights alone are loaded, and moments start anew."""
EXPANDED_FOR_UNEVEN = 8
"""Layouts opened for uneven stages where no even ones fit: they take ten times as long to search.
"""
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
    """Of the whole job."""
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


def replan(
    case: Case,
    layout: Layout,
    left: ClusterSpec,
    budget: Budget,
    workers: Workers = ALONE,
    *,
    saved: Saved = "as-launched",
    batch: int | None = None,
) -> Replan:
    """The next best plans on a cluster, of a plan with the job of `case` and its layout.

    Best is the fastest that loads a checkpoint as it is; where none does, of those that load it
    after a command. With weights alone, or where no way to save was looked up, it is the fastest.
    The global batch stays, unless another is stated.

    Raises:
        PlanError: The layout is not legal for the job, or the job is none for the cluster.
    """
    question = _Question(case, layout, left, budget, workers, saved, batch)
    fields = loadable(case.job, layout)
    if saved == "weights" or fields is None:
        return question.answer(question.fastest(EVERY), None, None)
    stages = fields.zero_stages
    if saved == "reshardable":
        fields = replace(fields, as_it_is=fields.after, under_the_first=False, bucket_mb=None)
    first = _loading(question.fastest(fields.as_it_is, stages), "as it is")
    if first is None and fields.bucket_mb:
        question = replace(question, bucket_mb=fields.bucket_mb)
        first = _loading(question.fastest(fields.as_it_is, stages), "as it is")
        question = replace(question, bucket_mb=None)
    second = None
    if fields.after != fields.as_it_is and (first or not fields.under_the_first):
        second = _loading(question.fastest(fields.after, stages), "after")
        if second and fields.under_the_first:
            second = replace(second, restarts=2)
    best = first or second
    own = fields.as_it_is if first else fields.after
    other = question.with_another_batch(own, best) if best and batch is None else None
    anew = None if second else question.fastest(EVERY)  # which is hardly faster than the second
    return replace(question.answer(best, second, anew), batch=other)


def _loading(found: Resumed | None, least: Literal["as it is", "after"]) -> Resumed | None:
    """What loads whole, as it is or after a command."""
    loads = ("as it is",) if least == "as it is" else ("as it is", "after")
    return found if found and found.checkpoint.loads in loads else None


@dataclass(frozen=True, slots=True)
class _Question:
    case: Case
    layout: Layout
    left: ClusterSpec
    budget: Budget
    workers: Workers
    saved: Saved
    batch: int | None
    bucket_mb: float | None = None
    """Size that gradient buckets are to have; null: as the job says."""

    @property
    def changed(self) -> Case:
        """With the stated batch and buckets, on the cluster of the plan before."""
        case = self.case if self.batch is None else with_batch(self.case, self.batch)
        return with_setting(case, "bucket_mb", self.bucket_mb) if self.bucket_mb else case

    def fastest(
        self, free: frozenset[str], zero_stages: Sequence[int] = range(4)
    ) -> Resumed | None:
        """The fastest layout on any part of what is left that differs in these fields alone.

        Its stages are even, those of the plan, or uneven where no even ones fit. Layouts that keep
        the plan's degrees fill parts that a search of a large cluster leaves out.
        """
        kept = kept_plan(self.changed, self.layout, self.left, free)
        found, proved = None, True
        if self.layout.stages is None or "stages" in free:
            found, proved = self._searched(held_choices(self.layout, free, zero_stages))
        plans = [one for one in (kept, found) if one]
        if not plans:
            return None
        best = min(plans, key=lambda one: one.best.estimate.step_time_s)
        return self._resumed(best, proved=proved)

    def _searched(self, held: Sequence[Choice]) -> tuple[Plan | None, bool]:
        """The best plan, and whether it is proved, or that there is none."""
        own = self.case.options
        fixed = {choice.field for choice in own.fix}
        options = own.model_copy(
            update={
                "fix": (*own.fix, *(x for x in held if not x.excluded and x.field not in fixed)),
                "exclude": (*own.exclude, *(one for one in held if one.excluded)),
                "objective": "time",
                "only_answer": True,
                "near": self.layout,
            }
        )
        split = options.model_copy(update={"tries_uneven": EXPANDED_FOR_UNEVEN})
        job = self.changed.job.model_copy(update={"cluster": self.left})
        for tried in (options, split):
            try:
                found = search(job, tried, self.budget, self.case.measured, self.workers)
            except PlanError:  # none is found in time, or what is held is not one of the job
                return None, False
            if isinstance(found, Plan):
                plan = found.model_copy(update={"choices": own.held})
                return plan, tried is options and found.certificate.optimal
        return None, True

    def with_another_batch(self, free: frozenset[str], best: Resumed) -> Resumed | None:
        """The plan's degrees with the nearest batches that fill more of what is left."""
        found, free = best, free & DEGREES
        for batch in batches_near(self.case.job, self.layout, self.left):
            plan = kept_plan(with_batch(self.case, batch), self.layout, self.left, free)
            one = self._resumed(plan, proved=True) if plan else None
            if one and one.tokens_per_s > found.tokens_per_s * (1 + GAIN):
                found = one
        return None if found is best else found

    def _resumed(self, plan: Plan, *, proved: bool) -> Resumed:
        first, second = (self.case.job, self.layout), (plan.job, plan.best.layout)
        move, back = checkpoint_move(*first, *second), checkpoint_move(*second, *first)
        if self.saved == "reshardable" and move.loads == "after":
            move = replace(move, loads="as it is", why="saved so that it reshards", commands=())
        if self.bucket_mb and move.loads == "as it is":
            move = replace(move, why=f"bucket_mb={self.bucket_mb:g} keeps gradient buckets alike")
        before, after = (one.training.global_batch_size for one in (self.case.job, plan.job))
        changes = [f"{CHANGES}: {move.sentence.rstrip('.')}"] * (move.loads == "weights alone")
        if before != after:
            changes.append(f"{CHANGES}: {after:,} sequences a step in place of {before:,}")
        cluster = plan.job.cluster
        if cluster.links and len(cluster.links.nodes) != cluster.num_nodes:
            cluster = cluster.model_copy(update={"links": None})  # those of some nodes are unknown
        elif cluster.links:
            changes.append("nodes are in the order of the cluster: `plan search` places them")
        job = plan.job.model_copy(update={"cluster": cluster})
        plan = plan.model_copy(update={"job": job, "notes": (*changes, *plan.notes)})
        speed, rate = (_speed(*one) for one in ((job, plan.best), (first[0], self._before)))
        return Resumed(plan, move, back, speed, speed / rate, 1, proved)

    @property
    def _before(self) -> Candidate:
        case = self.case
        priced = estimate(case.job, self.layout, case.measured, memory_margin=case.margin)
        return Candidate(rank=1, layout=self.layout, estimate=priced)

    def answer(self, best: Resumed | None, after: Resumed | None, anew: Resumed | None) -> Replan:
        """With those others that are faster."""
        others = iter(_faster(best, (after, anew)))
        return Replan(
            self.case.job,
            self._before,
            self.left,
            _speed(self.case.job, self._before),
            best,
            next(others),
            next(others),
            None,
            self.saved,
        )


def _speed(job: Job, candidate: Candidate) -> float:
    """Tokens per second of the whole job."""
    tokens = job.islands * real_tokens_per_step(job.training)
    return tokens / candidate.estimate.step_time_s


def _faster(best: Resumed | None, others: tuple[Resumed | None, ...]) -> Iterator[Resumed | None]:
    """Each that is faster than all before it; null in place of one that is not."""
    most = best.tokens_per_s * (1 + GAIN) if best else 0.0
    for one in others:
        yield one if one and one.tokens_per_s > most else None
        most = max(most, one.tokens_per_s * (1 + GAIN) if one else 0.0)
