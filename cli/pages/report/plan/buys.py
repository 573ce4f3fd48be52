"""What each setting buys, and what more of the machine would: of the plan's layout, as it is."""

import shlex
from collections.abc import Iterator

from trainplan.cli.blocks import Block, Code, Columns, Paragraph, Section, number, table
from trainplan.cli.pages.parts.differences import gain
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import Measured
from trainplan.planner.cases import Case
from trainplan.planner.documents import written
from trainplan.planner.explanations import ShadowPrice, kept_prices
from trainplan.planner.plan import Plan

ALL_SETTINGS = "settings"
"""The change that is a search and nothing else."""
NOT_PRICED = "not priced"


def buys_section(plan: Plan, text: str, measured: Measured, name: str) -> Section:
    """Settings of the plan, then changes of the job; `text` is the plan's of the file `name`."""
    return Section("buys", "What each setting buys", tuple(_blocks(plan, text, measured, name)))


def _blocks(plan: Plan, text: str, measured: Measured, name: str) -> Iterator[Block]:
    if plan.assumed:
        columns: Columns = ("setting", number("saves", gain), "how it is set")
        rows = (
            (
                one.option + f" with {one.needing}" * bool(one.needing),
                NOT_PRICED if one.saves_fraction is None else one.saves_fraction,
                "the runtime's default" if one.default else "by the job or the search",
            )
            for one in plan.assumed
        )
        yield table("Settings of the plan: what the step saves by each, same layout", columns, rows)
    try:
        found = written(text)
        case = Case(found.job, found.options, measured)
        prices = kept_prices(case, found.layout, plan.best.estimate.step_time_s)
    except PlanError as error:
        yield Paragraph(f"Changes are {NOT_PRICED}: {error}.", "doubtful")
        return
    stated = {one.option.partition("=")[0] for one in plan.assumed}
    others = [one for one in prices if one.change not in (*stated, ALL_SETTINGS)]
    others.sort(key=lambda one: -one.kept.throughput_gain_fraction if one.kept else 1.0)
    columns = ("change", number("same layout", gain), "remark")
    changed = (
        (one.text, one.kept.throughput_gain_fraction if one.kept else NOT_PRICED, _remark(one))
        for one in others
    )
    yield table("Changes: what each buys, in tokens per second of the job", columns, changed)
    yield Paragraph(
        f"Searched anew: {NOT_PRICED} here. Another layout may gain more by a change; that takes a "
        "search for each, which this makes:"
    )
    yield Code("Explain", f"plan explain {shlex.quote(name)}")


def _remark(price: ShadowPrice) -> str:
    """Why there is no price, and what the change does to the training."""
    if price.kept is None:
        return price.reason or "this layout does not run or fit there"
    changed = ["changes the training"] if price.changes_training else []
    return "; ".join((*changed, *(f"extrapolated: {text}" for text in price.beyond)))
