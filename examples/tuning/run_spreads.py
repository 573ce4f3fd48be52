"""How far whole steps are from the cost model, by what they share: `[runs]` of spreads.toml.

Published runs are predicted by constants fitted without their source, and by constants fitted on
all (there every machine was seen). The spreads are those with which one measured step predicts the
other layouts of its machine best: of the same model, of the same family and of another family,
each kind and each source counting alike, as shares of the error before. `GUESS` holds them within
a factor of e ** WITHIN where the runs do not tell.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from unittest.mock import patch

from fit_one_step import left_out_steps
from fit_rows import FloatColumn, Row

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.effects import Shared, machine_spread
from trainplan.costmodel.calibration.scalars import fit_of_one
from trainplan.costmodel.validate.one_step import (
    Partners,
    Step,
    other_family,
    same_family,
    same_model,
)
from trainplan.costmodel.validate.steps import pooled

NAMES = ("machine_seen", "machine_unseen", "family", "model", "layout")
GUESS = (0.01, 0.08, 0.03, 0.03, 0.03)
"""Source: assumed; as far as medians of groups of published runs are off, fitted and left out."""
WITHIN, PULL = 0.7, 0.002
LARGEST = 0.35
"""An error counts as no more: an odd run says nothing."""
ROUNDS = 5
SHARES = tuple(number / 10 for number in range(11))


def another_model(one: Shared, other: Shared) -> bool:
    """Are they unlike models, or lengths, of one family?"""
    return same_family(one, other) and not same_model(one, other)


def with_sizes(values: Sequence[float]) -> Callable[[], object]:
    """The catalog's spreads with others for runs."""
    base = catalog.spreads()
    update = {
        name: getattr(base.runs, name).model_copy(update={"value": value})
        for name, value in zip(NAMES, values, strict=True)
    }
    found = base.model_copy(update={"runs": base.runs.model_copy(update=update)})
    return lambda: found


def loss(steps: Sequence[Step]) -> float:
    """Error after one step over that before, each kind of partner and each source alike."""
    found, partners = [], Partners(steps)
    for kin in (same_model, another_model, other_family):
        before: dict[str, list[float]] = defaultdict(list)
        after: dict[str, list[float]] = defaultdict(list)
        for step, errors in zip(steps, partners.errors(kin), strict=True):
            if errors:
                before[step.source].append(min(LARGEST, abs(math.expm1(step.log_off))))
                after[step.source].append(fmean(min(LARGEST, abs(one)) for one in errors))
        means = [fmean(map(fmean, pooled(group.items()).values())) for group in (after, before)]
        found.append(means[0] / means[1])
    return fmean(found)


def most_helpful(sets: Sequence[Sequence[Step]]) -> dict[str, float]:
    """The spreads by name: one after the other is moved while that helps."""

    def cost(values: Sequence[float]) -> float:
        off = [math.log(one / guess) / WITHIN for one, guess in zip(values, GUESS, strict=True)]
        with patch.object(catalog, "spreads", with_sizes(values)):
            return sum(map(loss, sets)) + PULL * sum(one**2 for one in off)

    values, moves = list(GUESS), [1.4] * len(NAMES)
    best = cost(values)
    for _ in range(ROUNDS):
        for place in range(len(NAMES)):
            for factor in (moves[place], 1 / moves[place]):
                moved = [*values]
                moved[place] *= factor
                value = cost(moved)
                if value < best:
                    values, best = moved, value
                    break
            else:
                moves[place] = math.sqrt(moves[place])
    return dict(zip(NAMES, values, strict=True))


def carried(steps: Sequence[Step], sizes: Mapping[str, float]) -> float:
    """Share of the effect of a machine that helps most in another precision."""
    with patch.object(catalog, "spreads", with_sizes([sizes[name] for name in NAMES])):
        effects = [
            fit_of_one(one.shared, one.log_off, machine_spread(was_seen=one.seen)).log_speed()[0]
            for one in steps
        ]

    def error(share: float) -> float:
        sources: dict[str, list[float]] = defaultdict(list)
        for step in steps:
            (gpu, precision, *others) = step.machine
            off = [
                min(LARGEST, abs(step.log_off - share * effect))
                for one, effect in zip(steps, effects, strict=True)
                if (one.machine[0], *one.machine[2:]) == (gpu, *others)
                and one.machine[1] != precision
            ]
            if off:
                sources[step.source].append(fmean(off))
        return fmean(map(fmean, pooled(sources.items()).values()))

    return min(SHARES, key=error)


def run_spreads(
    rows: Sequence[Row], left_out: FloatColumn, fitted: FloatColumn
) -> dict[str, float]:
    """All of `[runs]` from log(predicted / measured) of both kinds of constants."""
    unseen = left_out_steps(rows, left_out)
    seen = [
        replace(one, log_off=off, seen=True)
        for one, off in zip(unseen, fitted.tolist(), strict=True)
    ]
    sizes = most_helpful([unseen, seen])
    return {**sizes, "carried": carried(unseen, sizes)}
