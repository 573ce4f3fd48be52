"""What is believed of memory: which contenders fit.

    log peak = log of the model's + error of the machine + error of the layout

Both errors are normal. That of the machine is known after a trial from its measured peak, or from
the bound that running, or running out of memory, puts on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.columns import FloatColumn

POINTS = 161
REACH = 8.0
"""Standard deviations of the error of the machine that the points span to either side.

Source: assumed; a normal density beyond is less than 1e-14 of its peak.
"""


@dataclass(frozen=True, slots=True)
class MemoryBelief:
    """Weights of the errors of the machine at some points, and what is certain of layouts."""

    log_filled: FloatColumn
    """Logarithm of the peak of the model over the memory of the GPU, by contender."""
    weights: FloatColumn
    fitted: tuple[int, ...] = ()
    """Contenders that ran."""
    refused: tuple[int, ...] = ()
    """Contenders that ran out of memory."""

    @property
    def points(self) -> FloatColumn:
        """Errors of the machine, log units."""
        return np.linspace(-REACH, REACH, POINTS) * catalog.spreads().layouts.memory.value

    @property
    def error(self) -> tuple[float, float]:
        """Mean and standard deviation of the error of the machine."""
        mean = float(self.weights @ self.points)
        return mean, float(np.sqrt(self.weights @ (self.points - mean) ** 2))

    def after_peak(self, row: int, log_peak: float) -> MemoryBelief:
        """The belief after a trial whose peak, over the memory of the GPU, was measured."""
        spread = catalog.spreads().layouts.memory_own.value
        off = (log_peak - self.log_filled[row] - self.points) / spread
        return self._weighed(np.exp(-0.5 * (off**2 - (off**2).min()))).after_fit(row)

    def after_fit(self, row: int) -> MemoryBelief:
        """The belief after a trial that ran: its peak is below the memory of the GPU."""
        found = self._weighed(self._fits_at(row))
        return MemoryBelief(self.log_filled, found.weights, (*self.fitted, row), self.refused)

    def after_out_of_memory(self, row: int) -> MemoryBelief:
        """The belief after a trial that ran out of memory: its peak is above it."""
        found = self._weighed(1.0 - self._fits_at(row))
        return MemoryBelief(self.log_filled, found.weights, self.fitted, (*self.refused, row))

    def probabilities(self) -> FloatColumn:
        """Of every contender, that it fits."""
        spread = catalog.spreads().layouts.memory_own.value
        every = normal_below(-(self.log_filled[:, None] + self.points) / spread) @ self.weights
        every[list(self.fitted)] = 1.0
        every[list(self.refused)] = 0.0
        return np.asarray(every)

    def _fits_at(self, row: int) -> FloatColumn:
        spread = catalog.spreads().layouts.memory_own.value
        return normal_below(-(self.log_filled[row] + self.points) / spread)

    def _weighed(self, likelihood: FloatColumn) -> MemoryBelief:
        weights = self.weights * np.maximum(likelihood, 1e-12)
        return MemoryBelief(self.log_filled, weights / weights.sum(), self.fitted, self.refused)


def memory_prior(used_bytes: FloatColumn, memory_bytes: FloatColumn) -> MemoryBelief:
    """Before any trial."""
    weights = np.exp(-0.5 * np.linspace(-REACH, REACH, POINTS) ** 2)
    return MemoryBelief(np.log(used_bytes / memory_bytes), weights / weights.sum())


def normal_below(values: FloatColumn) -> FloatColumn:
    """Probability that a standard normal variable is below each value, to 1e-7.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 1964, equation 7.1.26: the
    error function as a polynomial of 1 / (1 + p x) times exp(-x^2), off by 1.5e-7 at most.
    """
    size = np.abs(values) / np.sqrt(2.0)
    t = 1 / (1 + 0.3275911 * size)
    powers = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    above = 0.5 * powers * np.exp(-(size**2))
    return np.asarray(np.where(values > 0, 1 - above, above), dtype=np.float64)
