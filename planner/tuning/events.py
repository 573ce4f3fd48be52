"""What a tuning run prints while it goes on: one event after the other, each one JSON object."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from trainplan.costmodel.documents import Calibration, Outcome
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.measured import ScalarName
from trainplan.costmodel.spec import Spec

StopReason = Literal["settled", "trials", "seconds", "all_tried"]
"""Nothing untried is likely to be faster; a budget is spent; no contender is left."""
Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class ScalarRange(Spec):
    """What is believed of one scalar of the machine; 80 % lie between `low` and `high`."""

    name: ScalarName
    """Of the scalar."""
    meaning: str
    """In words."""
    value: float
    """A factor over the machine that was planned for; `fixed_seconds`: seconds of a step."""
    low: float
    """One in ten is below."""
    high: float
    """One in ten is above."""
    told_apart: bool = False
    """The trials halved what is unknown of it."""


class MemoryRange(Spec):
    """Measured peak over that of the model; 80 % lie between `low` and `high`."""

    value: PositiveFloat
    """The likeliest."""
    low: PositiveFloat
    """One in ten is below."""
    high: PositiveFloat
    """One in ten is above."""


class Forecast(Spec):
    """What is believed of an untried layout."""

    layout: Layout
    """As in a plan."""
    options: dict[str, object]
    """Settings of the runtime, those that are stated."""
    step_time_s: PositiveFloat
    """Half of all such machines take less."""
    step_time_low_s: PositiveFloat
    """Of ten such machines one takes less."""
    step_time_high_s: PositiveFloat
    """80 % lie between."""
    probability_fits: Probability
    """That it runs and its memory suffices."""
    probability_faster: Probability | None = None
    """That it is faster than the best measured by what is worth a trial; null: none was."""


class Started(Spec):
    """The layouts that may be the fastest, and what is believed of the machine."""

    event: Literal["started"] = "started"
    """`started`."""
    contenders: PositiveInt
    """Layouts that may be the fastest."""
    earlier_trials: NonNegativeInt
    """Trials of an earlier run that count as done."""
    trials: PositiveInt
    """Budget, earlier ones included."""
    seconds: PositiveFloat | None
    """Budget; null: none."""
    scalars: tuple[ScalarRange, ...]
    """Before any trial."""
    fastest: Forecast
    """By the model."""


class TrialStarted(Spec):
    """A layout is launched."""

    event: Literal["trial_started"] = "trial_started"
    """`trial_started`."""
    number: PositiveInt
    """From 1."""
    why: str
    """What the trial can change."""
    forecast: Forecast
    """What is expected of it."""


class TrialEnded(Spec):
    """How a trial ended."""

    event: Literal["trial_ended"] = "trial_ended"
    """`trial_ended`."""
    number: PositiveInt
    """As in `trial_started`."""
    layout: Layout
    """What was run."""
    outcome: Outcome
    """How it ended."""
    teaches: str
    """One line."""


class Learned(Spec):
    """What is believed after a trial."""

    event: Literal["learned"] = "learned"
    """`learned`."""
    number: PositiveInt
    """Trial it was learned from."""
    scalars: tuple[ScalarRange, ...]
    """After it."""
    memory_factor: MemoryRange
    """After it."""
    best_number: PositiveInt | None
    """Trial of the best measured so far."""
    best_step_time_s: PositiveFloat | None
    """Of the best measured so far."""
    probability_faster_remains: Probability
    """That an untried layout is faster than the best measured by what is worth a trial."""
    expected_gain_fraction: NonNegativeFloat
    """Of the best measured step, if all were tried."""


class Best(Spec):
    """The fastest layout that was measured."""

    number: PositiveInt
    """Its trial."""
    layout: Layout
    """As in a plan."""
    options: dict[str, object]
    """Settings of the runtime, those that are stated."""
    repeats: tuple[PositiveInt, ...] = ()
    """Further trials of the same layout."""
    measured_step_time_s: PositiveFloat
    """Median of the steps of its trial; of several trials their geometric mean."""
    planned_step_time_s: PositiveFloat
    """The estimate before any trial."""
    peak_reserved_bytes: NonNegativeFloat | None = None
    """Device memory of the fullest rank; null: the run does not state it."""


class Tried(Spec):
    """One trial of the run."""

    number: PositiveInt
    """From 1."""
    layout: Layout
    """As in a plan."""
    options: dict[str, object]
    """Settings of the runtime, those that are stated."""
    why: str
    """What it could change."""
    outcome: Outcome
    """How it ended."""
    planned_step_time_s: PositiveFloat
    """The estimate before any trial."""
    expected: Forecast | None = None
    """What was believed of it when it began; null: it ran in an earlier run."""
    probability_faster_remains: Probability | None = None
    """As in `Learned`, after it; null likewise."""


class Remains(Spec):
    """What is possible beyond the best measured."""

    probability_faster: Probability
    """As in `Learned`."""
    worth_fraction: PositiveFloat
    """What counts as faster."""
    expected_gain_fraction: NonNegativeFloat
    """As in `learned`."""
    untried: NonNegativeInt
    """Contenders that were not tried."""
    likeliest: tuple[Forecast, ...]
    """Untried layouts that are most likely faster."""


class Finished(Spec):
    """The result: what was measured, kept separate from what was proved of the plan."""

    event: Literal["finished"] = "finished"
    """`finished`."""
    stop: StopReason
    """`settled`: nothing untried is likely to be faster; `trials`, `seconds`: that budget is spent;
    `all_tried`."""
    says: str
    """Why it stopped, for people."""
    best: Best | None
    """Null: no trial was measured."""
    trials: tuple[Tried, ...]
    """All of them, in order."""
    remains: Remains
    """What is possible beyond the best."""
    scalars: tuple[ScalarRange, ...]
    """After all trials."""
    memory_factor: MemoryRange
    """After all trials."""
    noise_fraction: NonNegativeFloat = 0.0
    """By which a measured step differs from one trial of a layout to the next, one standard
    deviation, beyond what a machine of its own has. Where it is above 0.05 the first two of the
    ranking are run again within the budget."""
    calibration: Calibration | None
    """For the next search; null: no trial was measured, or the cluster mixes GPUs."""


Event = Annotated[
    Started | TrialStarted | TrialEnded | Learned | Finished, Field(discriminator="event")
]
