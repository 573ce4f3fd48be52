"""What is trained, what each rank says of it, and the JSON lines that carry both."""

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainplan.costmodel.documents import Ending
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.spec import Spec
from trainplan.profiler.errors import ProfilerError

TrainerName = Literal["megatron-core", "torch"]


class TrainingRequest(Spec):
    """Some steps of one layout. The cluster of the job has one GPU for each process.

    Weights and data depend on the seed alone, so that layouts of a job train the same.
    """

    trainer: TrainerName
    job: Job
    layout: Layout
    steps: PositiveInt
    seed: int = 0
    count: bool = False
    """Are bytes sent, bytes saved and parameters counted?  Counting takes time."""


class Sent(Spec):
    """Bytes that a rank hands to one operation of one group in a step."""

    group: str
    """`tp`, `dp`, `pp`, `ep`, `etp`, `cp` and the like."""
    operation: str
    """`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `send`."""
    calls: NonNegativeInt
    bytes: NonNegativeInt
    """Of the whole buffer: what is reduced, gathered or scattered, over all calls."""


class RankReport(Spec):
    """What one rank saw."""

    rank: NonNegativeInt
    losses: tuple[float, ...] = ()
    """Mean loss of each step over the global batch; empty on ranks without the last stage."""
    grad_norms: tuple[NonNegativeFloat, ...] = ()
    step_seconds: tuple[PositiveFloat, ...] = ()
    num_parameters: NonNegativeInt | None = None
    sent: tuple[Sent, ...] = ()
    saved_bytes: NonNegativeInt | None = None
    """Activations kept for the backward pass at the peak; storages count once, weights not."""


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
    by_signal: bool = False
    """A rank was ended from outside: nothing is known of what it would have computed."""
    reports: tuple[RankReport, ...] = ()
    """Of all ranks, in order, if it was measured."""


class TrainingFailedError(ProfilerError):
    """Ranks that did not come to their end."""

    def __init__(self, ending: Ending, reason: str, *, by_signal: bool = False) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason
        self.by_signal = by_signal
        """As `Answered.by_signal`."""
