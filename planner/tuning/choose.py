"""Which contender to run next: the one after which the best measured is expected to be fastest.

With a trial left after it, what it teaches counts, too: a contender is judged by the best of both
trials, over what its own may show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.measured.varied import MEANINGS, SCALARS
from trainplan.planner.tuning.belief import Belief
from trainplan.planner.tuning.memory import normal_below

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
"""Of an expectation over a normal variable; the weights are of no unit."""
JUDGED = 40
"""Contenders that are judged by two trials: those with most to gain by one. Source: assumed."""
NOTHING_MEASURED = 1.0
"""Log units above the fastest forecast: what counts as the best before any is measured.

Source: assumed; so slow that a trial that fails is the worst of all.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """A contender, and why."""

    row: int
    gain: float
    """Expected, as a fraction of the best measured step, of this trial alone."""
    best_by_gain: bool
    """No other has more to gain by one trial."""


def choose(
    belief: Belief, runs: FloatColumn, open_rows: BoolColumn, best: float | None, *, last: bool
) -> Choice:
    """The next trial among the open contenders.

    `runs` are the probabilities that each fits and runs; `best` is the logarithm of the best
    measured step; `last` says that no other trial follows.
    """
    nothing = float(belief.log_seconds[open_rows].min()) + NOTHING_MEASURED
    reference = nothing if best is None else best
    gains = runs * expected_gain(belief.log_seconds, belief.spread, reference)
    gains[~open_rows] = -1.0
    first = int(np.argmax(gains))
    if last or open_rows.sum() == 1:
        return Choice(first, float(gains[first]), best_by_gain=True)
    judged = np.argsort(-gains, kind="stable")[: min(JUDGED, int(open_rows.sum()))]
    both = _of_two_trials(belief, runs, gains, judged, reference)
    row = int(judged[int(np.argmax(both))])
    return Choice(row, float(gains[row]), best_by_gain=row == first)


def expected_gain(mean: FloatColumn, spread: FloatColumn, best: float | FloatColumn) -> FloatColumn:
    """Expected shortening of the best step, as a fraction of it, by a log-normal step.

    Source: derived; E max(0, 1 - exp(x - best)) of a normal x, as the price of a put option.
    """
    spread = np.maximum(spread, 1e-9)
    place = (best - mean) / spread
    shorter = np.exp(np.minimum(mean - best + spread**2 / 2, 50.0))
    return np.maximum(0.0, normal_below(place) - shorter * normal_below(place - spread))


def _of_two_trials(
    belief: Belief, runs: FloatColumn, gains: FloatColumn, judged: IntColumn, best: float
) -> FloatColumn:
    """Expected shortening by a trial of each judged contender and the best one after it.

    Source: derived; Gauss-Hermite over the first result, under which all others are normal with
    mean m + c z / s and variance v - c^2 / s^2 (c their covariance with it, s its spread).
    """
    spread = np.maximum(belief.spread[judged], 1e-9)
    mean, run, alone = belief.log_seconds[judged], runs[judged], gains[judged]
    pulls = belief.between(judged) / spread[:, None]
    found = np.zeros(len(judged))
    for place, pull in enumerate(pulls):
        left = np.sqrt(np.maximum(spread**2 - pull**2, 0.0))
        after = np.minimum(mean[place] + NODES * spread[place], best)
        more = run * expected_gain(mean + np.outer(NODES, pull), left, after[:, None])
        more[:, place] = 0.0
        ran = 1 - np.exp(after - best) * (1 - more.max(axis=1))
        failed = float(np.delete(alone, place).max(initial=0.0))
        found[place] = run[place] * (WEIGHTS @ ran) / WEIGHTS.sum() + (1 - run[place]) * failed
    return found


def reason(belief: Belief, choice: Choice, best: float | None) -> str:
    """One line: what the trial can change."""
    row = choice.row
    if best is None:
        return "fastest by the model, of those that likely fit"
    shorter = float(np.expm1(best - belief.log_seconds[row]))
    if choice.best_by_gain and shorter > 0.0:
        return f"expected {100 * shorter:.1f} % faster than the best measured"
    if choice.best_by_gain:
        low = belief.log_seconds[row] - 1.2816 * belief.spread[row]
        return f"one time in ten {100 * np.expm1(best - low):.1f} % faster than the best measured"
    return f"tells most of the {told(belief, row)}, which decides among the fastest"


def told(belief: Belief, row: int) -> str:
    """The scalar that a trial of a contender narrows most."""
    share = belief.cross[row] ** 2 / np.maximum(np.diag(belief.scalars_covariance), 1e-18)
    return MEANINGS[SCALARS[int(np.argmax(share))]]
