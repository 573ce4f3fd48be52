"""Islands with outer steps: their rounds, and what they would make of a plan without them."""

from collections.abc import Iterator

from trainplan.cli.pages.parts.objective import amount
from trainplan.cli.words import percent, plural, seconds
from trainplan.costmodel.base import GB
from trainplan.costmodel.outer import ENOUGH
from trainplan.planner.plan import OuterStep

SHOWN = 3
"""Other numbers of islands; `outer_step.tried` of the plan document has all."""


def island_lines(outer: OuterStep | None, unit: str = "s") -> Iterator[str]:
    """What islands take, or a line that offers them; `unit` is of the objective."""
    if outer is None:
        return
    islands = f"{outer.islands} islands, joined every {plural(outer.every, 'local step')}"
    busy = f"{percent(outer.utilisation)} of the time in local steps"
    if not outer.chosen:
        would = f"{seconds(outer.step_time_s)} a step on {islands}, {busy}"
        if outer.tried:
            yield f"Outer steps are allowed and not taken, as none found is better: {would}"
            yield from _others(outer, unit)
        else:
            yield f"With --allow diloco, which changes the training: {would}."
        return
    waits = f"{seconds(outer.exposed_s)} exposed" if outer.exposed_s else "hidden"
    yield (
        f"{islands}: {outer.sent_bytes / GB:,.3g} GB each in {seconds(outer.sync_s)}, {waits}; "
        f"{busy}; {outer.fewer_bytes:,.0f} x fewer bytes than an all-reduce each step"
    )
    if outer.idle_islands:
        whole = outer.islands + outer.idle_islands
        yield f"{outer.idle_islands} of {whole} islands stay idle, any of them: all are equal"
    if outer.utilisation < ENOUGH:
        fewest = plural(outer.fewest_steps, "local step")
        yield f"{fewest} between outer steps are the fewest for {percent(ENOUGH, 0)}"
    yield _without(outer, unit)
    yield from _others(outer, unit)


def _without(outer: OuterStep, unit: str) -> str:
    """The plan without outer steps, by its step and by the objective."""
    row = next((one for one in outer.tried if one.islands == 1), None)
    if outer.without_step_s is None:
        known = f"no plan: {row.reason}" if row and row.reason else ""
        known = known or "not known, as it was not searched, or nothing fits"
    else:
        figure = f", {amount(row.value, unit)}" if row and row.value and unit != "s" else ""
        gpus = plural(outer.without_gpus or 0, "GPU")
        known = f"{seconds(outer.without_step_s)} a step on {gpus}{figure}, by a brief search"
    return f"without outer steps: {known}"


def _others(outer: OuterStep, unit: str) -> Iterator[str]:
    """Other numbers of islands, the best first."""
    own = outer.islands
    rows = [one for one in outer.tried if one.islands > 1 and one.islands != own]
    if rows:
        rows.sort(key=lambda one: (one.bound, one.islands))
        more = "" if len(rows) <= SHOWN else f"; {len(rows) - SHOWN} more in the document"
        known = (f"{n.islands} islands {_known(n.value, n.reason, unit)}" for n in rows[:SHOWN])
        yield f"other numbers, by a brief search: {', '.join(known)}{more}"


def _known(value: float | None, reason: str, unit: str) -> str:
    """A number's objective, or what is known instead."""
    if value is not None:
        return amount(value, unit)
    return "no plan" if reason else "not known"
