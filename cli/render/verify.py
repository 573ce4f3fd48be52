"""What was run of a plan, as text and as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from trainplan.cli.blocks.screen import Words, grid
from trainplan.cli.terminal.output import section
from trainplan.costmodel.layout import Layout
from trainplan.planner.plan.layout_document import layout_json
from trainplan.planner.questions.verify.combinations import Combinations
from trainplan.planner.questions.verify.compare import Compared
from trainplan.planner.questions.verify.verify import Ran

SCHEMA = "trainplan/verify/v1"
HEADS = (
    Words("layout"),
    "loss",
    "grad norm",
    "parameters",
    "bytes sent",
    "bytes kept",
    "seconds",
)


def verify_page(found: Sequence[Ran], not_run: Sequence[str]) -> Iterator[RenderableType]:
    """The answer, a row for each combination, what differs, what was not run."""
    yield Text(verdict(found), style="bold green" if equal(found) else "bold red")
    yield grid(HEADS, [_row(one) for one in found])
    yield "\n".join(_legend(found))
    wrong = [line for one in found for line in _differences(one)]
    if wrong:
        yield section("Differs", *wrong)
    if not_run:
        yield section("Not run", *not_run)


def equal(found: Sequence[Ran]) -> bool:
    """Is every combination equal to one process?"""
    return all(one.equal for one in found)


def verdict(found: Sequence[Ran]) -> str:
    """One line."""
    if not found:
        return "equal: the plan uses one process, so there is nothing to compare"
    same = sum(one.equal for one in found)
    word = "equal" if equal(found) else "not equal"
    return f"{word}: {same} of {len(found)} combinations compute what one process does"


def _legend(found: Sequence[Ran]) -> Iterator[str]:
    tolerance = max((one.found.tolerance for one in found if one.found), default=None)
    if tolerance is not None:
        yield (
            f"Losses and gradient norms: relative difference from one process; {tolerance:.0e} is "
            "what the order of fp32 sums explains."
        )
        yield "The rest: what every rank has, sends in a step and keeps, beside the cost model."


def short_layout(layout: Layout) -> str:
    """What a layout uses."""
    uneven = len({stage.layers for stage in layout.stages or ()}) > 1
    parts = [
        f"tp {layout.tp}" + (" SP" if layout.sequence_parallel else "") if layout.tp > 1 else "",
        f"cp {layout.cp}" if layout.cp > 1 else "",
        f"pp {layout.pp}" if layout.pp > 1 else "",
        layout.schedule if layout.schedule not in ("1f1b", "interleaved") else "",
        f"vpp {layout.vpp}" if layout.vpp > 1 else "",
        "uneven" if uneven else "",
        f"dp {layout.dp}" if layout.dp > 1 else "",
        f"ZeRO-{layout.zero_stage}" if layout.cp * layout.dp > 1 else "",
        f"x{layout.dp_replicate}" if layout.dp_replicate > 1 else "",
        f"ep {layout.ep}" if layout.ep > 1 else "",
        f"etp {layout.etp}" if layout.etp > 1 else "",
        _recompute(layout),
    ]
    return " · ".join(part for part in parts if part) or "one process"


def _recompute(layout: Layout) -> str:
    if layout.recompute == "none":
        return ""
    what = layout.recompute_modules if layout.recompute == "selective" else ()
    return f"recompute {', '.join(what) or layout.recompute_method}"


def _row(one: Ran) -> tuple[str, ...]:
    name = short_layout(one.combination.layout)
    if one.found is None:
        return (name, *("-",) * 5, "-")
    found = one.found
    return (
        name,
        f"{found.loss_difference:.0e}",
        f"{found.grad_norm_difference:.0e}",
        _exact(found.wrong_parameters),
        _exact(found.wrong_sent),
        "-" if found.saved_difference is None else f"{100 * found.saved_difference:.2f} %",
        f"{one.seconds or 0:.1f}",
    )


def _exact(wrong: Sequence[str]) -> str:
    return "differ" if wrong else "exact"


def _differences(one: Ran) -> Iterator[str]:
    """What is wrong with a combination, a line each."""
    name = short_layout(one.combination.layout)
    if one.found is None:
        yield f"{name}: {one.failure}"
        return
    found = one.found
    for what, size in _numbers(found):
        if size > found.tolerance:
            yield f"{name}: {what} differ by {size:.1e}, {found.tolerance:.0e} is rounding"
    for line in (*found.wrong_parameters, *found.wrong_sent, *found.wrong_saved):
        yield f"{name}: {line}"


def _numbers(found: Compared) -> tuple[tuple[str, float], ...]:
    return ("losses", found.loss_difference), ("gradient norms", found.grad_norm_difference)


def started_event(asked: Combinations, nproc: int, trainer: str) -> Mapping[str, object]:
    """The first line."""
    return {
        "event": "started",
        "schema": SCHEMA,
        "trainer": trainer,
        "nproc": nproc,
        "combinations": [short_layout(one.layout) for one in asked.others],
        "not_run": list(asked.not_run),
    }


def ran_event(one: Ran) -> Mapping[str, object]:
    """A line when a combination has run."""
    return {"event": "ran", **ran_json(one)}


def ended_event(found: Sequence[Ran], not_run: Sequence[str]) -> Mapping[str, object]:
    """The last line."""
    return {
        "event": "ended",
        "schema": SCHEMA,
        "verdict": verdict(found),
        "equal": equal(found),
        "combinations": [ran_json(one) for one in found],
        "not_run": list(not_run),
    }


def ran_json(one: Ran) -> Mapping[str, object]:
    """A combination and what was found."""
    found = one.found
    return {
        "name": short_layout(one.combination.layout),
        "layout": layout_json(one.combination.job, one.combination.layout),
        "equal": one.equal,
        "failure": one.failure or None,
        "loss_difference": found and found.loss_difference,
        "grad_norm_difference": found and found.grad_norm_difference,
        "tolerance": found and found.tolerance,
        "parameters_equal": found and not found.wrong_parameters,
        "sent_equal": found and not found.wrong_sent,
        "saved_difference": found and found.saved_difference,
        "differences": list(_differences(one)),
        "seconds": one.seconds,
    }
