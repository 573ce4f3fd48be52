"""The page docs/accuracy.md, from predictions of published runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from statistics import fmean

import accuracy_evidence
import accuracy_one_step
import accuracy_pictures
import accuracy_profiles
from accuracy_findings import MARGIN, REPLACEMENTS, Findings, Json, sources_error
from accuracy_remarks import PEERS, SHORT
from accuracy_tables import Row, errors_table, ranking_table, table

from trainplan.cli.render.parts.breakdown import LABELS
from trainplan.cli.render.parts.text import percent, seconds, seconds_like
from trainplan.cli.render.validate import SKIPPED, headline_text, rate, signed
from trainplan.costmodel.step.results import Terms
from trainplan.costmodel.validate.memory_scores import Verdicts
from trainplan.costmodel.validate.ranking import FEWEST_LAYOUTS
from trainplan.costmodel.validate.scores import Scores, scores, worst
from trainplan.costmodel.validate.steps import errors

HEAD = "<!-- Written by docs/generator/accuracy.py (`make accuracy`): edit that, not this file. -->"
WORST = 15


def page(findings: Findings) -> str:
    """The Markdown page."""
    found = findings.scores
    parts = (
        HEAD,
        _opening(findings),
        _steps(found),
        _ranking(found),
        accuracy_one_step.section(found.one_step, findings.leave_one_out),
        accuracy_profiles.section(findings.closed_loops),
        _memory(found),
        _intervals(found, findings.leave_one_out),
        _ablation(findings),
        _leave_one_out(findings.leave_one_out),
        accuracy_evidence.section(found.rows),
        _worst(found),
        _skipped(findings),
        SHORT,
        PEERS,
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _opening(findings: Findings) -> str:
    found, headline = findings.scores, headline_text(findings.scores)
    whole = scores(findings.predictions, everything=True).headline
    assert whole
    return f"""\
# How accurate the estimates are

**{headline[0].upper()}{headline[1:]}.**

Every number of this page but those of other tools is computed from runs that other people measured
and published ([the data](../examples/accuracy/README.md)); a test fails when it is not what the
model says.
`plan validate` prints the same tables for
[your own runs](how-to/check-the-model-against-your-runs.md).

An error is predicted / measured - 1: *bias* is its median, *median* and *mean* are of its size.
The headline is the mean over the sources of their median errors, sources with fewer than 8 runs
counted as one, so that no source with many runs decides alone. Three warnings:

* **The constants were fitted on these runs.** Expect more on a machine that is not among them:
  [one source left out](#one-source-left-out).
* **Published runs are mostly well tuned.** Bad layouts are rare here, except in the
  [layout study](#the-order-of-layouts), which measured them on purpose.
* **Only complete records count**: those that state step time, model, layout, batch and
  recomputation. With the incomplete ones, read by assumption, the headline is
  {percent(whole.error_fraction)} over {whole.num_priced} runs.

{table(("figure", "value"), _summary(found))}"""


def _summary(found: Scores) -> Iterator[Row]:
    study = found.layout_study
    if found.headline:
        yield "step time: mean of the sources' medians", percent(found.headline.error_fraction)
    if found.one_step:
        before, after = found.one_step.before_fraction, found.one_step.after_fraction
        yield "runs with a partner of their family: before one measured step", percent(before)
        yield "the same runs after it", percent(after)
    if study:
        order = study.ranking
        yield "layout study: mean error", percent(study.mean_fraction)
        yield "layout study: mean rank correlation", f"{order.mean_spearman:.2f}"
        yield "layout study: picked layout slower by", percent(order.mean_regret_fraction)
    for one in found.memory.by_kind:
        yield f"peak memory, {one.name}: median error", percent(one.median_fraction)
    yield "runs that do not fit, passed", rate(found.verdicts.false_fit_fraction)
    yield "runs that fit, refused", rate(found.verdicts.false_refusal_fraction)
    if found.coverage:
        yield "measured steps inside the 80 % interval", percent(found.coverage.inside_fraction)


def _steps(found: Scores) -> str:
    titles = {"gpu": "GPU", "feature": "runs with"}
    tables = (errors_table(titles.get(name, name), groups) for name, groups in found.groups.items())
    return "\n\n".join(("## Step time", accuracy_pictures.picture_text(), *tables))


def _ranking(found: Scores) -> str:
    study = found.layout_study
    assert found.ranking and study
    order = study.ranking
    many = [one.regret_fraction for one in found.ranking.groups if one.num_layouts > FEWEST_LAYOUTS]
    return f"""\
## The order of layouts

Runs of one model on one machine with one batch, sequence, precision and runtime, in at least three
layouts. *Regret*: how much slower than the best measured layout the one is that the model would
pick; *Spearman*: correlation of the ranks.

{ranking_table(found.ranking)}

Jobs with four layouts or more alone: mean regret {percent(fmean(many))}. Pairs are left out:
those of GPT3-175B are of two releases of NeMo, which run equal layouts 2 to 6 % apart.

The layout study is the {study.n} multi-node runs of vTrain, bad layouts included: mean error
{percent(study.mean_fraction)}, mean rank correlation {order.mean_spearman:.2f}, mean regret
{percent(order.mean_regret_fraction)}."""


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
        ("we say it fits", str(verdicts.true_fits), str(len(verdicts.false_fits))),
        ("we refuse it", str(len(verdicts.false_refusals)), str(verdicts.true_refusals)),
        ("wrong", *wrong),
    )
    names = "\n".join(f"* `{name}`" for name in verdicts.false_fits) or "None."
    return f"""\
### What fits

{verdicts.labels} labels say whether a layout fitted; {verdicts.answered} of them could be priced,
with {percent(MARGIN, 0)} of the memory kept free. Many are derived: a measured peak, held against
another memory size.

{table(("", "it fits", "it does not"), rows)}

Passed, and does not fit:

{names}"""


def _intervals(found: Scores, held_out: Json | None) -> str:
    shown = (found.coverage, *found.regimes) if found.coverage else ()
    rows = ((one.name, str(one.n), percent(one.inside_fraction)) for one in shown)
    return f"""\
## The interval

Share of measured steps inside the interval that is printed beside every step time; it is meant to
hold 80 of 100. How wide it is depends on how well machine and model are known. These widths were
set on these very runs:

{table(("regime", "runs", "inside"), rows)}

{_held_out(held_out)}"""


def _held_out(found: Json | None) -> str:
    if found is None or "coverage" not in found:
        return ""
    sizes = {name: one["n"] for name, one in found["sources"].items()}
    ranked = sorted(found["coverage"].items(), key=lambda item: (-sizes[item[0]], item[0]))
    rows = [(name, str(sizes[name]), percent(share)) for name, share in ranked]
    rows.append(("mean of the sources", "", percent(fmean(found["coverage"].values()))))
    return f"""\
A harder test: each source predicted by constants, and judged by widths, that come from the other
sources alone. Errors of one source go together, so it is nearly all inside or far less.

{table(("source left out", "runs", "inside"), rows)}"""


def _ablation(findings: Findings) -> str:
    sources = [row.run.source_group for row in findings.scores.rows]
    without = {field.name: findings.without(field.name) for field in fields(Terms)}
    ranked = sorted(without, key=lambda name: -sources_error(sources, without[name]))
    rows = [_ablated(LABELS[name], sources, without[name]) for name in ranked]
    replaced = [_ablated(one.name, sources, findings.replaced(one)) for one in REPLACEMENTS]
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


def _leave_one_out(found: Json | None) -> str:
    title = "## One source left out"
    if found is None:
        return f"{title}\n\nNot computed for this state of the model."
    by_size = sorted(found["sources"].items(), key=lambda item: (-item[1]["n"], item[0]))
    rows = [(name, str(one["n"]), percent(one["median_error"])) for name, one in by_size]
    rows.append(("mean of the sources", "", percent(found["mean_of_medians"])))
    constants = (
        (f"`{name}`", *(f"{one[key]:.4g}" for key in ("value", "min", "max")))
        for name, one in sorted(found.get("constants", {}).items())
    )
    return f"""\
{title}

The constants fitted anew without one source, and that source predicted with them: what a machine
and software that nobody has fitted can expect. `examples/accuracy/fit.py` computes it.

{table(("source left out", "runs", "median error"), rows)}

How far the fitted constants move when a source is left out:

{table(("constant", "all sources", "least", "most"), constants)}"""


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
{found.num_asked - len(found.rows)} complete records with a step time: those not priced, and those
whose GPU is mixed or not named. `plan validate --json` gives the reason of every record.

{table(("reason", "records", "sources"), rows)}"""
