"""A number and where it comes from."""

from __future__ import annotations

from trainplan.costmodel.spec.base import Spec


class Sourced(Spec):
    """A catalog number with its source; a number without one is refused."""

    value: float
    source: str
