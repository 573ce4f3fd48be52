"""Tables of scores in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cli.render.text import percent
from cli.render.validate import signed
from costmodel.validate.ranking import Ranking
from costmodel.validate.steps import Errors

Row = Sequence[str]


def table(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table, all but the first column to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(text.replace("|", "\\|") for text in row) + " |" for row in rows]
    return "\n".join(lines)


def errors_table(title: str, groups: Iterable[Errors]) -> str:
    """One row per group."""
    rows = (
        (
            one.name,
            f"{one.n:,}",
            signed(one.bias_fraction),
            percent(one.median_fraction),
            percent(one.mean_fraction),
        )
        for one in groups
    )
    return table((title, "runs", "bias", "median", "mean"), rows)


def ranking_table(ranking: Ranking) -> str:
    """One row per job, then the means."""
    rows = [
        (
            one.model,
            f"{one.num_gpus} x {one.gpu}",
            one.runtime,
            str(one.num_layouts),
            f"{one.spearman:.2f}",
            percent(one.regret_fraction),
        )
        for one in ranking.groups
    ]
    means = (f"{ranking.mean_spearman:.2f}", percent(ranking.mean_regret_fraction))
    head = ("model", "machine", "runtime", "layouts", "Spearman", "regret")
    return table(head, [*rows, ("mean", "", "", "", *means)])


def rate(fraction: float | None) -> str:
    """A share in percent, a dash where there was nothing to count."""
    return "-" if fraction is None else percent(fraction)
