"""What a held-out source can expect: leave-one-source-out on docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accuracy_tables import Row, table

from trainplan.cli.words import percent
from trainplan.costmodel.validate.scores import Scores, layout_study
from trainplan.costmodel.validate.steps import TimedRow, by_source, mean_of_medians

Json = Mapping[str, Any]

HEADLINES = ("figure", "fitted", "source left out")
KINDS = {"dense models": False, "mixtures of experts": True}
MOST_LEARNT, LITTLE_LEARNT, LEAST_LEARNT = 0.5, 0.1, 0.01
"""From the first on a number is more of the runs than of its prior, below the second it rests on
that, and below the last it is not listed."""


def headline(rows: Sequence[TimedRow]) -> str:
    """Mean of the medians of the sources; nothing without a row."""
    found = mean_of_medians(by_source(rows).items())
    return percent(found[0]) if found else ""


def headline_text(rows: Sequence[TimedRow], left: Sequence[TimedRow]) -> str:
    """How far off step times are of what was fitted, and of what was held out."""
    experts = headline([row for row in left if row.job.model.moe])
    return (
        f"{len(rows):,} published runs: {headline(rows)} off on the runs it was fitted to, "
        f"{headline(left)} on sources left out{f' ({experts} with experts)' * bool(experts)}"
    )


def summary(found: Scores, left: Sequence[TimedRow], held_out: Json | None) -> Iterator[Row]:
    """Headlines of step times under `HEADLINES`."""
    yield "step time: mean of the sources' medians", headline(found.rows), headline(left)
    for name, moe in KINDS.items():
        both = (
            [row for row in rows if bool(row.job.model.moe) == moe] for rows in (found.rows, left)
        )
        yield f"the same, {name}", *map(headline, both)
    before, after = found.one_step, (held_out or {}).get("one_step")
    if before:
        yield (
            "runs with a partner of their family: before one measured step",
            percent(before.before_fraction),
            percent(after["before_fraction"]) if after else "",
        )
        yield (
            "the same runs after it",
            percent(before.after_fraction),
            percent(after["after_fraction"]) if after else "",
        )
    studies = [study for study in (found.layout_study, layout_study(left)) if study]
    for name, cell in (
        ("mean error", lambda study: percent(study.mean_fraction)),
        ("mean rank correlation", lambda study: f"{study.ranking.mean_spearman:.2f}"),
    ):
        yield f"layout study: {name}", *([cell(study) for study in studies] + ["", ""])[:2]


def section(found: Json | None, rows: Sequence[TimedRow]) -> str:
    """Errors of every source left out, and what the constants rest on."""
    title = "## One source left out"
    if found is None:
        return f"{title}\n\nNot computed for this state of the model."
    by_size = sorted(found["sources"].items(), key=lambda item: (-item[1]["n"], item[0]))
    medians = [(name, str(one["n"]), percent(one["median_error"])) for name, one in by_size]
    medians.append(("mean of the sources", "", percent(found["mean_of_medians"])))
    return f"""\
{title}

The constants fitted anew without one source, and that source predicted with them: what a machine
and software that were not fitted can expect. What its authors measured of kernels is forgotten,
too. `examples/accuracy/fit.py` computes it.

{table(("source left out", "runs", "median error"), medians)}

{_fitted(found, rows)}"""


def _fitted(found: Json, rows: Sequence[TimedRow]) -> str:
    """How many numbers there are, what the runs show of them, and which rest on one source."""
    counts, constants = found.get("fitted"), found["constants"]
    if counts is None:
        return ""
    mostly = [one for one in constants.values() if one["learnt"] >= MOST_LEARNT]
    moved = [one for one in constants.values() if one["moved_by"]]
    still = [name for name, one in constants.items() if one["learnt"] < LEAST_LEARNT]
    cells = (
        (
            f"`{name}`",
            *(f"{one[key]:.4g}" for key in ("value", "min", "max")),
            percent(one["learnt"], 0),
            ", ".join(one["moved_by"]),
            ", ".join(one["rests_on"]),
        )
        for name, one in sorted(constants.items())
        if name not in still
    )
    head = ("number", "all sources", "least", "most", "learnt", "moved by", "rests on")
    return f"""\
### What is fitted

{counts["numbers"]} numbers on {counts["runs"]} runs in {counts["layouts"]} layouts; a source counts
as much as eight independent runs. Each number has a prior that none of these runs gave. *Learnt* is
the share of it that is of the runs and not of its prior; the sum, what the runs really set, is
{counts["effective"]:.0f} numbers. {len(mostly)} are more of the runs than of their prior.

*Least* and *most*: where it goes when a source is left out. *Moved by*: without this source it is
half the spread of its prior away, or more ({len(moved)} numbers). *Rests on*: without this source
less than half of what is learnt of it is left, so it is a finding about that source as much as a
constant; of the speed of a GPU, the one source that ran on it. `class` and `architecture` are
factors of these speeds.

{table(("fitted numbers", "all", *RESTS), _rests(constants, rows))}

{table(head, cells)}

The runs determine less than {percent(LEAST_LEARNT, 0)} of {len(still)} more:
{", ".join(f"`{name}`" for name in sorted(still))}."""


RESTS = ("on several sources", "on one", "on their priors alone")
SPEED = "speed"
"""Constants whose names begin so are of a GPU and a precision."""


def _rests(constants: Json, rows: Sequence[TimedRow]) -> Iterator[Row]:
    """How many numbers rest on how many sources, speeds of GPUs by themselves."""
    sources: dict[str, set[str]] = {}
    for row in rows:
        for group in row.job.cluster.groups:
            name = f"{SPEED} {group.gpu} {row.job.training.precision.replace('fp16', 'bf16')}"
            sources.setdefault(name, set()).add(row.run.source_group)

    def rests(name: str) -> int:
        one = constants[name]
        if name.startswith(f"{SPEED} "):
            return {0: 2, 1: 1}.get(len(sources.get(name, ())), 0)
        return 2 if one["learnt"] < LITTLE_LEARNT else int(bool(one["rests_on"]))

    for title, of_speed in (("speeds of GPUs", True), ("others", False)):
        found = [rests(name) for name in constants if name.startswith(f"{SPEED} ") == of_speed]
        yield title, str(len(found)), *(str(found.count(place)) for place in range(len(RESTS)))
