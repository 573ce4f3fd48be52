"""What stands behind an answer beside its proof: published runs near it, and where it leaves them.

The proof is about the cost model; nothing here is proved.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.cli.render.parts.objective import amount
from trainplan.cli.render.parts.text import percent, plural
from trainplan.planner.evidence import Evidence
from trainplan.planner.evidence.evidence import NearRun
from trainplan.planner.evidence.trusted import OPTION
from trainplan.planner.plan import Plan

MOST_TOLD = 4
"""Axes beyond what was measured; `evidence.beyond` of the document has all."""


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """The nearest published runs with their errors, and where the layout leaves them."""
    if evidence.nearest:
        first, *others = evidence.nearest
        then = "".join(f"; {_machine(run)} ({_off(run)})" for run in others)
        yield (
            f"Nearest of {plural(evidence.num_runs, 'scored run')}: {_machine(first)}, "
            f"{first.layout} ({_off(first)}){then}."
        )
    texts = [one.text for one in evidence.beyond]
    more = len(texts) - MOST_TOLD
    if texts:
        rest = f"; {plural(more, 'more axis') if more == 1 else f'{more} more axes'}"
        yield f"Beyond what was measured: {'; '.join(texts[:MOST_TOLD])}{rest * (more > 0)}."
    else:
        yield "Inside what was measured, each axis asked alone."


def _machine(run: NearRun) -> str:
    return f"{run.model} on {run.num_gpus} {run.gpu}"


def _off(run: NearRun) -> str:
    return f"estimate {run.error_fraction * 100:+.1f} %, distance {run.distance:.1f}"


def plan_evidence_lines(plan: Plan) -> Iterator[str]:
    """Those of the answer, a near-tie with more behind it, and what `--trusted` costs."""
    if plan.evidence is None:
        return
    yield from evidence_lines(plan.evidence)
    yield from _near_tie_line(plan, plan.evidence)
    yield from _trusted_line(plan)


def _near_tie_line(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """The fastest layout that the model cannot tell from the answer and that stays inside."""
    ties = [one for one in plan.candidates if one.near_tie and one.inside_measured]
    if ties and not evidence.inside:
        one = min(ties, key=lambda tie: tie.estimate.step_time_s)
        slower = percent(one.estimate.step_time_s / plan.best.estimate.step_time_s - 1)
        yield (
            f"Layout {one.rank} of the table stays inside and is {slower} slower, less than the "
            "model can tell apart."
        )


def _trusted_line(plan: Plan) -> Iterator[str]:
    """The price of `--trusted`, as the second search found it."""
    trusted, target = plan.certificate.trusted, plan.certificate.objective
    if trusted is None:
        return
    if trusted.lower_bound_without is None:
        yield f"{OPTION}: its price is not known, no time was left to search without it."
        return
    without = amount(trusted.value_without, target.unit)
    proved = trusted.lower_bound_without >= trusted.value_without
    bound = amount(trusted.lower_bound_without, target.unit)
    sure = "proved" if proved else f"not proved: it may go down to {bound}"
    if trusted.cost_fraction > 0:
        both = "" if proved and plan.certificate.optimal else " as far as both were searched"
        costs = f"costs {percent(trusted.cost_fraction)}{both}: a second search without it gives"
        yield f"{OPTION} {costs} {without} ({sure})."
    else:
        yield f"{OPTION} costs nothing: a second search without it gives no better ({sure})."
