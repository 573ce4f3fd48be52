"""Matrix products slow down the more of the time they run: clocks under a power limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trainplan.costmodel.blocks.parts import Part, PassSeconds
from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.machine import Machine

REFERENCE_DUTY = 0.75
"""Share of a pass in matrix products at which the sustained speeds of the catalog hold.

Source: a dense layer without tensor parallelism, where most of them were fitted."""
FASTEST, SLOWEST = 0.7, 1.2
"""Bounds of the factor: clocks neither rise above burst nor fall without end. Source: `sustained`
speeds of the catalog, 0.65 to 0.95 of burst."""


def under_power_limit(machine: Machine, part: Part, sync_seconds: float) -> Part:
    """A part of a layer with its products at the clock its duty allows.

    `sync_seconds` are idle in every forward pass, twice that backward. Waiting for launches is not
    counted: a shorter wait must not end in slower products.
    """
    forward = clock_factor(machine, part.forward, sync_seconds)
    backward = clock_factor(machine, part.backward, 2 * sync_seconds)
    return replace(
        part,
        forward=_slowed(part.forward, forward),
        backward=_slowed(part.backward, backward),
        weight=part.weight * backward,
        tail=_slowed(part.tail, forward),
    )


def clock_factor(machine: Machine, seconds: PassSeconds, idle: float) -> FloatColumn:
    """Seconds of products at the duty of this pass over those at the reference duty.

    Dynamic power grows as duty times frequency cubed, so that at a fixed power limit frequency
    falls as duty to the power of a third, less where other parts draw power.
    Measured products ran in bursts too short for the power limit, so none is faster than that.
    Source: with power ~ duty f^3 held constant, f ~ duty^(-1/3) and seconds ~ duty^(1/3); the
    exponent that fits is `power_exponent` of `Constants`.
    """
    duty = (seconds.gemm + seconds.attention) / (seconds.total + idle)
    factor = (duty / REFERENCE_DUTY) ** machine.constants.power_exponent
    fastest = FASTEST if machine.linear.residuals is None else 1.0
    return np.clip(factor, fastest, SLOWEST)


def _slowed(seconds: PassSeconds, factor: FloatColumn) -> PassSeconds:
    return replace(seconds, gemm=seconds.gemm * factor, attention=seconds.attention * factor)
