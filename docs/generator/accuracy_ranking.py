"""The order of layouts: the section of docs/accuracy.md, and which near-tie to take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from accuracy_tables import Row, ranking_table, table
from evidence_table import published_run

from trainplan.cli.pages.validate import SIZES_HEAD, sizes_rows
from trainplan.cli.words import percent
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.uncertainty.intervals import is_near_tie, place_of_tie
from trainplan.costmodel.validate.ranking import (
    FEWEST_LAYOUTS,
    Inside,
    RankingGroup,
    jobs_of,
    ranking,
)
from trainplan.costmodel.validate.scores import Scores
from trainplan.costmodel.validate.steps import TimedRow
from trainplan.planner.evidence.distance import distance
from trainplan.planner.evidence.envelope import Measurements
from trainplan.planner.evidence.evidence import is_inside
from trainplan.planner.evidence.shape import Setup, shape_of


@dataclass(frozen=True)
class Tie:
    """A near-tie of the layout that the model picks, and what may favour it."""

    row: TimedRow
    inside: bool
    """What was measured by other sources holds it."""
    near: float
    """Distance to the nearest run of another source."""

    @property
    def nodes(self) -> int:
        """Nodes that the replicas of a stage lie on: those of its largest group."""
        layout = self.row.layout
        ranks = layout.tp * layout.cp * layout.dp
        return -(-ranks // self.row.job.cluster.groups[0].gpus_per_node)


RULES: Mapping[str, Callable[[Tie], tuple[float, ...]]] = {
    "the fastest by the model": lambda tie: (tie.row.predicted_s,),
    "those inside what was measured first": lambda tie: place_of_tie(
        tie.inside, tie.row.predicted_s
    ),
    "the nearest to a measured run": lambda tie: (tie.near, tie.row.predicted_s),
    "groups over the fewest nodes": lambda tie: (tie.nodes, tie.row.predicted_s),
    "most free memory": lambda tie: (-tie.row.estimate.memory.headroom_bytes,),
    "the slowest of them measured": lambda tie: (-tie.row.measured_s,),
    "the fastest of them measured": lambda tie: (tie.row.measured_s,),
}
"""What may decide between near-ties; the last two are the bounds of any rule."""


FEW = 5
"""Layouts below which a group proves little."""


def summary(rows: Sequence[TimedRow], left: Sequence[TimedRow]) -> Iterator[Row]:
    """Regrets under the headlines, by size of group and of experts."""
    both = [_found(rows), _found(left)]
    for name, wanted in (
        (f"{FEW} or more layouts", lambda one: one.num_layouts >= FEW),
        (f"{FEWEST_LAYOUTS} or {FEW - 1} layouts", lambda one: one.num_layouts < FEW),
    ):
        yield _regrets(name, [list(filter(wanted, groups)) for groups in both])
    experts = [_found([row for row in own if row.job.model.moe]) for own in (rows, left)]
    yield _regrets("layouts with experts", experts)


def _found(rows: Sequence[TimedRow]) -> Sequence[RankingGroup]:
    found = ranking(rows)
    return found.groups if found else ()


def _regrets(name: str, groups: Sequence[Sequence[RankingGroup]]) -> Row:
    cells = (percent(fmean(one.regret_fraction for one in own)) if own else "" for own in groups)
    return f"picked layout slower than the best, of {name} (groups: {len(groups[0])})", *cells


def section(found: Scores) -> str:
    """Tables of groups, of their sizes, and of rules for near-ties."""
    study = found.layout_study
    assert found.ranking and study
    order, order_of = study.ranking, found.ranking.groups
    few = sum(one.num_layouts < FEW for one in order_of)
    return f"""\
## The order of layouts

Runs of one model on one machine with one batch, sequence, precision and runtime, in at least three
layouts. *Regret*: how much slower than the best measured layout the one is that the model would
pick, and of layouts of the same price the slowest; *Spearman*: correlation of the ranks.

{ranking_table(found.ranking)}

The more layouts, the more can be lost: {few} of the {len(order_of)} groups have
{FEWEST_LAYOUTS} or {FEW - 1} layouts and prove little. *Near-ties* are the layouts that the model
cannot rank against the one it picks, with it. *By evidence*: regret of the first of them where
those inside what other sources measured come first, then by time. *All measured*: of who measures
them and takes the fastest.

{table(("layouts", *SIZES_HEAD), sizes_rows(found.ranking))}

Pairs are left out: those of GPT3-175B are of two releases of NeMo, whose steps of equal layouts
differ by 2 to 6 %.

The layout study is the {study.n} multi-node runs of vTrain, bad layouts included: mean error
{percent(study.mean_fraction)}, mean rank correlation {order.mean_spearman:.2f}, mean regret
{percent(order.mean_regret_fraction)}.

### Near-ties

Mean regret where something else than the estimate decides between near-ties, by study; what was
measured is what other sources measured.

{_rules(found.rows)}

A search lists layouts by time, and puts layouts that no published run is like second:
what was measured first, which no study contradicts and one supports. The others help one study at
the cost of another, and by free memory one picks nearly the slowest."""


def _rules(rows: Sequence[TimedRow]) -> str:
    groups = _groups(rows)
    studies = sorted({source for source, _, _ in groups})

    def cells(name: str) -> Iterator[str]:
        yield name
        for chosen in (studies, *([one] for one in studies)):
            own = [_regret(ties, best, RULES[name]) for s, ties, best in groups if s in chosen]
            yield percent(fmean(own))

    counts = [sum(source == one for source, _, _ in groups) for one in studies]
    heads = (f"{one} ({count})" for one, count in zip(studies, counts, strict=True))
    body: list[Row] = [tuple(cells(name)) for name in RULES]
    return table(("taken", f"all ({len(groups)} jobs)", *heads), body)


def _regret(ties: Sequence[Tie], best: float, rule: Callable[[Tie], tuple[float, ...]]) -> float:
    return min(ties, key=rule).row.measured_s / best - 1


def _groups(rows: Sequence[TimedRow]) -> list[tuple[str, Sequence[Tie], float]]:
    """Of every job its source, its near-ties, and the fastest measured step."""
    known, found = _others(rows), []
    for group in jobs_of(rows):
        layouts: dict[Layout, list[TimedRow]] = {}
        for row in group:
            layouts.setdefault(row.layout, []).append(row)
        if len(layouts) < FEWEST_LAYOUTS:
            continue
        single = [
            replace(same[0], measured_s=fmean(row.measured_s for row in same))
            for same in layouts.values()
        ]
        source = single[0].run.source_group
        first = min(single, key=lambda row: row.predicted_s)
        ties = [
            _tie(row, known[source])
            for row in single
            if is_near_tie(row.layout, row.predicted_s, first.layout, first.predicted_s)
        ]
        found.append((source, ties, min(row.measured_s for row in single)))
    return found


def inside_of_others(rows: Sequence[TimedRow]) -> Inside:
    """Does a layout stay inside what other sources than its own measured?"""
    known = _others(rows)
    return lambda row: is_inside(row.job, row.layout, known[row.run.source_group])


def _others(rows: Sequence[TimedRow]) -> Mapping[str, Measurements]:
    """What all other sources measured, by source."""
    runs = [(row.run.source_group, published_run(row, "")) for row in rows]
    return {
        source: Measurements(tuple(run for name, run in runs if name != source))
        for source in dict.fromkeys(name for name, _ in runs)
    }


def _tie(row: TimedRow, others: Measurements) -> Tie:
    shape = shape_of(Setup.of(row.job), row.layout)
    near = min(distance(shape, run.shape) for run in others.runs)
    return Tie(row, is_inside(row.job, row.layout, others), near)
