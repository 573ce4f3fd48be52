"""Documents of `plan search` where nothing fits, and of `plan estimate`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from trainplan.costmodel.layout import Layout
from trainplan.costmodel.routing import LoadShift
from trainplan.planner.comparisons import FieldDifference, Side
from trainplan.planner.comparisons import Remedy as LegalLayout
from trainplan.planner.documents import (
    Document,
    Notes,
    OfJob,
    Priced,
    WrittenLayout,
    layout_json,
    of_job,
    of_priced,
)
from trainplan.planner.evidence import Evidence, evidence_of
from trainplan.planner.plan import Infeasible, OuterStep, Spent
from trainplan.planner.questions import StepFacts
from trainplan.planner.settings import Assumed


@dataclass(frozen=True, kw_only=True)
class Remedy(Document):
    """A layout that runs, and what it changes."""

    changes: tuple[FieldDifference, ...]
    step_time_s: float
    peak_reserved_bytes: float
    layout: Layout

    @classmethod
    def of(cls, remedy: LegalLayout) -> Self:
        """A layout that runs."""
        one = remedy.candidate
        return cls(
            changes=remedy.changes,
            step_time_s=one.estimate.step_time_s,
            peak_reserved_bytes=one.estimate.memory.peak_reserved_bytes,
            layout=one.layout,
        )


@dataclass(frozen=True, kw_only=True)
class InfeasibleDocument(OfJob):
    """Nothing fits: what was refused, and the nearest changes that would make it fit."""

    SCHEMA = "trainplan/infeasible/v1"
    schema: Literal["trainplan/infeasible/v1"]
    """Name and version of this form."""
    refused: dict[str, int]
    """Layouts refused, by the first rule they break."""
    space_size: int
    """Layouts of the space."""
    least_memory_bytes: float | None
    """Device memory of the legal layout that needs least; null when no layout is legal."""
    least_memory_layout: WrittenLayout | None  # type: ignore[valid-type]
    least_memory_fits: bool | None
    """Null: not known, as an upper bound of its memory excluded it; true: in 99 of 100 steps."""
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

    @classmethod
    def of(cls, result: Infeasible) -> Self:
        """Of a search without an answer."""
        job, layout = result.job, result.least_memory_layout
        return cls.of_fields(
            result, **of_job(job), least_memory_layout=layout and layout_json(job, layout)
        )


@dataclass(frozen=True, kw_only=True)
class EstimateDocument(OfJob, Priced):
    """What one layout costs."""

    outer_step: OuterStep | None
    """Islands that take local steps, of which `cluster` and the batch are one; null: no islands."""
    evidence: Evidence | None
    """How far the answer is from what was ever measured; `plan estimate --json` has it, too."""
    spent: Spent
    """What a step and the run take: energy, carbon dioxide, money."""
    assumed: tuple[Assumed, ...]
    """Settings that it is priced with, defaults too, and what each saves."""
    load_shift: LoadShift | None
    """Step time and memory by step, as experts fill differently; as in a plan."""
    remedies: tuple[Remedy, ...]
    """Of a layout that does not fit: layouts that do."""
    remedies_searched: bool
    """False: none was found before the time limit struck, and there may be some."""
    provenance: Notes
    """`runtime_version`, `memory_margin`, `choices` (`--fix`, `--exclude` and `--trusted`),
    `sources` of the machine's numbers, and `notes`."""

    @classmethod
    def of(
        cls,
        side: Side,
        notes: tuple[str, ...],
        remedies: Sequence[LegalLayout] | None,
        facts: StepFacts,
        outer: OuterStep | None,
    ) -> Self:
        """Of a layout that was priced; no remedies: the time limit struck before any was found."""
        return cls(
            **of_job(side.job),
            **of_priced(side.job, side),
            outer_step=outer,
            evidence=evidence_of(side.job, side.layout),
            **facts._asdict(),
            remedies=tuple(map(Remedy.of, remedies or ())),
            remedies_searched=remedies is not None,
            provenance=Notes(notes=notes),
        )
