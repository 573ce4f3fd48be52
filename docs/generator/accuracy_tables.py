"""Tables of scores in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trainplan.cli.pages import validate
from trainplan.cli.pages.validate import ERRORS_HEAD, RANKED_HEAD, RANKS_HEAD, ranking_rows
from trainplan.cli.words import percent
from trainplan.costmodel.validate.ranking import Ranking
from trainplan.costmodel.validate.steps import Errors

Row = Sequence[str]


def table(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table, all but the first column to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]
    return "\n".join(lines)


def errors_table(
    title: str, groups: Iterable[Errors], left_out: Iterable[Errors] | None = None
) -> str:
    """One row per group, with its median where the sources of its runs were held out."""
    if left_out is None:
        return table((title, *ERRORS_HEAD), _errors_rows(groups))
    medians = {one.name: percent(one.median_fraction) for one in left_out}
    rows = ((*row, medians.get(row[0], "")) for row in _errors_rows(groups))
    return table((title, *ERRORS_HEAD, "source left out"), rows)


def ranking_table(ranking: Ranking) -> str:
    """One row per job, then the means."""
    return table((*RANKED_HEAD, *RANKS_HEAD), ranking_rows(ranking))


def _errors_rows(groups: Iterable[Errors]) -> Iterator[Row]:
    """One row per group, as `plan validate` prints it."""
    for row in validate.errors_table("", groups).rows:
        yield [cell.text for cell in row]
