"""What a plan states of a tower on GPUs of its own."""

from trainplan.costmodel.spec import Spec

NO_EXPORT = (
    "no launch files are written for a tower on GPUs of its own (--fix tower=apart): the layout is "
    "that of the decoder alone"
)


class SplitTried(Spec):
    """One split of the GPUs."""

    tower_gpus: int
    """GPUs that would run the tower."""
    lower_bound_s: float | None
    """No step of this split is shorter; null: nothing fits."""
    step_time_s: float | None
    """Of its best layout; null: its bound is not below the answer, so nothing of it was searched,
    or nothing fits."""


class Apart(Spec):
    """GPUs of a tower and of a decoder, and the step they make; the plan is that of the decoder."""

    tower_gpus: int
    """GPUs that run the tower."""
    decoder_gpus: int
    """GPUs of `cluster`, which run the decoder."""
    tower_tp: int
    """Tensor ranks of the tower."""
    tower_dp: int
    """Replicas of the tower."""
    samples_at_once: int
    """Samples in one pass of a replica of the tower."""
    keeps: str
    """What the tower keeps from forward to backward: all, inputs of layers, or patches."""
    tower_used_bytes: float
    """Device memory of one GPU of the tower."""
    tower_step_s: float
    """A step of the tower alone."""
    decoder_step_s: float
    """A step of the decoder alone: that of `best`."""
    exposed_s: float
    """Seconds that the decoder waits for embeddings and the tower for their gradients."""
    step_time_s: float
    """Of the whole: the slower of the two with what it waits for."""
    lower_bound_s: float
    """No split has a shorter step under the same rules."""
    unified_step_s: float | None
    """Of the best layout with the tower on the first stage of all GPUs; null: none fits."""
    splits: tuple[SplitTried, ...]
    """Every split whose tower fits."""
