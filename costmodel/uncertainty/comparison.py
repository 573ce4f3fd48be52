"""How far the ratio of two step times of one job may be off, by how unlike its layouts are.

Errors of two layouts of one job go together: what the model has wrong about the machine, it has
wrong in both. The more of a layout changes, the less they share.
"""

from __future__ import annotations

import math

from trainplan.costmodel import catalog
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.uncertainty.intervals import NORMAL_33, NORMAL_80

SIZES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp_replicate", "micro_batch_size")
"""Numbers of which every factor of two counts one; data parallelism follows from them."""
KNOBS = (
    ("zero_stage",),
    ("schedule",),
    ("recompute", "recompute_modules"),
    ("offload", "offload_modules"),
    ("stages",),
)
"""What counts one where it differs."""
MOST = 4.0
"""Unlikeness beyond which errors share no less.

Source: pairs of examples/accuracy/runs.jsonl: by the likelihood of sources left out a limit of 4
is as good as none, limits of 2 and 3 are worse, and beyond 4 the measured spread grows no more.
"""


def unlikeness(one: Layout, other: Layout) -> float:
    """Doublings and choices that lead from one layout to the other; 0: they are the same.

    Source: a convention; `width_factor` says what it is good for.
    """
    if one == other:
        return 0.0
    doublings = sum(abs(math.log2(getattr(one, n) / getattr(other, n))) for n in SIZES)
    return doublings + sum(any(getattr(one, n) != getattr(other, n) for n in k) for k in KNOBS)


def width_factor(one: Layout, other: Layout) -> float:
    """Width of the error of the ratio of two step times, over that of layouts one doubling apart.

    Source: derived; every change adds an error of its own, so their squares add: a random walk. Of
    13 shapes tried on 527 pairs (constant, number of degrees that differ, distance of the terms'
    shares, gap of the predictions) none is likelier on sources left out, however they are weighed.
    """
    return 0.0 if one == other else math.sqrt(min(max(unlikeness(one, other), 1.0), MOST))


def comparison_spread(one: Layout, other: Layout) -> float:
    """Standard deviation of ln(ratio of two step times), of one job in two layouts.

    Source: derived; log ratios are normal, 80 % of them inside the width of `comparison`.
    """
    return _one_change() * width_factor(one, other)


def probability_faster(one: Layout, seconds: float, other: Layout, other_seconds: float) -> float:
    """Probability that a layout runs faster than another of the same job, by their estimates.

    Source: derived, as `comparison_spread`.
    """
    spread = comparison_spread(one, other)
    if spread == 0:
        return 0.5
    return 0.5 * (1 + math.erf(math.log(other_seconds / seconds) / spread / math.sqrt(2)))


def is_near_tie(one: Layout, seconds: float, best: Layout, best_seconds: float) -> bool:
    """Is a layout no slower than the best, or is it the faster one in one of three cases?"""
    return seconds <= best_seconds * (1 + _fraction(comparison_spread(one, best)))


def place_of_tie(inside: bool | None, seconds: float) -> tuple[bool, float]:  # noqa: FBT001
    """Where a near-tie comes among others: those inside what was measured first, then by time.

    Source: measured groups of layouts (docs/accuracy.md, near-ties): it picks no worse than time
    alone in any study; free memory, nodes of a group and near runs do.
    """
    return not inside, seconds


def near_tie_range() -> tuple[float, float]:
    """How much slower a near-tie may look: one change apart, and as unlike as can be."""
    return _fraction(_one_change()), _fraction(_one_change() * math.sqrt(MOST))


def _one_change() -> float:
    """The spread of layouts one doubling apart."""
    return catalog.intervals().comparison.half_width / NORMAL_80


def _fraction(spread: float) -> float:
    """How much slower a layout may look and still be the faster one in one of three cases."""
    return math.expm1(NORMAL_33 * spread)
