"""A curve drawn in characters, both axes by powers."""

from __future__ import annotations

import math
from collections.abc import Sequence

HEIGHT = 10
WIDTH = 72
POINT, IDEAL, KNEE = "o", ".", "K"


def curve(
    values: Sequence[float | None],
    ideal: Sequence[float | None],
    labels: Sequence[str],
    *,
    knee: int | None = None,
) -> list[str]:
    """Lines of a picture: a point for each value, a dot where the ideal would be.

    Points stand at equal distances; the height is logarithmic. None leaves a gap.
    """
    known = [value for value in (*values, *ideal) if value]
    if not known:
        return []
    low, high = math.log(min(known)), math.log(max(known))
    span = (high - low) or 1.0
    step = max(1, min(WIDTH // max(1, len(labels)), 12))
    rows = [[" "] * (step * len(labels)) for _ in range(HEIGHT)]

    def mark(place: int, value: float | None, sign: str) -> None:
        if value:
            row = HEIGHT - 1 - round((math.log(value) - low) / span * (HEIGHT - 1))
            rows[row][place * step + step // 2] = sign

    for place, (value, best) in enumerate(zip(values, ideal, strict=True)):
        mark(place, best, IDEAL)
        mark(place, value, KNEE if place == knee else POINT)
    names = "".join(label[: step - 1].center(step) for label in labels)
    return ["".join(row).rstrip() for row in rows] + [names.rstrip()]
