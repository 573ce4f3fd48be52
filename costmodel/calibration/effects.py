"""What measured steps of a machine have in common beyond the cost model.

    log(predicted / measured) = machine + family + model + layout

The machine and its software act on every step; a family on models of its kind and name; a model at
its sequence length on all its layouts. These are normal, with the spreads of
`catalog/spreads.toml`; what a layout has of its own is not, so that one odd run hardly counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn, FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.uncertainty import seen

TextColumn = NDArray[np.str_]
MACHINE = 0
"""Place of the effect that every run has."""


def family_of(model: ModelSpec) -> str:
    """Kind and family of a model: `dense llama`, `mixture-of-experts qwen`.

    The family is the name before its first digit. Source: published runs; residuals of
    one model and sequence length go together most (slope 0.3 to 0.9 between two layouts), those of
    one name less (0.1 to 0.7), dense ones and mixtures of one machine hardly (0 where it was seen).
    """
    kind = "mixture-of-experts" if model.moe else "dense"
    whole = model.name.lower().rsplit("/", 1)[-1]
    name = re.split(r"\d", whole, maxsplit=1)[0].strip("-_. ")
    return f"{kind} {name or whole}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What a run has in common with others of its machine."""

    family: str
    model: str
    seq_length: int
    layout: str

    @property
    def job(self) -> str:
        """The model at its sequence length."""
        return f"{self.family}: {self.model} at {self.seq_length}"

    @property
    def step(self) -> str:
        """Job and layout: steps that are equal here are repeats."""
        return f"{self.job}: {self.layout}"


def shared_by(job: Job, layout: Layout) -> Shared:
    """What a run shares."""
    model, length = job.model, job.training.seq_length
    return Shared(family_of(model), model.name, length, layout.model_dump_json())


@dataclass(frozen=True, slots=True)
class Effects:
    """Who has which effect."""

    names: tuple[str, ...]
    """The machine's first, then families and models, `Shared.family` and `Shared.job`."""
    spreads: FloatColumn
    """Standard deviation of each before any run, log units."""
    members: FloatColumn
    """1 where a run has the effect; shape (run, effect)."""
    steps: TextColumn
    """`Shared.step` of every run."""

    def take(self, rows: BoolColumn) -> Effects:
        """Some of the runs; an effect that none of them has is not known any more."""
        return Effects(self.names, self.spreads, self.members[rows], self.steps[rows])

    @property
    def repeats(self) -> FloatColumn:
        """How often the step of every run was measured.

        Source: derived; runs of equal `Shared.step` are counted.
        """
        _, inverse, counts = np.unique(self.steps, return_inverse=True, return_counts=True)
        return np.asarray(counts[inverse], dtype=float)

    def share(self, *names: str) -> FloatColumn:
        """The effects of a job: that of the machine, and those it is named by.

        Source: derived; 1 where the job has the effect of `names`, as in `members`.
        """
        return np.array([float(n == MACHINE or one in names) for n, one in enumerate(self.names)])


def effects_of(runs: Sequence[Shared], machine_spread: float) -> Effects:
    """The effects of some runs on one machine."""
    sizes = catalog.spreads().runs
    families = sorted({run.family for run in runs})
    models = sorted({run.job for run in runs})
    names = ("", *families, *models)
    spreads = (
        [machine_spread] + [sizes.family.value] * len(families) + [sizes.model.value] * len(models)
    )
    members = [[float(name in ("", run.family, run.job)) for name in names] for run in runs]
    return Effects(
        names, np.array(spreads), np.array(members), np.array([run.step for run in runs])
    )


def machine_spread(*, was_seen: bool) -> float:
    """How far a machine and its software are from the model, log units.

    Source: costmodel/catalog/spreads.toml.
    """
    sizes = catalog.spreads().runs
    return (sizes.machine_seen if was_seen else sizes.machine_unseen).value


def machine_spread_of(job: Job) -> float:
    """The same of the machine of a job: narrow where the constants were fitted on its kind.

    Source: costmodel/catalog/spreads.toml.
    """
    return machine_spread(was_seen=seen(job))
