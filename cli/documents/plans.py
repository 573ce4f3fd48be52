"""Documents of `plan search`, `plan estimate`, `plan sweep` and `plan tune`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainplan.cli.documents.parts import Document, Notes, OfJob, Priced, Remedy, WrittenLayout
from trainplan.costmodel.hardware import Placement
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.planner.evidence import Evidence
from trainplan.planner.plan import Certificate
from trainplan.planner.plan.apart import Apart
from trainplan.planner.plan.plan import OtherSchedule, Source
from trainplan.planner.plan.spent import Spent
from trainplan.planner.questions.changes.parameters import Varied
from trainplan.planner.questions.outcome import Status
from trainplan.planner.questions.sweep import Setting
from trainplan.planner.tuning.events import (
    Best,
    MemoryRange,
    Remains,
    ScalarRange,
    StopReason,
    Tried,
)


@dataclass(frozen=True, kw_only=True)
class CandidateEntry(Priced):
    """One layout of the table of alternatives."""

    KEYS = "Candidate"
    rank: int
    near_tie: bool
    """So close to the best that it is the faster one in a third of cases or more."""
    inside_measured: bool | None
    """No degree or knob is beyond what was measured; null: not asked."""


@dataclass(frozen=True, kw_only=True)
class Provenance(Notes):
    """Where a plan comes from."""

    runtime_version: str
    memory_margin: float
    choices: tuple[str, ...]
    """What the search was held to, as on the command line."""
    sources: tuple[Source, ...]


@dataclass(frozen=True, kw_only=True)
class PlanDocument(OfJob):
    """A chosen layout, its estimate, the alternatives, and the proof."""

    schema: Literal["trainplan/plan/v1"]
    best: Priced
    candidates: tuple[CandidateEntry, ...]
    certificate: Certificate
    refused: dict[str, int]
    other_schedules: tuple[OtherSchedule, ...]
    placement: Placement | None
    apart: Apart | None
    evidence: Evidence | None
    spent: Spent | None
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class Tuned(Document):
    """What was measured, and what remains possible."""

    KEYS = "Finished"
    stop: StopReason
    says: str
    best: Best | None
    trials: tuple[Tried, ...]
    remains: Remains
    scalars: tuple[ScalarRange, ...]
    memory_factor: MemoryRange


@dataclass(frozen=True, kw_only=True)
class TunedPlanDocument(PlanDocument):
    """A plan with the fastest layout that was measured in place of its answer."""

    tuned: Tuned
    """What was measured, apart from what was proved."""


@dataclass(frozen=True, kw_only=True)
class InfeasibleDocument(OfJob):
    """Nothing fits: what was refused, and the nearest changes that would make it fit."""

    schema: Literal["trainplan/infeasible/v1"]
    refused: dict[str, int]
    space_size: int
    """Layouts of the space."""
    least_memory_bytes: float | None
    """Device memory of the leanest legal layout; null when no layout is legal."""
    least_memory_layout: WrittenLayout | None  # type: ignore[valid-type]
    capacity_bytes: float
    """Of a GPU, without the margin."""
    least_host_bytes: float | None
    """Host memory of a node that a layout needs at least which fits on the GPUs; null: none does,
    or the memory of the host is not known."""
    changes: tuple[str, ...]
    """Those that help alone."""
    relaxations: tuple[tuple[str, ...], ...]
    """Smallest sets of changes that help: each set works, and no smaller one does."""
    untried: tuple[str, ...]
    """What was fixed to a value no layout of the grid has, and the values that are tried."""


@dataclass(frozen=True, kw_only=True)
class Objective(Document):
    """One of the two."""

    name: str
    unit: str
    per: Literal["step", "run"]


@dataclass(frozen=True, kw_only=True)
class ParetoPoint(Priced):
    """A layout that no other beats in both."""

    num_gpus: int
    values: tuple[float, ...]
    """In the order of the objectives."""


@dataclass(frozen=True, kw_only=True)
class ParetoDocument(OfJob):
    """All layouts that no other beats in both of two objectives."""

    KEYS = "pareto"
    schema: Literal["trainplan/pareto/v1"]
    objectives: tuple[Objective, ...]
    points: tuple[ParetoPoint, ...]
    sizes: tuple[int, ...]
    complete: bool


@dataclass(frozen=True, kw_only=True)
class EstimateDocument(OfJob, Priced):
    """What one layout costs."""

    evidence: Evidence | None
    spent: Spent
    """What a step and the run take: energy, carbon dioxide, money."""
    remedies: tuple[Remedy, ...]
    """Of a layout that does not fit: layouts that do."""
    provenance: Notes


@dataclass(frozen=True, kw_only=True)
class SweepPoint(Document):
    """The best plan of one job."""

    KEYS = "sweep_point"
    settings: tuple[Setting, ...]
    num_gpus: int
    status: Status
    reason: str
    tokens_per_s: float | None
    efficiency: float | None
    marginal_efficiency: float | None
    knee: bool
    layout: Layout | None
    estimate: Estimate | None


@dataclass(frozen=True, kw_only=True)
class Curve(Document):
    """Points along the first parameter."""

    held: tuple[Setting, ...]
    """The others."""
    points: tuple[SweepPoint, ...]


@dataclass(frozen=True, kw_only=True)
class SweepDocument(OfJob):
    """The best plan at every value of some parameters."""

    KEYS = "sweep"
    schema: Literal["trainplan/sweep/v1"]
    verdict: str
    weak: bool
    varied: tuple[Varied, ...]
    curves: tuple[Curve, ...]
