"""What a plan states of settings of its runtime: which were varied, and what is proved of them."""

from math import inf

from trainplan.costmodel.spec import Spec
from trainplan.planner.settings import Level


class TriedSettings(Spec):
    """One combination of settings, and what is known of it."""

    options: tuple[str, ...]
    """More than those the job states, as `--option` takes them; none: the runtime's defaults."""
    value: float | None
    """Step time of its best layout; null: none is faster than the answer."""
    lower_bound: float | None
    """No layout of it is faster; null: it has none that another combination does not cover."""


class Settings(Spec):
    """What was searched of the settings that the job does not state."""

    level: Level
    """Which were varied: safe ones, or all."""
    chosen: tuple[str, ...]
    """Those of the answer, as `--option` takes them, which `options` of the document holds too."""
    combinations: tuple[TriedSettings, ...]
    """The fastest first."""

    @property
    def lower_bound(self) -> float:
        """No layout under any combination is faster."""
        bounds = [one.lower_bound for one in self.combinations if one.lower_bound is not None]
        return min(bounds, default=inf)
