"""How far a tuning run goes."""

from pydantic import Field, PositiveFloat, PositiveInt

from trainplan.costmodel.spec import Spec
from trainplan.planner.plan import SearchOptions


class TuneOptions(Spec):
    """When to stop, and which layouts may be tried."""

    trials: PositiveInt = 8
    """Trials at most, those of an earlier run included; a repeat for a lost node is free."""
    seconds: PositiveFloat | None = None
    """No trial is started once the trials took so long."""
    settled: float = Field(default=0.9, gt=0.0, lt=1.0)
    """It stops when, with this probability, no untried layout is faster by `worth`."""
    worth: float = Field(default=0.01, gt=0.0, lt=1.0)
    """A layout counts as faster when its step is shorter by this fraction."""
    search: SearchOptions = SearchOptions()
    """What may be tried: choices fixed and excluded, settings, trust."""
