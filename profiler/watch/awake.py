"""A clock for those who watch others."""

from collections.abc import Callable
from time import monotonic

GAP_SECONDS = 2.0
"""Whoever looks many times a second and did not for so long was held itself."""


class Awake:
    """Seconds without those in which this process was held, as Slurm and Ctrl-Z hold a whole job.

    Nobody is late by them: who is watched was held as well, or has worked meanwhile.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._last, self._held = now(), 0.0

    def __call__(self) -> float:
        """Of an arbitrary start."""
        at = self._now()
        if at - self._last > GAP_SECONDS:
            self._held += at - self._last
        self._last = at
        return at - self._held
