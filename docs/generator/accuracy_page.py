"""The page docs/accuracy.md, from predictions of published runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

import accuracy_evidence
import accuracy_gains
import accuracy_intervals
import accuracy_left_out
import accuracy_one_step
import accuracy_pictures
import accuracy_profiles
import accuracy_ranking
from accuracy_findings import Findings, sources_error
from accuracy_remarks import PEERS, SHORT
from accuracy_tables import Row, errors_table, table

from trainplan.cli.pages.parts.breakdown import LABELS
from trainplan.cli.pages.validate import SKIPPED, headline_text, rate, signed
from trainplan.cli.words import percent, seconds, seconds_like
from trainplan.costmodel.step.results import Terms
from trainplan.costmodel.uncertainty import FIT_CHANCE
from trainplan.costmodel.validate.memory_scores import Verdicts
from trainplan.costmodel.validate.scores import Scores, headline, worst
from trainplan.costmodel.validate.steps import GROUPINGS, errors, errors_by, timed_rows

HEAD = "<!-- Written by docs/generator/accuracy.py (`make accuracy`): edit that, not this file. -->"
WORST = 15


def page(findings: Findings) -> str:
    """The Markdown page."""
    found = findings.scores
    parts = (
        HEAD,
        _opening(findings),
        _steps(findings),
        accuracy_gains.section(findings.predictions),
        accuracy_ranking.section(found),
        accuracy_one_step.section(found.one_step, findings.leave_one_out),
        accuracy_profiles.section(findings.closed_loops, findings.leave_one_out),
        _memory(found),
        accuracy_intervals.section(findings.residuals),
        _ablation(findings),
        accuracy_left_out.section(findings.leave_one_out, found.rows),
        accuracy_evidence.section(found.rows),
        _worst(found),
        _skipped(findings),
        SHORT,
        PEERS,
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _opening(findings: Findings) -> str:
    text = accuracy_left_out.headline_text(findings.scores.rows, findings.left_out_rows)
    rows = timed_rows(findings.predictions, everything=True)
    whole = headline(rows, len(rows))
    assert whole
    return f"""\
# How accurate the estimates are

**Step times of {text}.**

{headline_text(findings.scores).capitalize()}.

Every number of this page but those of other tools is computed from runs that other people measured
and published ([the data](../examples/accuracy/README.md)); a test fails when it is not what the
model gives.
`plan validate` prints the same tables for
[your own runs](how-to/check-the-model-against-your-runs.md).

An error is predicted / measured - 1: *bias* is its median, *median* and *mean* are of its size.
The headline is the mean over the sources of their median errors, sources with fewer than 8 runs
counted as one, so that no source with many runs decides alone. Three warnings:

* **Expect the column *source left out***, of
  [fits that had not seen the source](#one-source-left-out): constants were fitted on these runs.
* **Published runs are mostly well tuned.** Bad layouts are rare here, except in the
  [layout study](#the-order-of-layouts), which measured them on purpose.
* **Only complete records count**: those that state step time, model, layout, batch and
  recomputation. With the incomplete ones, read by assumption, the headline is
  {percent(whole.error_fraction)} over {whole.num_priced} runs.

{table(accuracy_left_out.HEADLINES, _summary(findings))}"""


def _summary(findings: Findings) -> Iterator[Row]:
    found = findings.scores
    yield from accuracy_left_out.summary(found, findings.left_out_rows, findings.leave_one_out)
    yield from accuracy_ranking.summary(found.rows, findings.left_out_rows)
    yield from accuracy_intervals.summary(found, findings.residuals)
    for one in found.memory.by_kind:
        yield f"peak memory, {one.name}: median error", percent(one.median_fraction), ""
    yield "runs that do not fit, passed", rate(found.verdicts.false_fit_fraction), ""
    yield "runs that fit, refused", rate(found.verdicts.false_refusal_fraction), ""


def _steps(findings: Findings) -> str:
    titles, found, left = (
        {"gpu": "GPU", "feature": "runs with"},
        findings.scores,
        findings.left_out_rows,
    )
    tables = (
        errors_table(titles.get(name, name), groups, errors_by(left, GROUPINGS[name]))
        for name, groups in found.groups.items()
    )
    return "\n\n".join(("## Step time", accuracy_pictures.picture_text(), *tables))


def _memory(found: Scores) -> str:
    return f"""\
## Memory

Allocated: what the allocator hands out; reserved: what it takes from the device; device: all that
the process uses. The peak is compared in the kind and on the rank that was measured.

{errors_table("kind", found.memory.by_kind)}

{errors_table("source and kind", found.memory.by_source)}

{_verdicts(found.verdicts)}"""


def _verdicts(verdicts: Verdicts) -> str:
    wrong = (rate(verdicts.false_refusal_fraction), rate(verdicts.false_fit_fraction))
    rows = (
        ("we predict it fits", str(verdicts.true_fits), str(len(verdicts.false_fits))),
        ("we refuse it", str(len(verdicts.false_refusals)), str(verdicts.true_refusals)),
        ("wrong", *wrong),
    )
    names = "\n".join(f"* `{name}`" for name in verdicts.false_fits) or "None."
    return f"""\
### What fits

{verdicts.labels} labels state whether a layout fitted; {verdicts.answered} of them could be priced,
by what `plan search` takes: a chance to fit of {percent(FIT_CHANCE, 0)}. Many are derived: a
measured peak, held against another memory size.

{table(("", "it fits", "it does not"), rows)}

Passed, and does not fit:

{names}"""


def _ablation(findings: Findings) -> str:
    sources = [row.run.source_group for row in findings.scores.rows]
    without = {field.name: findings.without(field.name) for field in fields(Terms)}
    ranked = sorted(without, key=lambda name: -sources_error(sources, without[name]))
    rows = [_ablated(LABELS[name], sources, without[name]) for name in ranked]
    replaced = [
        _ablated(one.name, sources, findings.replaced(one)) for one in findings.replacements
    ]
    full = [row.error_fraction for row in findings.scores.rows]
    head = ("mean of the sources", "median of all runs", "bias")
    return f"""\
## What each term is worth

The error when a term of the step time is left out of the predictions. Nothing is fitted anew, so a
small number can also mean that another term makes up for it.

{table(("without", *head), [_ablated("nothing: the full model", sources, full), *rows])}

The error when an effect is switched off by its constants:

{table(("if", *head), replaced)}"""


def _ablated(name: str, sources: Sequence[str], fractions: Sequence[float]) -> Row:
    one = errors(name, fractions)
    whole = percent(sources_error(sources, fractions))
    return (name, whole, percent(one.median_fraction), signed(one.bias_fraction))


def _worst(found: Scores) -> str:
    rows = (
        (
            f"`{row.run.id}`",
            row.run.source_group,
            seconds(row.measured_s),
            seconds_like(row.predicted_s, row.measured_s),
            signed(row.error_fraction),
        )
        for row in worst(found.rows, WORST)
    )
    head = ("run", "source", "measured", "predicted", "error")
    return f"## The runs that are most off\n\n{table(head, rows)}"


def _skipped(findings: Findings) -> str:
    found = findings.scores
    sources: dict[str, set[str]] = {}
    for one in findings.predictions:
        if one.skipped:
            sources.setdefault(one.skipped.reason, set()).add(one.run.source_group)
    rows = (
        (SKIPPED[reason], str(count), ", ".join(sorted(sources[reason])))
        for reason, count in found.skipped.items()
    )
    return f"""\
## What is not priced

{sum(found.skipped.values())} of {len(findings.predictions)} records. The headline misses
{found.num_requested - len(found.rows)} complete records with a step time: those not priced, and
those whose GPU is mixed or not named. `plan validate --json` gives the reason of every record.

{table(("reason", "records", "sources"), rows)}"""
