"""What a plan prints of the measurements behind it: the nearest runs, and where it leaves them."""

from collections.abc import Collection

from pydantic import Field

from trainplan.costmodel.candidates import Context
from trainplan.costmodel.documents import PublishedRun
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.spec import Spec
from trainplan.planner.evidence.axes import Rows
from trainplan.planner.evidence.distance import nearest
from trainplan.planner.evidence.envelope import Beyond, Measurements, measurements
from trainplan.planner.evidence.shape import Setup, shape_of

NEAREST = 3
"""Runs that are printed."""


class NearRun(Spec):
    """A published run near an answer."""

    id: str
    """Its name in `examples/accuracy/runs.jsonl`."""
    source: str
    """Repository or paper that printed it."""
    distance: float = Field(ge=0.0)
    """How far from the answer it is: one for every factor of two and every thing that differs."""
    model: str
    """Its model, as published."""
    gpu: str
    """GPU, as `plan catalog gpus` names it."""
    num_gpus: int
    """GPUs."""
    runtime: str
    """Id of its runtime."""
    precision: str
    """Number format of the matrix products."""
    global_batch_size: int | None = None
    """Sequences of a step; null: the document is older than this."""
    seq_length: int | None = None
    """Tokens of a sequence; null: as above."""
    layout: str
    """Its degrees above one, and its micro batch."""
    step_time_s: float
    """Measured."""
    error_fraction: float
    """Estimate of that run over its measured step time, minus one."""


class Evidence(Spec):
    """How far an answer is from what was ever measured. Nothing here is proved."""

    num_runs: int
    """Published runs whose step time is scored."""
    nearest: tuple[NearRun, ...]
    """The nearest of them first."""
    beyond: tuple[Beyond, ...]
    """Limits of what was measured that the answer breaks; empty: none, axis by axis."""

    @property
    def inside(self) -> bool:
        """Does it break no limit of what was measured, as `--trusted` needs?"""
        return not self.beyond


def evidence_of(job: Job, layout: Layout, known: Measurements | None = None) -> Evidence:
    """The evidence for the estimate of a layout.

    Raises:
        CatalogError: No such runtime, or no such GPU.
    """
    return evidence_on(Setup.of(job), layout, known)


def evidence_on(on: Setup | Context, layout: Layout, known: Measurements | None = None) -> Evidence:
    """As `evidence_of`, of a job that is resolved."""
    known, shape = known or measurements(), shape_of(on, layout)
    return Evidence(
        num_runs=len(known.runs),
        nearest=tuple(_near(far, run) for far, run in nearest(shape, known.runs, NEAREST)),
        beyond=known.beyond(Rows(on, LayoutTable.of([layout]))),
    )


def was_published(runtime: str) -> bool:
    """Is a scored run under a runtime, or under another over the same library?"""
    library = RUNTIMES[runtime].library
    names = {one for one, traits in RUNTIMES.items() if library and traits.library == library}
    return any(run.shape.runtime in {runtime, *names} for run in measurements().runs)


def is_inside(job: Job, layout: Layout, known: Measurements | None = None) -> bool:
    """Does a layout break no limit of what was measured, as `--trusted` needs?"""
    return stays_inside(Setup.of(job), layout, known)


def stays_inside(on: Setup | Context, layout: Layout, known: Measurements | None = None) -> bool:
    """As `is_inside`, of a job that is resolved."""
    rows = Rows(on, LayoutTable.of([layout]))
    return bool((known or measurements()).inside(rows)[0])


def unpublished(
    on: Setup | Context, layout: Layout, chosen: Collection[str] = (), *, generation: bool = False
) -> tuple[Beyond, ...]:
    """What of a layout no run had, or none of its kind of model, whatever the runtime and the GPU.

    With `generation` none on GPUs of its architecture, too. What the job states, and axes that the
    user chose, count for nothing here.
    """
    rows, known = Rows(on, LayoutTable.of([layout])), measurements()
    return known.beyond(rows, known.of_layouts(rows.job, chosen, generation=generation))


def _near(far: float, run: PublishedRun) -> NearRun:
    shape = run.shape
    degrees = [f"{name} {getattr(shape, name)}" for name in _DEGREES if getattr(shape, name) > 1]
    return NearRun(
        id=run.id,
        source=run.source,
        distance=round(far, 2),
        model=run.model,
        gpu=shape.gpu,
        num_gpus=shape.num_gpus,
        runtime=shape.runtime,
        precision=shape.precision,
        global_batch_size=run.global_batch_size,
        seq_length=shape.seq_length,
        layout=" ".join((*degrees, f"mbs {shape.micro_batch_size}")),
        step_time_s=run.step_time_s,
        error_fraction=run.error_fraction,
    )


_DEGREES = ("tp", "pp", "vpp", "cp", "dp", "ep", "etp")
