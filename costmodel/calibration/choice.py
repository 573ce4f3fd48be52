"""Which scalars measured steps can identify, by how well they predict steps left out of the fit."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.calibration.scalars import SPEED_ALONE, Steps, fit_of, identified_by
from trainplan.costmodel.columns import BoolColumn

LEAST_LAYOUTS = 3
"""Layouts it takes to fit more than the speed.

Source: bandwidth and fixed seconds are two scalars more than the speed, which two runs fit exactly;
a third one is the first that tests them.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which scalars are fitted, and the error of steps left out of the fit."""

    free: BoolColumn
    error: float | None


def choice_of(steps: Steps) -> Choice:
    """The speed alone, or all scalars the runs identify if these predict left-out steps better.

    Two cannot identify it: a second scalar explains any two.
    """
    count = len(set(steps.effects.steps.tolist()))
    if count == 1:
        return Choice(SPEED_ALONE, None)
    alone = _left_out_error(steps, lambda _: SPEED_ALONE)
    identified = identified_by(steps)
    if count < LEAST_LAYOUTS or not identified[1:].any():
        return Choice(SPEED_ALONE, alone)
    more = _left_out_error(steps, identified_by)
    return Choice(identified, more) if more < alone else Choice(SPEED_ALONE, alone)


def _left_out_error(steps: Steps, choose: Callable[[Steps], BoolColumn]) -> float:
    """Median error of the steps of each layout predicted from the others."""
    names = steps.effects.steps
    found = np.zeros(len(names))
    for name in dict.fromkeys(names.tolist()):
        rest, held = steps.take(names != name), steps.take(names == name)
        fit = fit_of(rest, choose(rest))
        found[names == name] = np.exp(held.log_predicted(fit.theta)) / held.measured - 1
    return float(np.median(np.abs(found)))
