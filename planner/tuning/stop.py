"""What untried contenders may bring, and with what probability."""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.planner.tuning.belief import Belief, samples

DRAWS = 500
"""Source: assumed; a probability of 0.1 is then known to 0.013."""
SEED = 0
REACH, MOST = 3.0, 100
"""Standard deviations within which a contender may beat the best, and how many are drawn.

Source: assumed; a normal variable is three deviations below its mean in one case in 700.
"""


@dataclass(frozen=True, slots=True)
class Untried:
    """Probabilities of contenders that are open; 0 of others."""

    probability: float
    """That one of them is faster than the best measured by what is worth a trial."""
    gain: float
    """Expected shortening of the best measured step if all were tried, as a fraction."""
    faster: FloatColumn
    """That each is faster than the best measured by what is worth a trial."""
    fastest: FloatColumn
    """That each runs, is faster than the best measured, and no other is faster by what is worth a
    trial."""


def untried(
    belief: Belief, runs: FloatColumn, open_rows: BoolColumn, best_row: int | None, worth: float
) -> Untried:
    """Score what is open, by draws of all step times at once and of what runs.

    Source: derived; each probability is the share of the draws in which it holds, and the
    gain is the mean over the draws of what the fastest that runs would save.
    """
    rows = _within_reach(belief, open_rows, best_row)
    faster, fastest = np.zeros(len(runs)), np.zeros(len(runs))
    if not len(rows):
        return Untried(0.0, 0.0, faster, fastest)
    measured = [] if best_row is None else [best_row]
    drawn = samples(belief, np.array([*measured, *rows]), DRAWS, SEED)
    running = np.random.default_rng(SEED + 1).random((DRAWS, len(rows))) < runs[rows]
    best = drawn[:, :1] if measured else np.full((DRAWS, 1), np.inf)
    seconds = np.where(running, drawn[:, len(measured) :], np.inf)
    ahead = seconds < best + np.log1p(-worth)
    least = np.minimum(seconds.min(axis=1, keepdims=True), best)
    faster[rows] = ahead.mean(axis=0)
    near = (seconds <= least - np.log1p(-worth)) & (seconds < best) & running
    fastest[rows] = near.mean(axis=0)
    gain = 1 - np.exp(least - best) if measured else np.ones(1)
    return Untried(float(ahead.any(axis=1).mean()), float(gain.mean()), faster, fastest)


def _within_reach(belief: Belief, open_rows: BoolColumn, best_row: int | None) -> IntColumn:
    """Open contenders that may be faster than the best, the likeliest first."""
    spread = np.maximum(belief.spread, 1e-9)
    if best_row is None:
        ahead = -belief.log_seconds
    else:
        ahead = (belief.log_seconds[best_row] - belief.log_seconds) / spread
        open_rows = open_rows & (ahead > -REACH)
    rows = np.flatnonzero(open_rows)
    return rows[np.argsort(-ahead[rows], kind="stable")][:MOST]
