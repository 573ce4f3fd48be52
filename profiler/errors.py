"""The error of a measurement that cannot go on."""

from trainplan.costmodel.base import PlanError


class ProfilerError(PlanError):
    """A machine, a process or a clock that does not let itself be measured."""
