"""The section of docs/accuracy.md on what one measured step buys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from accuracy_findings import Json
from accuracy_tables import Row, table

from trainplan.cli.words import percent
from trainplan.costmodel.validate.one_step import OneSteps


def section(one_step: OneSteps | None, held_out: Json | None) -> str:
    """The section of the page: in sample, and with each source left out of the fit."""
    assert one_step
    return f"""\
## After one measured step

The speed that `plan calibrate` takes from one measured step divides the prediction of another
layout, on the same GPU, precision, runtime and source; a run counts with the median over all such
partners. *Model*: the step was of the same model and sequence length; *family*: of that or another
model of its family; *other*: of another family. A step corrects its own model most; other families
only where the machine was not among those fitted.

{_table(asdict(one_step))}

{_held_out(held_out)}"""


def _held_out(found: Json | None) -> str:
    if found is None or "one_step" not in found:
        return ""
    return f"""\
The same with constants that never saw the source, as on a machine that was never fitted:

{_table(found["one_step"])}"""


def _table(found: Mapping[str, Any]) -> str:
    """Errors before and after one measured step by source, and their means."""
    kinds = {"model": found["same_model"], "family": found, "other": found["other_family"]}
    shown = {name: one for name, one in kinds.items() if one}
    by_source = {
        name: {row["source"]: row for row in one["sources"]} for name, one in shown.items()
    }
    sources = sorted({source for rows in by_source.values() for source in rows})
    head = (
        "source",
        *(f"{name}: {part}" for name in shown for part in ("runs", "before", "after")),
    )
    rows = [
        (source, *(cell for one in by_source.values() for cell in _before_after(one.get(source))))
        for source in sources
    ]
    means = (cell for one in shown.values() for cell in _before_after({"n": "", **one}))
    return table(head, [*rows, ("mean of the sources", *means)])


def _before_after(one: Mapping[str, Any] | None) -> Row:
    if one is None:
        return "", "", ""
    return str(one["n"]), percent(one["before_fraction"]), percent(one["after_fraction"])
