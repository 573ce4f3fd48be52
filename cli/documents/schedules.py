"""Documents of `plan schedule` and `plan simulate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from trainplan.planner.plan.document import Document
from trainplan.planner.questions.simulate import Simulation
from trainplan.planner.schedules.compare import Ranking
from trainplan.planner.schedules.scored import Scored


@dataclass(frozen=True, kw_only=True)
class ScheduleDocument(Document):
    """A pipeline schedule; times are in the unit of the durations."""

    KEYS = "schedule"
    makespan: float
    max_stage_span: float
    bubble_fraction: float
    lower_bound: float
    gap_fraction: float
    optimal: bool
    peak_activations: tuple[float, ...]
    peak_activations_released_at_input_grad: tuple[float, ...]
    kind: str
    pp: int
    vpp: int
    num_microbatches: int
    placement: str
    runs_on: tuple[str, ...]
    peak_activation_bytes: tuple[float, ...] = ()
    """Of every rank, where bytes of the activations are stated."""

    @classmethod
    def of(cls, scored: Scored) -> Self:
        """Of a schedule on the clock; whole activations without a fraction."""
        program, timeline = scored.program, scored.timeline
        return cls.of_fields(
            scored,
            max_stage_span=timeline.max_stage_span,
            bubble_fraction=timeline.bubble_fraction,
            peak_activations=tuple(map(_whole, scored.peaks)),
            peak_activations_released_at_input_grad=tuple(map(_whole, scored.peaks_at_input_grad)),
            pp=program.pp,
            num_microbatches=program.num_microbatches,
            peak_activation_bytes=scored.peak_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class RefusedKind(Document):
    """A kind that does not run in this shape."""

    kind: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RankingDocument(Document):
    """All schedules of a shape."""

    schedules: tuple[ScheduleDocument, ...]
    """By makespan."""
    refused: tuple[RefusedKind, ...]

    @classmethod
    def of(cls, ranking: Ranking) -> Self:
        """Of all schedules of a shape."""
        return cls(
            schedules=tuple(map(ScheduleDocument.of, ranking.schedules)),
            refused=tuple(map(RefusedKind.of_fields, ranking.refused)),
        )


@dataclass(frozen=True, kw_only=True)
class SimulatedRank(Document):
    """One pipeline rank."""

    KEYS = "simulated_rank"
    rank: int
    busy_s: float
    first_start_s: float
    last_end_s: float
    dp_traffic_s: float
    peak_activations: float


@dataclass(frozen=True, kw_only=True)
class LaneSpan(Document):
    """What a lane does for some time."""

    lane: str
    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class SimulateDocument(Document):
    """The pipeline of a plan on a clock."""

    KEYS = "simulate"
    schedule: str
    pp: int
    vpp: int
    num_microbatches: int
    makespan_s: float
    bubble_fraction: float
    lower_bound_s: float
    gap_fraction: float
    optimal: bool
    pipeline_ranks: tuple[SimulatedRank, ...]
    dp_comm_s: float
    optimizer_s: float
    overhead_s: float
    step_time_s: float
    lanes: tuple[LaneSpan, ...]

    @classmethod
    def of(cls, simulation: Simulation) -> Self:
        """Of the schedule of a plan."""
        scored = simulation.scored
        starts, ends = scored.timeline.start[:, 0], simulation.ends.tolist()
        ranks = zip(simulation.busy.tolist(), ends, simulation.traffic, strict=True)
        return cls.of_fields(
            scored,
            schedule=scored.kind,
            pp=scored.program.pp,
            num_microbatches=scored.program.num_microbatches,
            makespan_s=scored.makespan,
            bubble_fraction=scored.timeline.bubble_fraction,
            lower_bound_s=scored.lower_bound,
            pipeline_ranks=tuple(
                SimulatedRank(
                    rank=rank,
                    busy_s=busy,
                    first_start_s=float(starts[rank]),
                    last_end_s=end,
                    dp_traffic_s=traffic,
                    peak_activations=scored.peaks[rank],
                )
                for rank, (busy, end, traffic) in enumerate(ranks)
            ),
            dp_comm_s=simulation.dp_comm,
            optimizer_s=simulation.optimizer,
            overhead_s=simulation.overhead,
            step_time_s=simulation.step_time_s,
            lanes=tuple(
                LaneSpan(lane=s.lane.plain, name=s.name, start_s=s.start, end_s=s.end)
                for s in simulation.lanes
            ),
        )


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() else value
