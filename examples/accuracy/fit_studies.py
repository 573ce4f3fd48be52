"""Every study predicted by a fit that never saw it: what most intervals are made of."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from fit_predict import residuals
from fit_problem import Problem


def without_studies(problem: Problem, names: Sequence[str]) -> dict[str, float]:
    """ln(predicted / measured) of every fitted run by its id, its study left out.

    A study is the runs of one model in one source: their errors go together, those of other models
    on the same machine are still known.
    """
    rows, found = problem.rows, {}
    studies: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.weight:
            studies[row.run.source_group, row.run.model.name].append(index)
    for members in studies.values():
        keep = np.ones(len(rows), dtype=bool)
        keep[members] = False
        theta = dict(zip(names, problem.solve(keep, largest=math.inf), strict=True))
        left = [rows[index] for index in members]
        for row, miss in zip(left, residuals(left, theta), strict=True):
            found[row.run.id] = round(float(miss), 5)
    return found
