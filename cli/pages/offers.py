"""What a job costs on each of some offers, then the plan on the cheapest."""

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks import Part, number, table
from trainplan.cli.pages.parts.objective import amount
from trainplan.cli.words import layout_line, percent, plural
from trainplan.planner.comparisons import Offers


def offers_page(found: Offers) -> Iterator[Part]:
    """The cheapest offer in a sentence, and a row for each."""
    yield Text(verdict(found), style="bold green")
    model, unit = found.best.case.job.model, found.document.currency
    rows = [
        (
            one.name,
            f"{one.num_gpus or ''}",
            "" if one.days is None else f"{one.days:.3g}",
            "" if one.money is None else amount(one.money, unit),
            _proof(one.money, one.lower_bound, unit),
            one.reason.partition(": ")[0] if one.layout is None else layout_line(one.layout, model),
        )
        for one in found.document.offers
    ]
    figures = (number("GPUs"), number("days"), number(f"a {found.document.per}"))
    yield table("", ("offer", *figures, "proof", "layout"), rows)


def verdict(found: Offers) -> str:
    """The cheapest offer, and what is proved over all."""
    best, document = found.document.offers[0], found.document
    if best.money is None:
        return f"None of {plural(len(document.offers), 'offer')} has an answer."
    days = "" if best.days is None else f", {best.days:.3g} days"
    line = f"Cheapest: {best.name}, {amount(best.money, document.currency)} a {document.per} on "
    line += f"{plural(best.num_gpus or 0, 'GPU')}{days}; "
    bound = document.lower_bound or 0.0
    if bound >= best.money:
        return f"{line}proved"
    less = percent(1 - bound / best.money, up=True)
    return f"{line}no offer costs less than {amount(bound, document.currency)}, {less} less"


def _proof(money: float | None, bound: float | None, unit: str) -> str:
    if money is None or bound is None:
        return ""
    return "proved" if bound >= money else f"at least {amount(bound, unit)}"
