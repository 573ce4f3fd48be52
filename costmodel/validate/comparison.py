"""How far the ratio of two step times is off, over pairs of layouts of one job."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from trainplan.costmodel.machine.comparison import width_factor
from trainplan.costmodel.machine.uncertainty import LEVEL
from trainplan.costmodel.spec.evidence.constants import IntervalWidth
from trainplan.costmodel.validate.ranking import jobs_of
from trainplan.costmodel.validate.steps import TimedRow


def comparison_width(rows: Iterable[TimedRow]) -> IntervalWidth:
    """Width of the error of the ratio of two step times, of layouts one doubling apart."""
    errors = [
        abs(_miss(one) - _miss(other)) / width_factor(one.layout, other.layout)
        for group in jobs_of(rows)
        for one, other in combinations(group, 2)
        if one.layout != other.layout
    ]
    width = round(float(np.quantile(errors, LEVEL)), 3)
    return IntervalWidth(half_width=width, runs=len(errors))


def _miss(row: TimedRow) -> float:
    return math.log(row.predicted_s / row.measured_s)
