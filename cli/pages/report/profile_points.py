"""How measured points and the curves through them are drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from trainplan.cli.pages.figures import log_axis, scatter, short
from trainplan.cli.pages.profile import NOT_ODD
from trainplan.costmodel.profiles import Timing

LINE_POINTS = 40
"""Of a drawn curve."""


def is_odd(timing: Timing) -> bool:
    """Something is wrong with it, beyond that it is another tool's."""
    return any(flag not in NOT_ODD for flag in timing.flags)


def markers(times: Sequence[Timing], colour: str) -> Mapping[str, object]:
    """Filled points; those to doubt are open and crossed."""
    return {
        "size": [9 if is_odd(one) else 6 for one in times],
        "symbol": ["circle-x-open" if is_odd(one) else "circle" for one in times],
        "color": colour,
    }


def fitted_line(
    x: Sequence[float], y: Sequence[float], name: str, colour: str
) -> dict[str, object]:
    """A curve through points."""
    line = {"color": colour, "width": 1.5, "dash": "dash"}
    return scatter(name, x, y, "%{y:.4g}<extra>%{fullData.name}</extra>", mode="lines", line=line)


def spaced(values: Sequence[float]) -> list[float]:
    """From the least to the largest, evenly on a logarithmic axis."""
    return [float(x) for x in np.geomspace(min(values), max(values), LINE_POINTS)]


def bytes_axis(sizes: Iterable[float]) -> dict[str, object]:
    """Of sizes."""
    return log_axis(sizes, partial(short, unit="B"))
