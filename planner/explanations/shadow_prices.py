"""What a little more of everything, or a setting, would buy: each a search of the changed job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from trainplan.costmodel.base import GIB, PlanError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.lengths import real_tokens_per_step
from trainplan.costmodel.runtimes import Setting
from trainplan.planner.cases import (
    Case,
    with_added_memory,
    with_all_settings,
    with_batch,
    with_choice,
    with_domain,
    with_gpus,
    with_memory_by,
    with_nic,
    with_setting,
    without_margin,
    without_reserve,
)
from trainplan.planner.plan import Candidate
from trainplan.planner.questions import Outcome, Status, kept_layout, outcomes
from trainplan.planner.space import parse_choice
from trainplan.planner.work import ALONE, Budget, Workers

ADDED_GIB = 2.0
"""A step of memory small enough to price the limit, large enough to hold a layer's activations."""

BEST_SETTINGS = "the best of all settings together"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change gives."""

    layout: Layout
    step_time_s: float
    throughput_gain_fraction: float
    """In tokens per second of the whole job."""
    per_gpu_gain_fraction: float  # falls where GPUs are added faster than speed


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """What a change of the job would buy."""

    change: str
    """`memory`, `memory_tenth`, `nic`, `node`, `node_and_batch`, `gpus_double`, `batch_double`,
    `batch_half`, `domain`, `routing` (balanced experts), `margin`, `reserve`, a setting of the
    runtime (one that is set, dropped; or one that is searched, such as `cuda_graph`, turned on) or
    `even` (where stages hold unequal layers)."""
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
    (tokens per second of the whole job over those of the plan, minus 1) and
    `per_gpu_gain_fraction`. Null: it does not run or fit."""
    replanned: Effect | None
    """As `kept`, of the best layout found; null: none."""


@dataclass(frozen=True, slots=True)
class _Speed:
    """Tokens per second of a job, and of each of its GPUs."""

    whole: float
    per_gpu: float

    @classmethod
    def of(cls, job: Job, step_time_s: float) -> _Speed:
        """Of the cluster and of one GPU.

        Source: tokens of a step over its seconds are those of the cluster in a second; over its
        GPUs, those of one.
        """
        whole = real_tokens_per_step(job.training) / step_time_s
        return cls(whole, whole / job.cluster.num_gpus)


@dataclass(frozen=True, slots=True)
class _Change:
    name: str
    text: str
    apply: Callable[[Case], Case]


def shadow_prices(
    case: Case, layout: Layout, step_time_s: float, budget: Budget, workers: Workers = ALONE
) -> tuple[ShadowPrice, ...]:
    """Price every change, in turn; those the budget does not reach are said to be untried.

    `layout` is the plan's and `step_time_s` its estimate.
    """
    own, case = _Speed.of(case.job, step_time_s), case.near(layout)
    every = (*_changes(case), *_settings(case, layout), *_splits(layout))
    changes = [(change, _applied(change, case)) for change in every]
    cases = [changed for _, changed in changes if isinstance(changed, Case)]
    found = outcomes(cases, budget, workers)
    return tuple(
        _price(change, changed, layout, own, next(found))
        if isinstance(changed, Case)
        else ShadowPrice(change.name, change.text, "impossible", str(changed), None, None)
        for change, changed in changes
    )


def _applied(change: _Change, case: Case) -> Case | PlanError:
    """The changed question, or why there is none."""
    try:
        return change.apply(case)
    except PlanError as error:
        return error


def _changes(case: Case) -> Iterator[_Change]:
    """What a user could buy or choose, the likeliest first."""
    more = f"{ADDED_GIB:g} GiB more memory per GPU"
    yield _Change("memory", more, lambda question: with_added_memory(question, ADDED_GIB))
    yield _Change(
        "memory_tenth", "10 % more memory per GPU", lambda question: with_memory_by(question, 1.1)
    )
    yield _Change("nic", "NIC twice as fast", lambda question: with_nic(question, 2.0))
    yield from _sizes(case)
    yield from _batches(case)
    domain = "scale-up domains of twice as many GPUs"
    yield _Change("domain", domain, lambda question: with_domain(question, 2))
    if case.job.options.routing and case.job.options.routing.kind != "balanced":
        even = partial(with_setting, name="routing", value=None)
        yield _Change("routing", "balanced experts (routing=balanced)", even)
    if case.margin > 0:
        yield _Change("margin", "no memory margin", without_margin)
    if case.job.reserve_bytes:
        text = f"no reserve of {case.job.reserve_bytes / GIB:.4g} GiB"
        yield _Change("reserve", text, without_reserve)


def _settings(case: Case, layout: Layout) -> Iterator[_Change]:
    """Settings dropped, then those that are off and mean something for the plan, then the best."""
    job, plain = case.job, case.context.traits
    for name, text in job.options.arguments().items():
        drop = partial(with_setting, name=name, value=None)
        if drop(case).context.traits != plain:
            yield _Change(name, f"without {text}", drop)
    off = [one for one in plain.settings if getattr(job.options, one.name) is None]
    for one in off:
        turn_on = partial(with_setting, name=one.name, value=one.text.partition("=")[2])
        changed = turn_on(case)
        lacks = one.refused(changed.job) is not None
        if not lacks and changed.context.traits != plain and not _idle(one, changed.job, layout):
            yield _Change(one.name, one.text, turn_on)
    if off:
        yield _Change("settings", BEST_SETTINGS, with_all_settings)


def _idle(setting: Setting, job: Job, layout: Layout) -> bool:
    """Does a setting mean nothing for a layout?"""
    table = LayoutTable.of([layout])
    alone = {
        "moe_dispatcher": layout.ep * layout.etp == 1,
        "overlap_moe_a2a": layout.ep == 1,
        "overlap_shared_experts": layout.ep == 1,
        "overlap_tp_comm": layout.tp == 1,
    }
    idle = setting.idle is not None and bool(setting.idle.broken(job, table)[0])
    return idle or alone.get(setting.name, False)


def _splits(layout: Layout) -> Iterator[_Change]:
    """What stages of unequal layers are worth, where the plan has them."""
    if layout.stages is not None:
        even = parse_choice("stages=even", excluded=False)
        yield _Change(
            "even", "the even split of layers", lambda question: with_choice(question, even)
        )


def _sizes(case: Case) -> Iterator[_Change]:
    """One node more, with the batch and with its share of the batch; twice the cluster."""
    cluster, batch = case.job.cluster, case.job.training.global_batch_size
    gpus = cluster.num_gpus
    larger = gpus + cluster.groups[0].gpus_per_node
    grown, rest = divmod(batch * larger, gpus)
    if len(cluster.groups) == 1:
        same = f"one node more ({larger:,} GPUs), same batch"
        yield _Change("node", same, lambda question: with_gpus(question, larger))
    if len(cluster.groups) == 1 and not rest:
        text = f"one node more, batch {grown:,}"
        yield _Change(
            "node_and_batch", text, lambda question: with_batch(with_gpus(question, larger), grown)
        )
    if len(cluster.groups) > 1 or larger != 2 * gpus:
        twice = f"{2 * gpus:,} GPUs, same batch"
        yield _Change("gpus_double", twice, lambda question: with_gpus(question, 2 * gpus))


def _batches(case: Case) -> Iterator[_Change]:
    """Twice the batch, and half of it."""
    batch = case.job.training.global_batch_size
    twice = f"batch {2 * batch:,}"
    yield _Change("batch_double", twice, lambda question: with_batch(question, 2 * batch))
    if batch % 2 == 0:
        half = f"batch {batch // 2:,}"
        yield _Change("batch_half", half, lambda question: with_batch(question, batch // 2))


def _price(
    change: _Change, changed: Case, layout: Layout, own: _Speed, found: Outcome
) -> ShadowPrice:
    def effect(one: Candidate | None) -> Effect | None:
        if one is None:
            return None
        seconds = one.estimate.step_time_s
        speed = _Speed.of(changed.job, seconds)
        gains = speed.whole / own.whole - 1, speed.per_gpu / own.per_gpu - 1
        return Effect(one.layout, seconds, *gains)

    kept = kept_layout(changed, layout)
    best, text = found.at_least(kept), change.text
    if text == BEST_SETTINGS:
        text = f"{text}: {' '.join(best.settings) or 'those of the plan'}"
    return ShadowPrice(change.name, text, best.status, best.reason, effect(kept), effect(best.best))
