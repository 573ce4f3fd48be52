"""The document of `plan sweep`."""

from dataclasses import dataclass
from typing import Literal, Self

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import Point, Setting, Sweep, Varied
from trainplan.planner.documents import Document, OfJob, of_job
from trainplan.planner.questions import Status


@dataclass(frozen=True, kw_only=True)
class SweepPoint(Document):
    """The best plan of one job."""

    settings: tuple[Setting, ...]
    """`knob` and `value`, the first knob first."""
    num_gpus: int
    """GPUs of the job."""
    status: Status
    """As of a shadow price."""
    reason: str
    """Why the point is impossible; else empty."""
    tokens_per_s: float | None
    """Of the whole job, failures and saves included where they are stated; null without a plan."""
    efficiency: float | None
    """Tokens per second and GPU over those of the first point with a plan."""
    marginal_efficiency: float | None
    """What a GPU added since the point before gives over a GPU of the best point before; null where
    none was added."""
    alone: str
    """That part of the cluster alone is faster, or that it is not known; usually empty."""
    goodput_fraction: float | None
    """Of the time that trains; null: failures are not stated."""
    knee: bool
    """The last point before that falls under 80 %."""
    layout: Layout | None
    """The best layout; null without a plan."""
    estimate: Estimate | None
    """Its estimate."""

    @classmethod
    def of(cls, point: Point) -> Self:
        """Of a job that was searched."""
        outcome, best = point.outcome, point.outcome.best
        return cls.of_fields(
            point,
            status=outcome.status,
            reason=outcome.reason,
            layout=best and best.layout,
            estimate=best and best.estimate,
        )


@dataclass(frozen=True, kw_only=True)
class Curve(Document):
    """Points along the first parameter."""

    held: tuple[Setting, ...]
    """The others."""
    points: tuple[SweepPoint, ...]


@dataclass(frozen=True, kw_only=True)
class SweepDocument(OfJob):
    """The best plan at every value of some parameters."""

    SCHEMA = "trainplan/sweep/v1"
    schema: Literal["trainplan/sweep/v1"]
    """`trainplan/sweep/v1`."""
    verdict: str
    """The fastest point and the knee, in a sentence."""
    weak: bool
    """The batch grew with the GPUs."""
    varied: tuple[Varied, ...]
    """`knob` and `values` of every `--vary`; `model`, `training`, `cluster` and `runtime` are the
    plan's."""
    curves: tuple[Curve, ...]
    """One for each combination of the knobs after the first, `held` at a `knob` and a `value`, with
    its `points`."""

    @classmethod
    def of(cls, job: Job, swept: Sweep) -> Self:
        """Of the job of a plan."""
        return cls.of_fields(
            swept,
            **of_job(job),
            verdict=cls.sentence(swept),
            curves=tuple(
                Curve(held=one.held, points=tuple(map(SweepPoint.of, one.points)))
                for one in swept.curves
            ),
        )

    @staticmethod
    def sentence(swept: Sweep) -> str:
        """The best point of all, and the knees."""
        points = [(one, point) for one in swept.curves for point in one.points]
        planned = [(point.tokens_per_s, one, point) for one, point in points if point.tokens_per_s]
        if not planned:
            return "No point has a plan."
        speed, _, best = max(planned, key=lambda entry: entry[0] or 0.0)
        line = f"Fastest at {SweepDocument.held(best.settings)}: {speed:,.0f} tokens/s"
        knees = [point for _, point in points if point.knee]
        if len(knees) == 1:
            line += f"; knee at {SweepDocument.held(knees[0].settings)}"
        return line + "."

    @staticmethod
    def held(settings: tuple[Setting, ...]) -> str:
        """`tp=8, gpus=64`."""
        return ", ".join(f"{setting.knob}={setting.value}" for setting in settings)
