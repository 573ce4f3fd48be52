"""Do the intervals hold, of runs and sources that nobody fitted: for docs/accuracy.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accuracy_tables import Row, table

from trainplan.cli.pages.validate import SIDES, sides_of
from trainplan.cli.words import percent
from trainplan.costmodel import catalog
from trainplan.costmodel.uncertainty.intervals import UNMEASURED
from trainplan.costmodel.validate.intervals import Coverage, left_out_coverage, of_sources
from trainplan.costmodel.validate.residuals import Residual
from trainplan.costmodel.validate.scores import Scores

HEAD = ("runs", *SIDES)


def of_studies(residuals: Sequence[Residual]) -> tuple[Coverage, ...]:
    """Each study judged without it, by regime."""
    return left_out_coverage(
        residuals,
        lambda one: one.study,
        lambda one: one.without_study,
        lambda one: one.regime,
        tail=catalog.intervals().tail,
    )


def summary(found: Scores, residuals: Sequence[Residual]) -> Iterator[Row]:
    """The headline: fitted, and each source judged without it; every run counts alike."""
    if found.coverage:
        yield (
            "measured steps inside the 80 % interval",
            percent(found.coverage.inside_fraction),
            percent(of_sources(residuals, catalog.intervals().tail)[0].inside_fraction),
        )


def section(found: Scores, residuals: Sequence[Residual]) -> str:
    """Ends of the intervals of some regimes, and three tests of all of them."""
    tail = catalog.intervals().tail
    fitted = (found.coverage, *found.regimes) if found.coverage else ()
    return f"""\
## The interval

The interval that is printed beside every step time is meant to hold 80 of 100 measured steps of a
source that nobody fitted: what a reader has. It leaves {percent(tail)} of the weight of the fitted
runs beyond either end, the most with which it does so for sources left out (the last table), and
so holds more of the runs that were fitted. It is of runs like the one that is asked for: of its
GPU, precision, runtime and kind (CUDA graphs, experts, FSDP, launch-bound or dense); the fewer
publications measured such runs, the more those of all others count
([how](explanation/constants.md#the-interval-of-a-step-time)). Where none did, it depends on what
the constants of the GPU rest on:

{table(("of no published run", "from", "to"), _ends())}

Three tests, each harder than the one before. The constants and the ends come from these very runs
(regimes of fewer than eight runs are *other*):

{table(("regime", *HEAD), _rows(fitted))}

Each study (the runs of one model in one source) is left out of constants and ends alike; machine
and software are still known from others:

{table(("regime, study left out", *HEAD), _rows(of_studies(residuals)))}

Each source is left out of both. Errors of one source go together, so it is nearly all inside or
far less:

{table(("source left out", *HEAD), _rows(of_sources(residuals, tail)))}"""


def _ends() -> Iterator[Row]:
    known = catalog.intervals().regimes
    names = {
        "unseen": "fits of its own",
        "stand_in": "fits of another GPU that stands in",
        "assumed": "assumptions",
    }
    for name in UNMEASURED:
        yield names[name], *(f"x {factor:.2f}" for factor in known[name].factors)


def _rows(groups: Iterable[Coverage]) -> Iterator[Row]:
    for one in groups:
        name = f"`{one.name}`" if " " in one.name else one.name
        yield name, str(one.n), *map(percent, sides_of(one))
