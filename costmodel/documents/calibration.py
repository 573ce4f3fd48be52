"""What measured steps of a machine correct, and trials: layouts run for a few steps."""

from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from trainplan.costmodel.job import Job, Precision
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.spec import Spec


class Scalars(Spec):
    """Corrections of a machine; the defaults change nothing."""

    speed: PositiveFloat = 1.0
    inter_node_bandwidth: PositiveFloat = 1.0
    fixed_overhead_seconds: NonNegativeFloat = 0.0


class FittedScalar(Spec):
    """One scalar and how well the runs know it."""

    value: NonNegativeFloat
    """What is applied."""
    low: NonNegativeFloat
    """The scalar lies between `low` and `high` with a probability of 80 %."""
    high: NonNegativeFloat
    """Upper end of that range."""
    identified: bool
    """The runs separate it from the others; if not, it is left at the value that changes
    nothing."""

    @model_validator(mode="after")
    def _lies_between(self) -> Self:
        if not self.low <= self.value <= self.high:
            raise ValueError(
                f"low <= value <= high must hold, got {self.low}, {self.value}, {self.high}"
            )
        return self


class FittedFactor(FittedScalar):
    """A scalar that multiplies."""

    LEAST: ClassVar = 0.02
    LARGEST: ClassVar = 50.0
    """Beyond these the run is not what its record holds."""
    value: float = Field(ge=LEAST, le=LARGEST)


class SharedSpeed(Spec):
    """Speed of the jobs that have more in common with the runs than the machine."""

    family: str
    """Kind and family of the model, such as `dense llama`."""
    model: str | None = None
    """Name of the model; null: all others of the family."""
    seq_length: int | None = None
    """Its tokens per sequence; null where the model is."""
    speed: FittedFactor
    """As `speed` of the calibration."""
    log_speed_spread: NonNegativeFloat
    """Standard deviation of the logarithm of the speed."""


class CalibrationRun(Spec):
    """A run the scalars were fitted on, priced without and with them."""

    id: str
    """Of the run, or the name of its log."""
    source: str
    """Where the step time comes from."""
    measured_step_time_s: PositiveFloat
    """As measured."""
    before_step_time_s: PositiveFloat
    """Predicted from the catalog, or from the profile the calibration is of."""
    after_step_time_s: PositiveFloat
    """Predicted with the scalars."""


class Calibration(Spec):
    """Scalars fitted on measured steps of one kind of GPU, precision and runtime."""

    SCHEMA: ClassVar = "trainplan/calibration/v1"
    gpu: str
    """Catalog name of the GPU the runs ran on."""
    precision: Precision
    """Number format of their matrix products."""
    runtime: str
    """Runtime that ran them."""
    models: tuple[str, ...] = Field(min_length=1)
    """Models that ran."""
    profile_digest: str | None = None
    """Which profile it corrects; null: the catalog."""
    speed: FittedFactor
    """Speed of whole steps over that of the catalog or the profile: 0.9 makes every step 1 / 0.9
    as long. Of jobs that `speeds` does not name."""
    log_speed_spread: NonNegativeFloat | None = None
    """Standard deviation of its logarithm; null: written by an earlier release."""
    speeds: tuple[SharedSpeed, ...] = ()
    """Of jobs that are more like the runs; the most special one counts."""
    inter_node_bandwidth: FittedFactor
    """Bandwidth between scale-up domains over the datasheet's."""
    fixed_overhead_seconds: FittedScalar
    """Added to every step."""
    error_before_fraction: NonNegativeFloat
    """Median of |predicted / measured - 1| over the runs, without the scalars."""
    error_after_fraction: NonNegativeFloat
    """As before, with the scalars: what the fit leaves."""
    error_left_out_fraction: NonNegativeFloat | None = None
    """As before, each layout predicted from the others; null for a single layout."""
    refused: bool = False
    """Left-out layouts were predicted worse than without scalars, so they change nothing."""
    runs: tuple[CalibrationRun, ...] = Field(min_length=1)
    """Every run, with its predictions."""

    def document(self) -> dict[str, object]:
        """As its public document."""
        return {"schema": self.SCHEMA, **self.model_dump(mode="json")}

    @property
    def corrected(self) -> str:
        """What it corrects, as a word."""
        return "profile" if self.profile_digest else "catalog"


Ending = Literal["measured", "out_of_memory", "crash", "hang", "not_a_number", "lost_node"]
"""How a trial ends. A lost node shows nothing of the layout; all others do."""


class Trial(Spec):
    """What is run."""

    number: int = Field(ge=1)
    job: Job
    layout: Layout
    why: str
    """One line: what this trial can change."""


class Outcome(Spec):
    """How a trial ended; times are there only when it is `measured`."""

    ending: Ending
    """`measured`, `out_of_memory`, `crash`, `hang`, `not_a_number` or `lost_node`."""
    reason: str = ""
    """One line for people; empty when it was measured."""
    step_time_s: PositiveFloat | None = None
    """Median of the steps after the warm-up."""
    lowest_s: PositiveFloat | None = None
    """Shortest step of those timed."""
    highest_s: PositiveFloat | None = None
    """Longest step of those timed."""
    steps: NonNegativeInt = 0
    """Steps that were timed."""
    spread_fraction: NonNegativeFloat | None = None
    """Half of those lie within this part of their median; null: the run does not state it."""

    peak_reserved_bytes: NonNegativeFloat | None = None
    """Device memory of the fullest rank that reports it; null: the run does not state it."""
    seconds: NonNegativeFloat = 0.0
    """From the start of the launch to its end."""
    log: str | None = None
    """File with the output of the processes; of a tuning run, below its folder."""

    @classmethod
    def of_steps(cls, times: Sequence[float]) -> Self:
        """What timed steps give, in seconds each."""
        return cls(
            ending="measured",
            step_time_s=median(times),
            lowest_s=min(times),
            highest_s=max(times),
            steps=len(times),
            spread_fraction=cls.spread(times),
        )

    @staticmethod
    def spread(times: Sequence[float]) -> float:
        """Half of the times lie within this part of their median."""
        middle = median(times)
        return median(abs(one - middle) for one in times) / middle
