"""What a little more of everything, or a setting, would buy: each a search of the changed job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from trainplan.costmodel.base import SECONDS_PER_DAY
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.run_costs import run_steps, stretch_of
from trainplan.planner.cases import Case
from trainplan.planner.evidence import unpublished
from trainplan.planner.explanations.changes import BEST_SETTINGS, Change, applied, changes
from trainplan.planner.plan import Candidate, changes_training
from trainplan.planner.questions import Outcome, Status, kept_layout, outcomes
from trainplan.planner.work import ALONE, Budget, Unlimited, Workers

NOTICED_GAIN = 0.001
"""A change that buys less than 0.1 % does not bind."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change gives."""

    layout: Layout
    step_time_s: float
    throughput_gain_fraction: float
    """In tokens per second of the whole job, failures and saves included where they are stated."""
    per_gpu_gain_fraction: float  # falls where GPUs are added faster than speed
    saved_days: float | None
    """Of the run; null: `--tokens` is not given."""


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """What a change of the job would buy."""

    change: str
    """`save_sync`, `save_async`, `save_local`, `checkpoint`, `restart`, `mtbf`, `spare_node` (where
    failures are stated), `memory`, `memory_tenth`, `nic`, `node`, `node_and_batch`, `gpus_double`,
    `batch_double`, `batch_half`, of islands `island_links`, `outer_dtype`, `outer_overlap` and
    `outer_every`, `domain`, `routing` (balanced experts), `margin`, `reserve`, a setting of the
    runtime (one that is set, dropped; or one that is searched, such as `cuda_graph`, turned on), an
    axis that states who holds what (such as `hpz`, left out), `attention_by_sequence` (of experts'
    ranks, where attention is cut by tensor parallelism), `ep` and `etp` (another degree of experts,
    or one that is not held), `bucket_mb`, `diloco` or `even` (where
    stages hold unequal layers)."""
    text: str
    """In words."""
    status: Status
    """`proved`, `even` (proved with even stages; some uneven ones were tried), `found` (no proof
    was reached: there may be a faster one), `memory` (nothing fits), `rules` (no layout is legal),
    `impossible` (no such job) or `untried`."""
    reason: str
    """Why it is impossible; else empty."""
    kept: Effect | None
    """The plan's layout in the changed job: `layout`, `step_time_s`, `throughput_gain_fraction`
    (tokens per second of the whole job over those of the plan, minus 1),
    `per_gpu_gain_fraction` and `saved_days` (of the run; null: `--tokens` is not given). Null: it
    does not run or fit."""
    replanned: Effect | None
    """As `kept`, of the best layout found; null: none."""
    changes_training: tuple[str, ...] = ()
    """What it trains otherwise than the plan; empty: nothing."""
    beyond: tuple[str, ...] = ()
    """Limits of all published runs that the best layout (where none was found, the plan's) breaks
    with it, and the plan does not: then the model extrapolates."""

    @property
    def gain(self) -> float:
        """What it buys with the layout searched anew; nothing where that is not known."""
        return self.replanned.throughput_gain_fraction if self.replanned else -inf


OTHER_JOBS = frozenset(
    ("node", "node_and_batch", "gpus_double", "batch_double", "batch_half", "settings")
)
"""Changes that are another job, or several at once: they are in no ranking."""
WITHOUT = "without "
"""Begins the text of a change that leaves out what the plan has."""


@dataclass(frozen=True, slots=True)
class Bought:
    """What one change buys by itself."""

    change: str
    text: str
    gain_fraction: float
    """In tokens per second of the whole job."""
    saved_days: float | None
    """Of the run; null: `--tokens` is not given."""
    of_days: float | None
    """That the run takes; null likewise."""
    changes_training: tuple[str, ...]
    in_plan: bool
    """The plan has it: it is what it would lose without."""
    beyond: tuple[str, ...] = ()
    """As of the price."""


def ranking(
    prices: Iterable[ShadowPrice], job: Job, step_time_s: float, fastest_s: float
) -> tuple[Bought, ...]:
    """Changes by what they buy, the most first; none that buys less than `NOTICED_GAIN`.

    `fastest_s` is the shortest step known without any change: what a search finds beyond the plan
    counts from there, so that the slack of a plan is not put down to a change.
    """
    base, days = step_time_s / fastest_s, _Speed.of(job, step_time_s).days
    found = []
    for one in (price for price in prices if price.change not in OTHER_JOBS):
        same = one.kept.throughput_gain_fraction if one.kept else -1.0
        gain = max(same, (1 + one.gain) / base - 1)
        has_it = one.replanned is not None and one.text.startswith(WITHOUT) and gain < 0
        if has_it:
            gain = 1 / (1 + gain) - 1
        if gain > NOTICED_GAIN:
            longer = 1 + gain if has_it else 1.0
            saved = None if days is None else days * longer * (1 - 1 / (1 + gain))
            text = one.text.removeprefix(WITHOUT) if has_it else one.text
            whole = None if days is None else days * longer
            changed, beyond = one.changes_training, () if has_it else one.beyond
            found.append(Bought(one.change, text, gain, saved, whole, changed, has_it, beyond))
    return tuple(sorted(found, key=lambda one: -one.gain_fraction))


@dataclass(frozen=True, slots=True)
class _Speed:
    """Tokens per second of a job, and of each of its GPUs, and the days of its run."""

    whole: float
    per_gpu: float
    days: float | None

    @classmethod
    def of(cls, job: Job, step_time_s: float) -> _Speed:
        """Of the cluster and of one GPU.

        Source: tokens of a step over the seconds that pass for it are those of the cluster in a
        second; over its GPUs, those of spare nodes too, those of one.
        """
        cluster, failures, steps = job.cluster, job.cluster.failures, run_steps(job)
        seconds = step_time_s * stretch_of(job)
        whole = job.islands * real_tokens_per_step(job.training) / seconds
        spare = failures.spare_nodes / cluster.num_nodes if failures else 0.0
        days = None if steps is None else steps * seconds / SECONDS_PER_DAY
        return cls(whole, whole / (job.islands * cluster.num_gpus * (1 + spare)), days)


def shadow_prices(
    case: Case, layout: Layout, step_time_s: float, budget: Budget, workers: Workers = ALONE
) -> tuple[ShadowPrice, ...]:
    """Price every change, what buys most first; those that no budget reached are untried, and last.

    `layout` is the plan's and `step_time_s` its estimate.
    """
    own, case = _Speed.of(case.job, step_time_s), case.near(layout)
    tried = [(change, applied(change, case)) for change in changes(case, layout)]
    searched = [c for change, c in tried if isinstance(c, Case) and not change.same_step]
    found = outcomes(searched, budget, workers)
    known, prices = {one.text for one in unpublished(case.context, layout)}, []
    for change, changed in tried:
        if not isinstance(changed, Case):
            none = ShadowPrice(change.name, change.text, "impossible", str(changed), None, None)
            prices.append(none)
            continue
        kept = kept_layout(changed, layout)
        best = Outcome("proved", "", kept) if change.same_step else next(found).at_least(kept)
        base = change.base and _Speed.of(case.job, change.base.estimate.step_time_s)
        price = _price(change, changed, base or own, kept, best)
        before = changes_training(case.job)
        after = tuple(one.says for one in changes_training(changed.job) if one not in before)
        shown = best.best or kept
        broken = unpublished(changed.context, shown.layout) if shown else ()
        beyond = tuple(one.text for one in broken if one.text not in known)
        prices.append(replace(price, changes_training=after, beyond=beyond))
    return tuple(sorted(prices, key=lambda one: -one.gain))


class _NoTime(Unlimited):
    """A budget in which nothing is searched."""

    def spent(self) -> bool:
        """At once."""
        return True

    def seconds_left(self) -> float:
        """None."""
        return 0.0


def kept_prices(case: Case, layout: Layout, step_time_s: float) -> tuple[ShadowPrice, ...]:
    """As `shadow_prices` with the plan's layout alone: nothing is searched, all are untried."""
    return shadow_prices(case, layout, step_time_s, _NoTime())


def _price(
    change: Change, changed: Case, own: _Speed, kept: Candidate | None, best: Outcome
) -> ShadowPrice:
    def effect(one: Candidate | None) -> Effect | None:
        if one is None:
            return None
        seconds = one.estimate.step_time_s
        speed = _Speed.of(changed.job, seconds)
        gains = speed.whole / own.whole - 1, speed.per_gpu / own.per_gpu - 1
        saved = None if own.days is None or speed.days is None else own.days - speed.days
        return Effect(one.layout, seconds, *gains, saved)

    text = change.text
    if text == BEST_SETTINGS:
        text = f"{text}: {' '.join(best.settings) or 'those of the plan'}"
    return ShadowPrice(change.name, text, best.status, best.reason, effect(kept), effect(best.best))
