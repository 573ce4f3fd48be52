"""What the trials of a run show, all taken together: which layouts are open, and what is believed.

It is worked out anew from the trials, so an earlier run counts as if it had just ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import log, sqrt

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.measured import SCALARS, processes_per_core
from trainplan.planner.tuning.belief import Belief, Measurements, Prior, prior_of, prior_spreads
from trainplan.planner.tuning.contenders import Contenders
from trainplan.planner.tuning.memory import MemoryBelief, memory_prior
from trainplan.planner.tuning.pricing import changes_at, linear, prices

MOST_LOST = 2
"""Nodes lost under one layout before it is left alone: it is repeated once. Source: assumed."""
FAR = 1.0
"""Spreads that a scalar has moved when contenders are priced anew around where it is.

Source: assumed; over a spread the slopes of `Linear` are taken."""
MOST_ADDED = 0.3
"""Of the fastest step: the spread of the seconds added to every step is no more.

Source: assumed; log step times are taken to be lines, which they are not for more.
"""
SHARED_CORES = 4.0
"""Times as far from the model as published runs are, where processes share cores. Source: measured;
102 layouts of four processes on two cores are spread by 0.5 in log units about their price.
"""
RUNS_BEFORE, FAILS_BEFORE = 9.0, 0.5
"""Similar trials that ran, and that did not, which count as seen before the first.

Source: assumed; after one crash a layout like it still runs in nine cases of ten or so.
"""
LIKELY = 0.9
"""Of the largest probability to run: what is tried while nothing has run.

Source: assumed; one layout that runs is worth more than the chance of a faster one.
"""
NOISY = 0.05
"""Noise from trial to trial above which the first two are run again. Source: assumed; layouts that
are worth a trial differ by less, so that one trial of each does not rank them."""
FIRST = 2
"""So many of the ranking."""
NORMAL_HALF = 0.674
"""Deviations of a normal variable within which half of it lies."""
FAILURES = ("crash", "hang", "not_a_number")
"""Endings that show something of a layout but its memory."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that ended, and which contender it ran."""

    row: int
    trial: Trial
    outcome: Outcome


@dataclass(frozen=True)
class Knowledge:
    """Contenders, their prior, and the trials that ended."""

    contenders: Contenders
    prior: Prior
    planned_log_seconds: FloatColumn
    """As planned, before any trial."""
    ended: tuple[Ended, ...] = ()

    def after(self, ended: Ended) -> Knowledge:
        """With one more trial."""
        return replace(self, ended=(*self.ended, ended))

    @cached_property
    def belief(self) -> Belief:
        """Of the step times."""
        return self.prior.after(self._measurements)

    @property
    def _measurements(self) -> Measurements:
        some = [one for one in self.ended if one.outcome.step_time_s]
        return Measurements(
            np.array([one.row for one in some], dtype=np.int64),
            np.log([one.outcome.step_time_s or 1.0 for one in some]),
            np.array([noise(one.outcome, self.noise) for one in some]),
        )

    @cached_property
    def noise(self) -> float:
        """Standard deviation of a log step from trial to trial, beyond that of a quiet machine.

        Source: derived; the load of a machine outlasts a step, so trials are taken to differ as
        much as the steps of one do, by their median over the trials. That counts as one degree of
        freedom more than those of layouts that ran more than once: a conjugate prior of a variance.
        """
        some = [one for one in self.ended if one.outcome.step_time_s]
        guess = np.median([step_spread(one.outcome) for one in some]) if some else 0.0
        own = catalog.spreads().layouts.trial.value
        square, freedom = max(0.0, float(guess**2) - own**2), 1
        for row in {one.row for one in some} if square else ():
            logs = [log(one.outcome.step_time_s or 1.0) for one in some if one.row == row]
            square += float(np.var(logs)) * len(logs)
            freedom += len(logs) - 1
        return sqrt(square / freedom)

    @cached_property
    def unconfirmed(self) -> tuple[int, ...]:
        """Of the first two measured those that ran once, where trials differ from each other."""
        seconds = self.belief.log_seconds
        rows = sorted({one.row for one in self.ended if one.outcome.step_time_s}, key=seconds.item)
        if self.noise <= NOISY or len(rows) < FIRST:
            return ()
        ran = [one.row for one in self.ended]
        return tuple(row for row in rows[:FIRST] if ran.count(row) == 1)

    @cached_property
    def memory(self) -> MemoryBelief:
        """Of what fits."""
        every = self.contenders.memory_bytes
        found = memory_prior(self.prior.linear.prices.used_bytes, every)
        for one in self.ended:
            peak = one.outcome.peak_reserved_bytes
            if one.outcome.ending == "out_of_memory":
                found = found.after_out_of_memory(one.row)
            elif one.outcome.ending == "measured" and peak:
                found = found.after_peak(one.row, log(peak / every[one.row]))
            elif one.outcome.ending == "measured":
                found = found.after_fit(one.row)
        return found

    @cached_property
    def runs(self) -> FloatColumn:
        """Probability of every contender that it fits and runs.

        Source: derived; Beta distribution of the share of layouts that run, in which a trial counts
        by its likeness to the layout.
        """
        stated = [one for one in self.ended if one.outcome.ending in ("measured", *FAILURES)]
        good = np.array([one.outcome.ending == "measured" for one in stated], dtype=float)
        alike = self.prior.alike[:, [one.row for one in stated]]
        ran, in_all = RUNS_BEFORE + alike @ good, RUNS_BEFORE + FAILS_BEFORE + alike.sum(axis=1)
        return np.asarray(self.memory.probabilities() * np.asarray(ran / in_all))

    @cached_property
    def open_rows(self) -> BoolColumn:
        """Contenders that were not tried, or whose node was lost once."""
        found = np.ones(len(self.contenders), dtype=bool)
        for row, count in self._lost.items():
            found[row] = count < MOST_LOST
        found[[one.row for one in self.ended if one.outcome.ending != "lost_node"]] = False
        return found

    @property
    def promising_rows(self) -> BoolColumn:
        """Open contenders, of which those that likely run where only failures are known so far."""
        failed = any(one.outcome.ending != "lost_node" for one in self.ended)
        if self.best or not failed or not self.open_rows.any():
            return self.open_rows
        runs = np.where(self.open_rows, self.runs, 0.0)
        return np.asarray(self.open_rows & (runs >= LIKELY * runs.max()))

    @property
    def _lost(self) -> dict[int, int]:
        rows = [one.row for one in self.ended if one.outcome.ending == "lost_node"]
        return {row: rows.count(row) for row in rows}

    @property
    def to_repeat(self) -> int | None:
        """The contender whose node was lost in the last trial, where it may run once more."""
        last = self.ended[-1] if self.ended else None
        lost = last is not None and last.outcome.ending == "lost_node"
        return last.row if last and lost and self.open_rows[last.row] else None

    @property
    def best(self) -> Ended | None:
        """Of those that were measured the one that is believed the fastest.

        Of near ties a trial's noise decides which looks faster: what the others show of it counts.
        """
        some = [one for one in self.ended if one.outcome.step_time_s]
        return min(some, key=lambda one: float(self.belief.log_seconds[one.row]), default=None)

    def seconds_of(self, row: int) -> float:
        """Measured step time of a contender; of several trials the geometric mean."""
        times = [one.outcome.step_time_s for one in self.ended if one.row == row]
        some = [time for time in times if time]
        return float(np.prod(some) ** (1 / len(some)))

    @property
    def counted(self) -> int:
        """Trials of the budget: one that is repeated for a lost node counts once."""
        ended = sum(one.outcome.ending != "lost_node" for one in self.ended)
        return ended + sum(count >= MOST_LOST for count in self._lost.values())

    @property
    def seconds(self) -> float:
        """That all trials took."""
        return sum(one.outcome.seconds for one in self.ended)

    def priced_near(self, measured: Measured = NOTHING) -> Knowledge:
        """The same, priced around the likeliest scalars where these have moved far."""
        at, spreads = self.belief.scalars, self.prior.spreads
        moved = np.abs(at - self.prior.linear.at) / spreads
        if moved[1:].max() <= FAR:
            return self
        at = np.array([*at[:-1], max(0.0, at[-1])])
        here = prices(self.contenders, changes_at(at), measured)
        near = linear(self.contenders, here, at, spreads, measured)
        return replace(self, prior=replace(self.prior, linear=near))


def knowledge_of(contenders: Contenders, measured: Measured = NOTHING) -> Knowledge:
    """What is known before any trial."""
    nothing = np.zeros(len(SCALARS))
    planned = prices(contenders, changes_at(nothing), measured)
    spreads = prior_spreads()
    least = MOST_ADDED * float(np.exp(planned.log_seconds.min()))
    spreads[-1] = min(spreads[-1], least)
    priced = linear(contenders, planned, nothing, spreads, measured)
    wider = SHARED_CORES if processes_per_core(measured.profile) > 1 else 1.0
    prior = prior_of(contenders, priced, spreads, wider)
    return Knowledge(contenders, prior, planned.log_seconds)


def noise(outcome: Outcome, between: float) -> float:
    """Standard deviation of the logarithm of a measured step, from the mean of many runs.

    The steps of one run share what differs between runs, so it is never less than that, which is
    `between` and what a machine of its own has. Source: derived; the mean of normal steps is off by
    the deviation of one over the root of their number.
    """
    own = catalog.spreads().layouts.trial.value
    return float(np.sqrt(own**2 + between**2 + step_spread(outcome) ** 2 / max(1, outcome.steps)))


def step_spread(outcome: Outcome) -> float:
    """Standard deviation of the logarithm of one step of a trial; 0 where nothing shows it.

    Source: of a normal sample half lies within 0.674 deviations of the median (Rousseeuw and Croux,
    JASA 88, 1993, page 1273), and the range of n is about 2 sqrt(ln n) deviations (Cramer,
    Mathematical Methods of Statistics, 1946, section 28.6).
    """
    low, high, steps = outcome.lowest_s, outcome.highest_s, outcome.steps
    if outcome.spread_fraction is not None:
        return outcome.spread_fraction / NORMAL_HALF
    return log(high / low) / 2 / sqrt(log(steps)) if low and high and steps > 1 else 0.0
