"""How far measured peaks are from their estimates: the scales of `costmodel.uncertainty.peaks`.

Sources weigh the same, as in `costmodel.validate.residuals`, and the runs of all regimes count as
`WIDER` sources more than those of a regime. Then all scales are widened until `HELD` of the runs of
sources that were left out are below the peak which such a chance allows: peaks of a source err
together, and the reader is another source.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.documents import Peaks
from trainplan.costmodel.uncertainty import NO_PEAKS, fit_chance, peak_regime
from trainplan.costmodel.validate.memory_scores import PeakRow
from trainplan.costmodel.validate.residuals import Miss, quantile, source_weights

WIDER = 0.5
"""Sources that the runs of all regimes count as, more than those of one. Source: that of intervals
of step times until 0.4, where 0.25 to 1 held studies left out in 77 to 84 % of cases."""
LEAST_GIB = 8.0
"""Smaller peaks show nothing of a GPU that is full: what they err by is a fixed part.

Source: assumed; half of the smallest GPU of the catalog that trains language models.
"""
SHARE, T_OF_SHARE = 0.8, 1.638
"""Share of peaks within so many scales of their estimates.

Source: the quantile of Student's t with 3 degrees of freedom at 0.9, 1.6377.
"""
HELD = 0.9
"""Chance at which the widths are set. Source: assumed; what runs out of memory is in the tail."""
FACTORS = tuple(1 + step / 20 for step in range(61))
"""Widths that are tried."""
DIGITS = 4


@dataclass(frozen=True, slots=True)
class PeakMiss:
    """ln(measured / estimated) of one run."""

    regime: str
    library: str
    miss: Miss


def peaks(rows: Iterable[PeakRow]) -> Peaks:
    """The scales of all regimes."""
    misses = tuple(peak_misses(rows))
    factor = next((one for one in FACTORS if held_by(misses, one) >= HELD), FACTORS[-1])
    names = sorted({one.regime for one in misses})
    found = {name: _scale(name, misses, factor) for name in names}
    return Peaks(
        widened=factor,
        left_out=round(held_by(misses, factor), 3),
        libraries=tuple(sorted({one.library for one in misses})),
        scales=found | {NO_PEAKS: max(found.values())},
    )


def peak_misses(rows: Iterable[PeakRow]) -> Iterator[PeakMiss]:
    """One of each run, of reserved or device memory where that was measured."""
    found = {
        row.run.id: row
        for row in sorted(rows, key=lambda row: row.kind != "allocated")
        if row.measured_gib >= LEAST_GIB
    }
    libraries = catalog.intervals().libraries
    for row in found.values():
        run = row.run
        miss = Miss(run.source_group, math.log(row.measured_gib / row.predicted_gib), 1.0)
        library = libraries.get(run.runtime, run.runtime)
        yield PeakMiss(peak_regime(run.training.precision or "bf16"), library, miss)


def held_by(misses: Sequence[PeakMiss], factor: float) -> float:
    """Share, by sources, of peaks that scales without their source hold with a chance of `HELD`."""
    weights = source_weights([one.miss for one in misses])
    known = {
        (source, regime): _scale(regime, [m for m in misses if m.miss.source != source], factor)
        for source, regime in {(one.miss.source, one.regime) for one in misses}
    }
    scales = [known[one.miss.source, one.regime] for one in misses]
    inside = [
        fit_chance(1.0, math.exp(one.miss.value), scale) <= HELD
        for one, scale in zip(misses, scales, strict=True)
    ]
    return float(weights @ np.array(inside) / weights.sum())


def _scale(regime: str, misses: Sequence[PeakMiss], factor: float) -> float:
    """Of the sizes of errors, as an interval is of signed ones."""
    own = [one.miss for one in misses if one.regime == regime]
    wider = [one.miss for one in misses]
    inside, outside = source_weights(own), source_weights(wider)
    weights = np.concatenate([inside, outside * (WIDER / outside.sum())])
    sizes = np.abs([one.value for one in (*own, *wider)])
    return round(factor * quantile(sizes, weights, SHARE) / T_OF_SHARE, DIGITS)
