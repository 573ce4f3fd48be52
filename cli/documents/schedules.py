"""Documents of `plan schedule` and `plan simulate`."""

from dataclasses import dataclass
from typing import Self

from trainplan.planner.documents import Document
from trainplan.planner.questions import Simulation
from trainplan.planner.schedules import Ranking, Scored


@dataclass(frozen=True, kw_only=True)
class ScheduleDocument(Document):
    """A pipeline schedule; times are in the unit of the durations."""

    makespan: float
    """From the start of the first op to the end of the last."""
    max_stage_span: float
    """The longest time of any rank from its first op to its last: the distance of steps where
    ranks do not wait for one another at their end."""
    bubble_fraction: float
    """Share of the makespan that the mean rank idles."""
    lower_bound: float
    """No order of the same passes on the same ranks, with the same memory, has a smaller
    makespan."""
    gap_fraction: float
    """makespan / lower_bound - 1: the most a better order could save."""
    optimal: bool
    """The makespan is the lower bound, up to rounding: no order of the same passes, split or whole,
    on the same ranks with the same memory is faster."""
    peak_activations: tuple[float, ...]
    """Most activations each rank holds, of one micro batch through one virtual stage each, freed at
    the end of the weight gradient."""
    peak_activations_released_at_input_grad: tuple[float, ...]
    """As `peak_activations`, freed at the end of the input gradient."""
    kind: str
    """Name of the schedule; `synthesised` or `csv` where it is none of the registry."""
    pp: int
    """Pipeline ranks."""
    vpp: int
    """Virtual stages of a rank."""
    num_microbatches: int
    """Micro batches of a step."""
    placement: str
    """`loop`: stage modulo pp; `v`: there and back again; `other`: neither."""
    runs_on: tuple[str, ...]
    """Runtimes that execute it; `torch CSV` is torch's pipeline runtime with a file of `--csv`."""
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

    rank: int
    """Pipeline rank."""
    busy_s: float
    """Seconds in which it computes."""
    first_start_s: float
    """Start of its first pass."""
    last_end_s: float
    """End of its last pass."""
    dp_traffic_s: float
    """Its gradient and parameter traffic behind that."""
    peak_activations: float
    """Most activations it holds, of one micro batch through one virtual stage each."""


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

    schedule: str
    """Name of the schedule."""
    pp: int
    """Pipeline ranks."""
    vpp: int
    """Virtual stages of a rank."""
    num_microbatches: int
    """Micro batches of a step and replica."""
    makespan_s: float
    """Seconds from the first pass to the end of the last."""
    bubble_fraction: float
    """Share of the makespan that the mean rank idles."""
    lower_bound_s: float
    """No order of the same passes on the same ranks, with the same memory, has a smaller
    makespan."""
    gap_fraction: float
    """makespan_s / lower_bound_s - 1."""
    optimal: bool
    """The makespan is the lower bound, up to rounding: no order of the same passes on the same
    ranks with the same memory is faster."""
    pipeline_ranks: tuple[SimulatedRank, ...]
    """One entry for each pipeline rank."""
    dp_comm_s: float
    """What gradient and parameter traffic adds behind the passes."""
    optimizer_s: float
    """Optimizer step, with what is offloaded."""
    overhead_s: float
    """What no term explains."""
    step_time_s: float
    """The step as `plan estimate` prices it: the sum of the four."""
    lanes: tuple[LaneSpan, ...]
    """What every lane of the slowest rank does, where something is off the GPU: lane, name, start
    and end of each item; empty: nothing is."""

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
