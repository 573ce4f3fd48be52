"""Do the intervals hold, of held-out sources: for docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import get_args

from accuracy_tables import Row, table

from trainplan.cli.pages.parts.evidence import KINDS
from trainplan.cli.pages.validate import SIDES, sides_of
from trainplan.cli.words import percent
from trainplan.costmodel import catalog
from trainplan.costmodel.uncertainty.intervals import UNMEASURED, Kind
from trainplan.costmodel.validate.cases.names import gpu_called
from trainplan.costmodel.validate.intervals import Coverage, of_sources
from trainplan.costmodel.validate.residuals import Residual
from trainplan.costmodel.validate.scores import Scores

HEAD = ("runs", *SIDES)
FEWEST, LONG = 15, 16384
"""Runs of a kind that is listed, and tokens of a long sequence."""
GROUPS: Mapping[str, Callable[[Residual], str]] = {
    "runtime": lambda one: one.row.run.runtime,
    "GPU": lambda one: gpu_called(one.row.run.cluster.gpu) or "",
    "precision": lambda one: one.row.run.training.precision or "",
    "feed-forward": lambda one: "experts" if one.row.job.model.moe else "dense model",
    "kind": lambda one: KINDS[one.kind],
    "sequence": lambda one: (
        f"{'from' if one.row.job.training.seq_length >= LONG else 'below'} 16k tokens"
    ),
}
"""What a reader may need of a run of theirs."""


def summary(found: Scores, residuals: Sequence[Residual]) -> Iterator[Row]:
    """The headline: fitted, and each source scored without it; every run counts the same."""
    if found.coverage:
        yield (
            "measured steps inside the 80 % interval",
            percent(found.coverage.inside_fraction),
            percent(of_sources(residuals, catalog.intervals().widened)[0].inside_fraction),
        )


def section(residuals: Sequence[Residual]) -> str:
    """Widths of the intervals of some regimes, and how many runs of sources left out they hold."""
    widened = catalog.intervals().widened
    every, *sources = of_sources(residuals, widened)
    known = catalog.intervals().regimes
    measured = [one.sources for name, one in known.items() if name in {r.regime for r in residuals}]
    return f"""\
## The interval

The interval that is printed after every step time is meant to hold 80 of 100 measured steps of a
held-out source: what a reader has, so that of known sources it holds somewhat more.
Errors of one source go together, so a source is what is counted, and the fewer of them measured
runs like yours (GPU, precision, runtime and kind), the wider it is
([how](explanation/constants.md#the-interval-of-a-step-time)): {measured.count(1)} of
{len(measured)} such regimes rest on one source. Where none did, it is of
the kind alone, and depends on what the constants of the GPU rest on: fits of its own, of another
similar GPU, or assumptions:

{table(("of no published run", "fits of its own", "a stand-in", "assumed"), _ends())}

**With their source left out of both constants and widths, {percent(every.inside_fraction)} of the
runs are inside.** A source is nearly all inside or far less (sources of fewer than eight runs are
*other*):

{table(("source left out", *HEAD), _rows([every, *sources]))}

The same runs by what they are, where at least {FEWEST} are such runs:

{table(("source left out", *HEAD), _rows(_by_group(residuals, widened)))}"""


def _by_group(residuals: Sequence[Residual], widened: float) -> Iterator[Coverage]:
    for group in GROUPS.values():
        _, *found = of_sources(residuals, widened, group)
        yield from (one for one in found if one.n >= FEWEST and one.name != "other")


def _ends() -> Iterator[Row]:
    known = catalog.intervals().regimes
    for kind in get_args(Kind):
        widths = (known[f"{name} {kind}"].factors for name in UNMEASURED)
        yield KINDS[kind], *(f"x {low:.2f} to {high:.2f}" for low, high in widths)


def _rows(groups: Iterable[Coverage]) -> Iterator[Row]:
    for one in groups:
        name = f"`{one.name}`" if " " in one.name else one.name
        yield name, str(one.n), *map(percent, sides_of(one))
