"""When to stop: what may still be faster than the best measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, FloatColumn
from trainplan.planner.tuning.belief import Belief, samples

DRAWS = 500
"""Source: assumed; a probability of 0.1 is then known to 0.013."""
SEED = 0
REACH, MOST = 3.0, 100
"""Standard deviations within which a contender may beat the best, and how many are drawn.

Source: a normal variable is beyond in one case in 700.
"""


@dataclass(frozen=True, slots=True)
class Untried:
    """What untried contenders may bring."""

    probability: float
    """That one of them is faster than the best measured by what is worth a trial."""
    gain: float
    """Expected shortening of the best measured step if all were tried, as a fraction."""
    each: FloatColumn
    """Probability of every contender; 0 of those that are not open."""


def untried(
    belief: Belief, runs: FloatColumn, open_rows: BoolColumn, best_row: int | None, worth: float
) -> Untried:
    """Judge what is open, by draws of all step times at once and of what runs.

    Source: derived; the share of the draws in which some contender that runs is faster.
    """
    each = np.zeros(len(runs))
    if not open_rows.any():
        return Untried(0.0, 0.0, each)
    if best_row is None:
        return Untried(1.0, 1.0, each)
    ahead = (belief.log_seconds[best_row] - belief.log_seconds) / np.maximum(belief.spread, 1e-9)
    rows = np.flatnonzero(open_rows & (ahead > -REACH))
    if not len(rows):
        return Untried(0.0, 0.0, each)
    rows = rows[np.argsort(-ahead[rows], kind="stable")][:MOST]
    drawn = samples(belief, np.array([best_row, *rows]), DRAWS, SEED)
    running = np.random.default_rng(SEED + 1).random((DRAWS, len(rows))) < runs[rows]
    shorter = np.where(running, drawn[:, 1:] - drawn[:, :1], np.inf)
    faster = shorter < np.log1p(-worth)
    gain = 1 - np.exp(np.minimum(shorter.min(axis=1), 0.0))
    each[rows] = faster.mean(axis=0)
    return Untried(float(faster.any(axis=1).mean()), float(gain.mean()), each)
