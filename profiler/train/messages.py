"""What the command and the process that forks the ranks say to each other, one JSON line each."""

from pydantic import PositiveFloat, PositiveInt

from trainplan.costmodel.documents import Ending
from trainplan.costmodel.spec import Spec
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.train.request import RankReport, TrainingRequest


class TrainOrder(Spec):
    """Train this with so many ranks."""

    request: TrainingRequest
    nproc: PositiveInt
    deadline_seconds: PositiveFloat
    """From the fork of the ranks to the last report."""


class Answered(Spec):
    """How that ended."""

    ending: Ending
    reason: str = ""
    reports: tuple[RankReport, ...] = ()
    """Of all ranks, in order, if it was measured."""


class TrainingFailedError(ProfilerError):
    """Ranks that did not come to their end."""

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason
