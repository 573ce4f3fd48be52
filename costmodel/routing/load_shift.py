"""What a plan says of steps whose experts are unlike full."""

from trainplan.costmodel.spec import Spec


class StepLoad(Spec):
    """A step that so many of a hundred do not exceed."""

    percentile: float
    """100: the fullest step that was counted."""
    step_time_s: float
    """Seconds of that step."""
    memory_bytes: float
    """Device memory of its fullest rank."""
    fits: bool
    """Is that within the GPU, without a margin?"""


class FullLayer(Spec):
    """A rank whose experts have many rows."""

    layer: int | None
    """Of the model, from 0; null: counts are for all layers."""
    rank: int
    """Of the expert group, from 0."""
    load: float
    """Rows over the mean of the group; mean over the steps."""


class LoadShift(Spec):
    """Step time and memory of the fullest rank, by step."""

    routing: str
    """As `--option routing` takes it."""
    steps: int
    """With counts of their own; 0: none, so that percentiles are those of chance alone."""
    percentiles: tuple[StepLoad, ...]
    """50, 90 and 99 as far as so many steps tell, then the fullest step of several."""
    capacity_bytes: float
    """Usable memory of one GPU."""
    fits: bool | None
    """Do 99 of 100 steps fit? Null: not known from these counts."""
    fullest: tuple[FullLayer, ...]
    """The fullest first; empty: all are alike but for chance."""

    @property
    def decides(self) -> StepLoad:
        """The step by which `fits` is known: the 99th percentile, or the fullest of several."""
        return next((one for one in self.percentiles if one.percentile == 99), self.percentiles[-1])

    @property
    def lacks_bytes(self) -> float:
        """What the fullest rank lacks in that step; negative: what stays free."""
        return self.decides.memory_bytes - self.capacity_bytes
