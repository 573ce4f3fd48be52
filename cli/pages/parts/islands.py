"""Islands with outer steps: their rounds, and what they would make of a plan without them."""

from collections.abc import Iterator

from trainplan.cli.words import percent, plural, seconds
from trainplan.costmodel.base import GB
from trainplan.costmodel.outer import ENOUGH
from trainplan.planner.plan import OuterStep


def island_lines(outer: OuterStep | None) -> Iterator[str]:
    """What islands take, or a line that offers them."""
    if outer is None:
        return
    islands = f"{outer.islands} islands, joined every {plural(outer.every, 'local step')}"
    busy = f"{percent(outer.utilisation)} of the time in local steps"
    if not outer.chosen:
        yield (
            f"With --allow diloco, which changes the training: {seconds(outer.step_time_s)} a step "
            f"on {islands}, {busy}."
        )
        return
    waits = f"{seconds(outer.exposed_s)} exposed" if outer.exposed_s else "hidden"
    yield (
        f"{islands}: {outer.sent_bytes / GB:,.3g} GB each in {seconds(outer.sync_s)}, {waits}; "
        f"{busy}; {outer.fewer_bytes:,.0f} x fewer bytes than an all-reduce each step"
    )
    if outer.utilisation < ENOUGH:
        fewest = plural(outer.fewest_steps, "local step")
        yield f"{fewest} between outer steps are the fewest for {percent(ENOUGH, 0)}"
    if outer.without_step_s is None:
        yield "without outer steps: not known, as it was not searched, or nothing fits"
    else:
        gpus = plural(outer.without_gpus or 0, "GPU")
        known = f"{seconds(outer.without_step_s)} a step on {gpus}, by a brief search"
        yield f"without outer steps: {known}"
