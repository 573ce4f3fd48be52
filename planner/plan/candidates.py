"""The alternatives of a written plan, and the step time it was written with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from trainplan.costmodel.base import SpecError

ROUNDING = 1e-6
"""Relative difference of two step times that is no more than rounding."""


def with_candidate(text: str, number: int) -> str:
    """A plan document whose best layout is another one of its table.

    Nodes were placed for the best alone: another layout finds them in the order of the cluster.

    Raises:
        SpecError: The plan has no table, or none of this rank in it.
    """
    document: object = json.loads(text)
    if not isinstance(document, dict):
        raise SpecError("no plan: expected an object; `plan search --output` writes plans")
    listed = dict(_ranked(document.get("candidates")))
    if number not in listed:
        known = ", ".join(map(str, listed)) or "none"
        raise SpecError(f"no candidate {number}: the plan lists {known}")
    best = {key: listed[number].get(key) for key in ("layout", "estimate")}
    placement = document.get("placement") if best == document.get("best") else None
    changed = {**document, "best": best, "placement": placement}
    return json.dumps(changed, indent=2, ensure_ascii=False) + "\n"


def _ranked(candidates: object) -> Iterator[tuple[int, dict[str, object]]]:
    """Rank and entry of every alternative."""
    for entry in candidates if isinstance(candidates, list) else ():
        rank = entry.get("rank") if isinstance(entry, dict) else None
        if isinstance(rank, int):
            yield rank, entry


def written_step_time(text: str) -> float:
    """Seconds of a step of the best layout as the document says; NaN if it does not."""
    value: object = json.loads(text)
    for key in ("best", "estimate", "step_time_s"):
        value = value.get(key) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) else float("nan")


def made_otherwise(written_s: float, now_s: float) -> bool:
    """Was a step time written with other numbers than those of now? Not if it is not written."""
    return math.isfinite(written_s) and abs(written_s / now_s - 1) > ROUNDING
