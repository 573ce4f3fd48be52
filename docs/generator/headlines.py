"""The page docs/headlines.md: published results the model is compared with, reached or not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from accuracy_tables import table
from headline_commands import tables
from headlines_dense import sc21, selective
from headlines_exchanges import exchanges
from headlines_figure import DRIFT, Figure, Headline, Runs
from headlines_islands import islands
from headlines_moe import experts
from headlines_scaling import megascale
from headlines_sharding import sharding
from headlines_torchtitan import torchtitan
from headlines_zero_bubble import zero_bubble
from headlines_zero_plus_plus import zero_plus_plus

from trainplan.cli.words import percent
from trainplan.costmodel.documents.measured_run import MeasuredRun

PAGE = Path(__file__).parents[1] / "headlines.md"
HEAD = "<!-- Written by docs/generator/accuracy.py (`make accuracy`): edit headlines*.py there. -->"
MISSES = Path(__file__).with_name("headline_misses.toml")
WITHOUT_FIGURE = """\
## Without a figure

These are planned or priced, and no published figure is compared here: either the publication's job
is not stated well enough to be a command, or nothing was measured.

* Schedules: GPipe, Hanayo, 2BP, breadth-first, vocabulary parallelism, PipeOffload, SPPO. The
  bubbles of `plan schedule` are held by tests, the gains on GPUs are not.
* Offloading: ProTrain, PatrickStar, Harmony, SE-MoE, twin-flow.
* Networks: Holmes, Pipette, C4, whose switches are not known here. Two fabrics joined by Ethernet
  are held to keep nine tenths of the throughput, as Holmes does; an all-to-all on rails alone
  (arXiv:2307.12169) to take 8.2 % to 11.2 % longer at datasheet speeds, of H100, GB200 NVL72,
  DGX GH200 and A100 in domains of 256, and 38 % and 77 % of the money to lie between the switches
  and the transceivers that rails save.
* Models and data: FastMoE, MoE++, M6-T, LongGen, Long-VITA, PackMamba, packing of
  speech. Optimizers: APOLLO, Muon, SOAP.
* Machines: Frontier's MI250X, ZAYA1's MI300X, Gaudi 2: collectives are assumed."""
COLUMNS = ("", "published", "predicted", "error", "tolerance", "reached")
ALL = (
    sc21,
    selective,
    experts,
    exchanges,
    megascale,
    torchtitan,
    zero_bubble,
    zero_plus_plus,
    sharding,
    islands,
)


def headlines(runs: Iterable[MeasuredRun]) -> tuple[Headline, ...]:
    """Every headline with its figures computed, and the errors on file of those it misses."""
    by_id = Runs(runs)
    of_runs = (one(by_id) for one in ALL)
    of_commands = (table.headline() for table in tables())
    held = tomllib.loads(MISSES.read_text(encoding="utf-8"))
    return tuple(_held(one, held.get(one.key, {})) for one in (*of_runs, *of_commands))


def _held(headline: Headline, errors: Mapping[str, float]) -> Headline:
    unknown = errors.keys() - {figure.what for figure in headline.figures}
    assert not unknown, f"{MISSES.name} has no figure of {headline.key}: {sorted(unknown)}"
    figures = (replace(one, held_error=errors.get(one.what)) for one in headline.figures)
    return replace(headline, figures=tuple(figures))


def page(found: Iterable[Headline], accuracy: str) -> str:
    """The Markdown page; `accuracy` states how far off the model is over all published runs."""
    found = tuple(found)
    parts = (HEAD, _opening(found, accuracy), *map(_section, found), WITHOUT_FIGURE)
    return "\n\n".join(part.strip() for part in parts) + "\n"


def complaints(found: Iterable[Headline]) -> Iterator[str]:
    """Figures that are missed without a reason, or by another error than on file."""
    for headline in found:
        for figure in headline.figures:
            if complaint := figure.complaint():
                yield f"{headline.key}: {figure.what} {complaint}"


def _anchor(title: str) -> str:
    """Name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _opening(found: Iterable[Headline], accuracy: str) -> str:
    rows = [
        (
            f"[{one.title}](#{_anchor(one.title)})",
            str(len(one.figures)),
            str(sum(figure.reached for figure in one.figures)),
        )
        for one in found
    ]
    every, reached = (sum(int(row[at]) for row in rows) for at in (1, 2))
    return f"""\
# Headline results

**{reached} of {every} published figures are reached within their tolerance.**

Results that publications are known for, and what the model gives for the same machine, model and
layout. Each tolerance was chosen before the comparison. Where the model misses it the table has
**no** and the lines below it have the reason. A test fails when a figure without such a line is
missed, and when the error of a missed one moves by more than {percent(DRIFT)} of the larger of the
two. The last figures are answers of the commands printed above them, run in `examples/headlines`.
The constants were fitted on some of these runs: this page shows what is reproduced, not what can be
foretold. [How accurate the estimates are](accuracy.md) states it, over
{accuracy}.
Where a publication does not state an input, the text names what is assumed.

{table(("headline", "figures", "reached"), rows)}"""


def _section(one: Headline) -> str:
    missed = _by_reason(figure for figure in one.figures if not figure.reached)
    reasons = "\n".join(f"* {'; '.join(names)}. {_line(why)}" for why, names in missed.items())
    rows = table(COLUMNS, (figure.cells() for figure in one.figures))
    because = f"\n\nNot reached:\n\n{reasons}" if missed else ""
    return f"## {one.title}\n\n{one.text}\n\n{rows}{because}"


def _by_reason(figures: Iterable[Figure]) -> dict[str, list[str]]:
    missed: dict[str, list[str]] = {}
    for figure in figures:
        missed.setdefault(figure.why, []).append(figure.what)
    return missed


def _line(why: str) -> str:
    return why.replace("\n", " ") or "Not known."
