"""How far a step time may be off."""

from __future__ import annotations

import math
from dataclasses import dataclass

from costmodel.machine import Machine
from costmodel.spec.job import Job

LEVEL = 0.8
"""Share of measured steps that should fall inside the interval."""
DENSE = 0.19
"""Half-width in log units for a dense model on a GPU whose constants were fitted.

Source: 80 % quantile of |ln(predicted / measured)| of the step time over 214 published runs with
fused attention, priced as this release prices; docs/explanation/constants.md.
"""
MIXTURE_OF_EXPERTS = 0.28
"""As above for a mixture of experts. Source: as DENSE, 89 published runs."""
UNKNOWN_MACHINE = 0.30
"""As above on a GPU without fits of its own. Source: assumed; wider than both."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Range that holds the measured step time with probability `level`."""

    level: float
    step_time_low_s: float
    step_time_high_s: float


def step_time_interval(job: Job, machine: Machine, step_seconds: float) -> Interval:
    """Interval around an estimate, symmetric in log units."""
    products = [p for p in machine.provenance if "matrix products" in p.quantity]
    fitted = all(p.kind in ("fitted", "measured") for p in products)
    width = UNKNOWN_MACHINE
    if fitted:
        width = MIXTURE_OF_EXPERTS if job.model.moe else DENSE
    factor = math.exp(width)
    return Interval(LEVEL, step_seconds / factor, step_seconds * factor)
