"""The answer: a layout with its evidence, readable by people, programs and exporters."""

from pydantic import Field

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import GIB
from trainplan.costmodel.hardware import Placement
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, Schedule
from trainplan.costmodel.routing import LoadShift
from trainplan.costmodel.spec import Spec
from trainplan.costmodel.step import Estimate
from trainplan.planner.evidence import Evidence
from trainplan.planner.plan.apart import Apart
from trainplan.planner.plan.outer_step import OuterStep
from trainplan.planner.plan.settings import Settings
from trainplan.planner.plan.spent import Spent
from trainplan.planner.plan.target import Reserve, Target, Trusted
from trainplan.planner.settings import Assumed

FREE = 0.1
"""Of the memory of a GPU, what a careful user keeps. Source: assumed."""


class Candidate(Spec):
    """One layout of the table of alternatives."""

    rank: int = Field(ge=1)
    """Place in the table, from 1."""
    layout: Layout
    """The layout."""
    estimate: Estimate
    """What it costs."""
    near_tie: bool = False
    """So close to the best that it is the faster one in a third of cases or more."""
    inside_measured: bool | None = None
    """It breaks no limit of what was measured, as `--trusted` needs; null: not checked."""

    @property
    def is_roomy(self) -> bool:
        """Does it leave a tenth of the memory of the fullest GPU free?"""
        return self.estimate.memory.leaves(FREE)


class UnevenStages(Spec):
    """What was found and proven where stages may hold any number of layers."""

    even_step_time_s: float
    """The best layout with even stages."""
    even_lower_bound_s: float
    """No layout with even stages is faster."""
    lower_bound_s: float
    """No layout whose virtual stages of a rank differ by one layer at most is faster than this, or
    than the answer if that is less."""
    any_split_lower_bound_s: float | None = None
    """The same however the layers are split; null where that was not computed."""
    judged: int
    """Splits of layouts whose schedule was simulated."""


class Certificate(Spec):
    """What was searched and how far from the best the answer can be at most."""

    optimal: bool
    """No layout of the space is better by the objective (faster, unless another is chosen)."""
    time_limit_struck: bool = False
    """Before the proof: with `--time-limit none` the search goes on to it."""
    alternatives_complete: bool
    """No family of layouts faster than the listed ones is missing: no time limit struck."""
    room_searched: bool = False
    """Where the answer leaves less than a tenth of the memory free: no even layout that leaves it
    is faster than the first such row."""
    lower_bound_s: float
    """No layout of the space has a smaller step time; of uneven stages those count whose virtual
    stages of a rank differ by one layer at most, and `uneven_stages` has the bound of all."""
    gap_fraction: float
    """(best - lower bound) / best, of the objective."""
    relaxed_bound_s: float
    """Smallest bound of the space before anything was simulated."""
    space: dict[str, list[int | float | str]]
    """Values that were searched, of every axis and of every setting that was varied."""
    space_size: int
    """Layouts of the whole grid, legal or not."""
    bounded: int
    """Legal layouts discarded because a bound shows they are not faster."""
    priced: int
    """Layouts priced one by one."""
    evaluated: int
    """Layouts whose schedule was simulated."""
    search_seconds: float | None = None
    """How long the search took."""
    objective: Target
    """What the layout is best by, its value and its bound."""
    settings: Settings | None = None
    """Null where none was varied: the runtime has none for the job, or it was not requested."""
    uneven_stages: UnevenStages | None = None
    """Null where stages are even (the runtime splits so, `--fix stages=even`, or the objective is
    memory or energy), where no even ones fit, and on different node groups."""
    trusted: Trusted | None = None
    """Null where layouts without measurements were searched, too, and none of them is better."""
    reserve: Reserve | None = None
    """Null without `--reserve`."""


class Source(Spec):
    """Where one number of the machine comes from."""

    quantity: str
    """Which number."""
    kind: str
    """`measured`, `fitted`, `datasheet` or `assumed`."""
    source: str
    """Publication, file or reason."""


class OtherSchedule(Spec):
    """The chosen layout under a schedule that the runtime does not execute."""

    schedule: Schedule
    """Its name."""
    vpp: int
    """Virtual stages on one rank: those of the layout, or the nearest number the schedule takes."""
    step_time_s: float | None
    """Under the cost model of the job's runtime, with all ranks waiting for the last at the end;
    null: not simulated, because it does not fit."""
    peak_reserved_bytes: float
    """Fullest rank, as in `estimate.memory`."""
    fits: bool
    """Within the memory, less the margin."""
    executed_by: tuple[str, ...]
    """Runtimes that execute it."""


class Plan(Spec):
    """A chosen layout, its estimate, the alternatives, and the proof."""

    job: Job
    runtime_version: str
    memory_margin: float
    choices: tuple[str, ...] = ()
    """What the search was held to, as on the command line: `--fix tp=8`."""
    best: Candidate
    """The answer: the simplest layout within the slack of the best by the objective."""
    candidates: tuple[Candidate, ...]
    certificate: Certificate
    refused: dict[str, int]
    sources: tuple[Source, ...]
    other_schedules: tuple[OtherSchedule, ...] = ()
    """What other schedules would make of the best layout, fastest first."""
    placement: Placement | None = None
    """Nodes in rank order, where the links between them were measured."""
    apart: Apart | None = None
    """A tower on GPUs of its own, which are not among those of `job`; null: there is none."""
    outer_step: OuterStep | None = None
    """Islands that take local steps, of which `job` is one; or what they would make of it; null:
    there are none, or they were not requested and are no faster."""
    evidence: Evidence | None = None
    """How far the best layout is from what was measured; null: not computed."""
    spent: Spent | None = None
    """What a step and the run take: energy, carbon dioxide, money; null: not requested."""
    load_shift: LoadShift | None = None
    """Step time and memory by step; null: ranks have the same rows in all, or it was not priced."""
    assumed: tuple[Assumed, ...] = ()
    """Settings that the answer is priced with, the runtime's own defaults included."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The answer in a line; `plan_json` has all of it."""
        best, proof, memory = self.best, self.certificate, self.best.estimate.memory
        on = [f"{one.word}={one.text(best.layout)}" for one in AXES if not one.is_off(best.layout)]
        proved = "proved" if proof.optimal else f"gap {100 * proof.gap_fraction:.1f} %"
        return (
            f"<Plan {self.job.model.name} on {self.job.num_gpus} GPUs: {' '.join(on)}; "
            f"{best.estimate.step_time_s:.4g} s a step, {memory.peak_reserved_bytes / GIB:.1f} of "
            f"{memory.capacity_bytes / GIB:.1f} GiB, {proved}>"
        )

    __str__ = __repr__

    @property
    def fastest(self) -> Candidate:
        """The best by the objective, which the proof is about: the answer, or a row below it."""
        rank = self.certificate.objective.rank
        return self.best if rank == 1 else self.candidates[rank - 1]

    @property
    def roomy(self) -> Candidate | None:
        """The fastest row that leaves a tenth of the memory free; null: none was found."""
        rows = (one for one in self.candidates if one.is_roomy)
        return min(rows, key=lambda one: one.estimate.step_time_s, default=None)


class Infeasible(Spec):
    """Nothing fits: what was refused, and the nearest changes that would make it fit."""

    job: Job
    refused: dict[str, int]
    space_size: int
    least_memory_bytes: float | None
    """Device memory of the legal layout that needs least; null when no layout is legal."""
    least_memory_layout: Layout | None
    least_memory_fits: bool | None = False
    """Null: not known, as an upper bound of its memory excluded it; true: in 99 of 100 steps."""
    capacity_bytes: float
    least_host_bytes: float | None = None
    """Host memory of a node that a layout needs at least which fits on the GPUs; null: none does,
    or the memory of the host is not known."""
    changes: tuple[str, ...]
    """Those that help alone."""
    relaxations: tuple[tuple[str, ...], ...] = ()
    """Smallest sets of changes that help: each set works, and no smaller one does."""
    untried: tuple[str, ...] = ()
    """What was fixed to a value no layout of the grid has, and the values that are tried."""
