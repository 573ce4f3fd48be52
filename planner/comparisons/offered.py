"""Machines that are offered at a price: on which of them a job costs least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainplan.costmodel.base import SECONDS_PER_DAY, SpecError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.run_costs import run_steps, stretch_of
from trainplan.planner.cases import Case
from trainplan.planner.documents import Document
from trainplan.planner.plan import Infeasible, Plan
from trainplan.planner.questions import search
from trainplan.planner.work import Budget, Workers, part_of

NOT_SEARCHED = "not searched: the time limit struck"


@dataclass(frozen=True, slots=True)
class Offer:
    """A cluster with prices, as it is offered."""

    name: str
    case: Case
    """With the objective `cost`."""


@dataclass(frozen=True, kw_only=True)
class OfferRow(Document):
    """An offer with the cheapest plan on it."""

    name: str
    """As the file calls it."""
    cluster: ClusterSpec
    """All that is offered, with its price."""
    lower_bound: float | None
    """No layout on the offer costs less; null: none is an answer there."""
    reason: str = ""
    """Why there is no plan, and none of the keys below."""
    num_gpus: int | None = None
    """GPUs that the cheapest plan uses."""
    step_time_s: float | None = None
    """Seconds of its step."""
    days: float | None = None
    """Of the run, with `--tokens`."""
    money: float | None = None
    """Of the run, or without tokens of a step."""
    layout: Layout | None = None
    """Its layout."""


@dataclass(frozen=True, kw_only=True)
class OffersDocument(Document):
    """What a job costs on each of some offers."""

    SCHEMA = "trainplan/offers/v1"
    schema: Literal["trainplan/offers/v1"]
    """`trainplan/offers/v1`."""
    currency: str
    """Of all money here."""
    per: Literal["run", "step"]
    """What money is of."""
    lower_bound: float | None
    """No layout on any offer costs less; null: none is an answer."""
    offers: tuple[OfferRow, ...]
    """The cheapest first, then those without a plan."""


@dataclass(frozen=True, slots=True)
class Offers:
    """Offers compared, and the plan on the cheapest."""

    document: OffersDocument
    best: Offer
    plan: Plan | None
    """Null where no offer has one."""


def offers(given: Sequence[Offer], budget: Budget, workers: Workers) -> Offers:
    """The cheapest plan on each offer, in equal parts of the time.

    Raises:
        PlanError: A number of a machine is unknown, or prices are in different currencies.
    """
    currencies = sorted({one.case.job.cluster.currency for one in given})
    if len(currencies) > 1:
        raise SpecError(f"offers in {' and '.join(currencies)}: state them in one currency")
    found = [
        _searched(one, part_of(budget, 1 / (len(given) - place)), workers)
        for place, one in enumerate(given)
    ]
    order = sorted(found, key=lambda one: (one[0].money is None, one[0].money or 0.0))
    bounds = [row.lower_bound for row, _ in found if row.lower_bound is not None]
    row, plan = order[0]
    document = OffersDocument.of_fields(
        None,
        currency=currencies[0],
        per="run" if given[0].case.job.training.tokens else "step",
        lower_bound=min(bounds, default=None),
        offers=tuple(one for one, _ in order),
    )
    return Offers(document, next(one for one in given if one.name == row.name), plan)


def _searched(offer: Offer, budget: Budget, workers: Workers) -> tuple[OfferRow, Plan | None]:
    case = offer.case
    none = OfferRow(name=offer.name, cluster=case.job.cluster, lower_bound=None)
    try:
        if budget.spent():
            raise SpecError(NOT_SEARCHED)
        found = search(case.job, case.options, budget, case.measured, workers)
    except SpecError as error:
        bound = 0.0 if budget.spent() else None
        return replace(none, lower_bound=bound, reason=str(error)), None
    if isinstance(found, Infeasible):
        return replace(none, reason="nothing fits"), None
    target, step = found.certificate.objective, found.best.estimate.step_time_s
    steps = run_steps(found.job)
    row = replace(
        none,
        lower_bound=target.lower_bound,
        num_gpus=found.job.num_gpus,
        step_time_s=step,
        days=steps * step * stretch_of(found.job) / SECONDS_PER_DAY if steps else None,
        money=target.answer_value,
        layout=found.best.layout,
    )
    return row, found
