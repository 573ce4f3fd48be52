"""A machine that exists on paper: its constants are hidden from who tunes on it.

Its steps are those of the cost model under other scalars, with errors that layouts share and that
each has of its own, noise, and faults. The same trial of the same machine always ends the same.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from math import exp, log
from typing import Annotated, Literal, Self, get_args

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from trainplan.costmodel.calibration import NOTHING, Measured, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.measured import ScalarName, varied
from trainplan.costmodel.spec import Spec
from trainplan.costmodel.step import simulated
from trainplan.planner.tuning.alike import features

SCHEMA = "trainplan/simulated-machine/v1"
WAVES = 400
"""Of the error that similar layouts share. Source: assumed; its correlation is then off by 0.05."""
STEPS = 10
"""That a simulated trial times."""
SLOW_STEP = 3.0
LAUNCH_SECONDS = 60.0
"""Until the first step. Source: assumed; torchrun with imports and a compile."""


Fault = Literal["out_of_memory", "crash", "hang", "not_a_number", "lost_node", "slow_node"]
FAULTS: tuple[Fault, ...] = get_args(Fault)


class Faults(Spec):
    """Probabilities that a trial ends so, whatever its layout."""

    out_of_memory: float = Field(default=0.0, ge=0.0, le=1.0)
    crash: float = Field(default=0.0, ge=0.0, le=1.0)
    hang: float = Field(default=0.0, ge=0.0, le=1.0)
    not_a_number: float = Field(default=0.0, ge=0.0, le=1.0)
    lost_node: float = Field(default=0.0, ge=0.0, le=1.0)
    slow_node: float = Field(default=0.0, ge=0.0, le=1.0)
    """The trial is measured, and `slow_factor` too long."""
    slow_factor: float = Field(default=1.3, ge=1.0)

    @model_validator(mode="after")
    def _add_up(self) -> Self:
        if sum(getattr(self, name) for name in FAULTS) > 1:
            raise ValueError("the probabilities of all faults add up to more than 1: lower them")
        return self


LEAST_FACTOR = 0.001
Spread = Annotated[float, Field(ge=0.0, le=2.0)]
"""Log units."""


class MachineDocument(Spec):
    """What is hidden of a machine; a file has `schema` with it."""

    seed: NonNegativeInt = 0
    scalars: dict[ScalarName, Annotated[float, Field(ge=0.0, le=1000.0)]] = {}  # noqa: RUF012 - pydantic copies it
    """Factors over the machine that is planned for; `fixed_seconds`: seconds of a step."""
    shared_spread: Spread = 0.0
    """Of an error of the model that similar layouts share, log units."""
    likeness: PositiveFloat = 2.5
    """Steps between layouts at which its correlation has fallen to 1 / e."""
    own_spread: Spread = 0.0
    """Of an error of the model that each layout has of its own."""
    trial_spread: Spread = 0.0
    """Of the noise that the steps of a trial share."""
    step_spread: Spread = 0.0
    """Of the noise of each step."""
    slow_steps: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the steps that take `SLOW_STEP` times as long, at random."""
    memory_factor: PositiveFloat = 1.0
    """Peak over that of the model."""
    memory_spread: Spread = 0.0
    """Of what each layout takes beyond that."""
    faults: Faults = Faults()

    @model_validator(mode="after")
    def _factors(self) -> Self:
        for name, value in self.scalars.items():
            if value < LEAST_FACTOR and name != "fixed_seconds":
                raise ValueError(f"scalars.{name} is a factor of 0.001 to 1000; 1 changes nothing")
        return self


@dataclass(frozen=True)
class SimulatedMachine:
    """The machine of a document."""

    document: MachineDocument
    measured: Measured = NOTHING
    """What was measured of the machine that is planned for."""

    def launch(self, trial: Trial) -> Outcome:
        """Run a trial."""
        seconds, peaks = self.of_table(trial.job, LayoutTable.of([trial.layout]))
        memory = machine_for(trial.job, self.measured).memory_bytes
        return self.outcome(trial, float(seconds[0]), float(peaks[0]), memory)

    def outcome(self, trial: Trial, seconds: float, peak: float, memory: float) -> Outcome:
        """How a trial ends whose true step time and peak are known, in so much device memory."""
        document, fault = self.document, self._fault(trial)
        if peak > memory or fault == "out_of_memory":
            over = f"{peak / memory:.2f} of the memory of a GPU" if peak > memory else "by chance"
            return Outcome(
                ending="out_of_memory", reason=f"simulated: {over}", seconds=LAUNCH_SECONDS
            )
        if fault in ("crash", "hang", "not_a_number", "lost_node"):
            return Outcome(ending=fault, reason="simulated: by chance", seconds=LAUNCH_SECONDS)
        slow = document.faults.slow_factor if fault == "slow_node" else 1.0
        drawn = self._normal("trial", trial.job, trial.layout, trial.number)
        step = seconds * slow * exp(document.trial_spread * drawn)
        found = Outcome(ending="measured", step_time_s=step, steps=STEPS)
        if document.step_spread or document.slow_steps:
            draw = self._draw("steps", trial.job, trial.layout, trial.number)
            slowed = np.where(draw.random(STEPS) < document.slow_steps, SLOW_STEP, 1.0)
            off = np.exp(document.step_spread * draw.standard_normal(STEPS))
            found = Outcome.of_steps((step * slowed * off).tolist())
        whole = LAUNCH_SECONDS + STEPS * (found.step_time_s or step)
        return found.model_copy(update={"peak_reserved_bytes": peak, "seconds": whole})

    def of_table(self, job: Job, table: LayoutTable) -> tuple[FloatColumn, FloatColumn]:
        """True step times and peaks of memory of some layouts.

        Source: derived; the estimate under the hidden scalars, times what layouts are off by.
        """
        machine = varied(machine_for(job, self.measured), self._changes)
        priced = simulated(context_of(job, machine).with_table(table), 0.0)
        off, held = self._shared(job, table), np.zeros(len(table))
        document = self.document
        if document.own_spread or document.memory_spread:
            layouts = [table.row(row) for row in range(len(table))]
            own = [self._normal("time", job, layout) for layout in layouts]
            off = off + document.own_spread * np.array(own)
            kept = [self._normal("memory", job, layout) for layout in layouts]
            held = document.memory_spread * np.array(kept)
        peak = priced.peak_reserved_bytes * document.memory_factor * np.exp(held)
        return priced.step_time_s * np.exp(off), peak

    @property
    def _changes(self) -> dict[ScalarName, float]:
        every = self.document.scalars.items()
        return {name: x if name == "fixed_seconds" else log(x) for name, x in every}

    def _shared(self, job: Job, table: LayoutTable) -> FloatColumn:
        """An error that similar layouts share, log units.

        Source: Rahimi and Recht, NIPS 2007: waves whose frequencies are drawn from the spectrum of
        the correlation, which for exp(-distance / steps) is a multivariate Cauchy density.
        """
        if not self.document.shared_spread:
            return np.zeros(len(table))
        places = features(job, table)
        frequencies, phases = self._waves(places.shape[1])
        waves = np.cos(places @ frequencies + phases)
        return np.asarray(self.document.shared_spread * np.sqrt(2 / WAVES) * waves.sum(axis=1))

    def _waves(self, size: int) -> tuple[FloatColumn, FloatColumn]:
        draw = np.random.default_rng([self.document.seed, size])
        width = np.abs(draw.standard_normal(WAVES)) * self.document.likeness
        frequencies = draw.standard_normal((size, WAVES)) / width
        return frequencies, draw.uniform(0.0, 2 * np.pi, WAVES)

    def _fault(self, trial: Trial) -> Fault | None:
        """What befalls a trial by chance."""
        drawn = self._draw("fault", trial.job, trial.layout, trial.number).random()
        for name in FAULTS:
            probability = getattr(self.document.faults, name)
            if drawn < probability:
                return name
            drawn -= probability
        return None

    def _normal(self, what: str, job: Job, layout: Layout, number: int = 0) -> float:
        return float(self._draw(what, job, layout, number).standard_normal())

    def _draw(self, what: str, job: Job, layout: Layout, number: int) -> np.random.Generator:
        given = (self.document.seed, what, job.options.stated(), number)
        text = json.dumps(given, sort_keys=True) + layout.model_dump_json()
        return np.random.default_rng(list(sha256(text.encode()).digest()))
