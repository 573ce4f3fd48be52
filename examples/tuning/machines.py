"""Simulated machines whose hidden constants are drawn from the spreads of published runs."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.measured.varied import SCALARS
from trainplan.planner.tuning.simulated import Faults, MachineDocument

FAULTS = Faults(out_of_memory=0.02, crash=0.02, hang=0.02, lost_node=0.02, slow_node=0.02)
"""One trial in ten."""
WIDEST = 0.5
"""Log units at which the wide tails of the speed are cut."""


NOISE = {
    "shared": {"trial_spread": 0.1, "step_spread": 0.1, "slow_steps": 0.05},
    "loaded": {"trial_spread": 0.35, "step_spread": 0.4, "slow_steps": 0.1},
}
"""Machines that others use, too. On the loaded ones two trials of a layout differ by 2.6 times in
one pair of twenty, and the steps of one trial as much: as on the two busy cores that were measured.
"""


def machine(seed: int, *, layouts: bool, faults: bool, noise: str = "") -> MachineDocument:
    """A machine; with `layouts`, the model is also off from layout to layout."""
    draw, spreads = np.random.default_rng(seed), catalog.spreads()
    widths = np.array([spreads.scalars[name].value for name in SCALARS])
    logs = draw.standard_normal(len(SCALARS)) * widths
    logs[0] = np.clip(draw.standard_cauchy() * widths[0], -WIDEST, WIDEST)
    scalars = {name: float(np.exp(x)) for name, x in zip(SCALARS, logs, strict=True)}
    scalars["fixed_seconds"] = float(abs(logs[-1]))
    sizes = spreads.layouts
    return MachineDocument(
        seed=seed,
        scalars=scalars,
        shared_spread=sizes.shared.value if layouts else 0.0,
        likeness=sizes.likeness.value,
        own_spread=sizes.own.value if layouts else 0.0,
        **({"trial_spread": sizes.trial.value} | NOISE.get(noise, {})),
        memory_factor=float(np.exp(draw.standard_normal() * sizes.memory.value)),
        memory_spread=sizes.memory_own.value if layouts else 0.0,
        faults=FAULTS if faults else Faults(),
    )
