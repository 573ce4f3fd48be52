"""The chance that a layout fits: what the model got wrong on published peaks.

    ln(peak / estimated peak) = scale * t,   t of Student's distribution with 3 degrees of freedom

Most peaks are within 2 %, a few 10 % off or more: 3 degrees have both. The scale of a regime is in
`catalog/intervals.toml`, which `make accuracy` writes (`costmodel.validate.peaks`). A regime is the
precision of the products; of 9 ways to part the peaks (library, kind of model, pipeline,
recomputation, pairs of them) none makes sources that were left out likelier. Runtimes of whose
library no peak was measured have the widest.
"""

import math

from trainplan.costmodel import catalog
from trainplan.costmodel.job import LOW_PRECISION, Job, Precision

FIT_CHANCE = 0.8
"""Chance to fit of what a search takes, where none is stated.

Source: labels of published runs (docs/explanation/cost-model.md): fewer wrong than at 0.85 or 0.9.
"""
WIDE, LOW, NO_PEAKS = "16-bit or wider", "8-bit or narrower", "no peaks"
ROOT_3 = math.sqrt(3.0)
STEPS = 60
"""Halvings of a margin: to below one part in 1e18."""


def peak_regime(precision: Precision) -> str:
    """Which published peaks show how far one may be off, where some of the library are known."""
    return LOW if precision in LOW_PRECISION else WIDE


def peak_scale(job: Job) -> float:
    """Scale of ln(peak / estimated peak), in log units."""
    known = catalog.intervals()
    library = known.libraries.get(job.runtime, job.runtime)
    seen = library in known.peaks.libraries
    return known.peaks.scales[peak_regime(job.training.precision) if seen else NO_PEAKS]


def fit_chance(used_bytes: float, capacity_bytes: float, scale: float) -> float:
    """Chance that a peak estimated as so many bytes is within the capacity.

    Source: the distribution function of Student's t with 3 degrees of freedom, in closed form:
    1/2 + (x / (1 + x^2) + atan x) / pi with x = t / sqrt 3.
    """
    x = math.log(capacity_bytes / used_bytes) / scale / ROOT_3
    return 0.5 + (x / (1 + x * x) + math.atan(x)) / math.pi


def margin_of(job: Job, chance: float) -> float:
    """Share of the memory that must stay free for a layout to fit with a chance, to 0.001.

    Source: `fit_chance`, solved by halving; below one half the share is 0.
    """
    low, high, scale = 0.0, 1.0, peak_scale(job)
    for _ in range(STEPS):
        middle = (low + high) / 2
        enough = fit_chance(1 - middle, 1.0, scale) >= chance
        low, high = (low, middle) if enough else (middle, high)
    return round(high, 3) if chance > 0.5 else 0.0
