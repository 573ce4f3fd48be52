"""Would the choice change if the estimates were off as they usually are?"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainplan.costmodel.layout import Layout
from trainplan.costmodel.uncertainty import is_near_tie, probability_faster
from trainplan.planner.plan import Candidate


@dataclass(frozen=True, slots=True)
class Rival:
    """One layout of the table against the choice."""

    layout: Layout
    step_time_s: float
    step_time_p90_s: float
    """90 % of runs take less."""
    rank_by_p90: int
    """Place among all by that time; 1 is the safest."""
    probability_faster: float
    """That it is faster than the choice; 0.5 for the choice itself."""
    near_tie: bool
    """A near-tie of the choice."""


@dataclass(frozen=True, slots=True)
class Robustness:
    """The choice and its rivals, fastest first."""

    rivals: tuple[Rival, ...]

    @property
    def near_ties(self) -> int:
        """Rivals that are near-ties of the choice."""
        return sum(rival.near_tie for rival in self.rivals)

    @property
    def runner_up(self) -> Rival | None:
        """The one that is most likely faster than the choice; none if there is no other."""
        return max(self.rivals[1:], key=lambda rival: rival.probability_faster, default=None)


def robustness(candidates: Sequence[Candidate]) -> Robustness:
    """Compare the choice, the first of the candidates, with the others.

    The 90th percentile is the upper end of the 80 % interval. Source: derived; of sources that no
    fit saw no more than a tenth of the runs is above it.
    """
    best = candidates[0]
    chosen = best.estimate.step_time_s
    others = sorted(candidates[1:], key=lambda one: one.estimate.step_time_s)
    ordered = [candidates[0], *others]
    highs = [one.estimate.uncertainty.step_time_high_s for one in ordered]
    return Robustness(
        tuple(
            Rival(
                layout=one.layout,
                step_time_s=one.estimate.step_time_s,
                step_time_p90_s=high,
                rank_by_p90=1 + sum(other < high for other in highs),
                probability_faster=probability_faster(
                    one.layout, one.estimate.step_time_s, best.layout, chosen
                ),
                near_tie=one is not best
                and is_near_tie(one.layout, one.estimate.step_time_s, best.layout, chosen),
            )
            for one, high in zip(ordered, highs, strict=True)
        )
    )
