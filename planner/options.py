"""What a search must respect besides the job."""

from __future__ import annotations

from costmodel.spec.base import Spec
from planner.constraints import Choice


class SearchOptions(Spec):
    """What a search must respect besides the job."""

    memory_margin: float = 0.05
    """Share of device memory that must stay free."""
    top: int = 10
    """Alternatives to list."""
    fix: tuple[Choice, ...] = ()
    exclude: tuple[Choice, ...] = ()

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Both kinds in order."""
        return (*self.fix, *self.exclude)
