"""The numbers of the page docs/accuracy.md, from predictions of published runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from accuracy_left_out import Json
from accuracy_profiles import Loop, closed_loops
from accuracy_ranking import inside_of_others

from trainplan.costmodel import catalog
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.predict import predict
from trainplan.costmodel.validate.residuals import Residual, left_out
from trainplan.costmodel.validate.scores import Scores, scores
from trainplan.costmodel.validate.steps import TimedRow, mean_of_medians, timed_rows

SMALLEST_SHARE = 1e-3
"""A prediction without a term keeps at least this share of itself."""
NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Replacement:
    """An effect switched off by its constants."""

    name: str
    values: Mapping[str, float]
    concerns: Callable[[MeasuredRun], bool]
    """Runs whose price it can change: only those are priced again."""


HOST = ("host_dense", "host_legacy", "host_fsdp", "host_moe", "host_moe_graph")
EXPERTS = ("expert_extra_rows", "expert_extra_rows_weight_gradient")
REPLACEMENTS = (
    Replacement(
        "hidden traffic of replicas slows nothing",
        {"overlap_contention": NOTHING},
        lambda run: (run.cluster.num_gpus or 1) > (run.layout.tp or 1) * (run.layout.pp or 1),
    ),
    Replacement("kernels launch in no time", dict.fromkeys(HOST, NOTHING), lambda run: True),
    Replacement(
        "the network reaches its datasheet bandwidth",
        {"nic_efficiency": 1.0},
        lambda run: (run.cluster.num_gpus or 1) > (run.cluster.gpus_per_node or 1),
    ),
    Replacement(
        "grouped products cost their own rows only",
        dict.fromkeys(EXPERTS, NOTHING),
        lambda run: run.model.moe is not None,
    ),
)


class Findings:
    """All numbers of the page, each computed once."""

    def __init__(
        self,
        runs: Sequence[MeasuredRun],
        leave_one_out: Json | None,
        replacements: Sequence[Replacement] = REPLACEMENTS,
    ) -> None:
        self.predictions = predict(runs, memory_margin=None)
        self.leave_one_out, self.replacements = leave_one_out, replacements

    @cached_property
    def scores(self) -> Scores:
        """Of the strict rows."""
        rows = timed_rows(self.predictions, everything=False)
        return scores(self.predictions, inside=inside_of_others(rows))

    @cached_property
    def left_out_rows(self) -> tuple[TimedRow, ...]:
        """The strict rows as fits predict them that had not seen their source."""
        return tuple(one.left_out for one in self.residuals)

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """Of the strict rows, by fits that had not seen their source."""
        return left_out(self.scores.rows, (self.leave_one_out or {}).get("residuals", {}))

    @cached_property
    def closed_loops(self) -> tuple[Loop, ...]:
        """Profiles against the runs of the same machines."""
        return closed_loops(self.predictions)

    def without(self, term: str) -> Sequence[float]:
        """Signed errors of the strict rows when a term is left out."""
        return [_without(row, term) for row in self.scores.rows]

    def replaced(self, replacement: Replacement) -> Sequence[float]:
        """Signed errors of the strict rows with constants replaced."""
        constants = catalog.constants().model_copy(update=dict(replacement.values))
        rows = self.scores.rows
        concerned = [row.run for row in rows if replacement.concerns(row.run)]
        again = iter(timed_rows(predict(concerned, constants=constants), everything=False))
        return [
            (next(again) if replacement.concerns(row.run) else row).error_fraction for row in rows
        ]


def _without(row: TimedRow, term: str) -> float:
    left = row.predicted_s - float(getattr(row.estimate.terms, term))
    return max(left, row.predicted_s * SMALLEST_SHARE) / row.measured_s - 1


def sources_error(sources: Sequence[str], fractions: Sequence[float]) -> float:
    """The headline number of these errors: the mean of the medians of their sources."""
    groups: dict[str, list[float]] = {}
    for source, fraction in zip(sources, fractions, strict=True):
        groups.setdefault(source, []).append(fraction)
    found = mean_of_medians(groups.items())
    assert found
    return found[0]
