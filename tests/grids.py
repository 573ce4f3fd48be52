"""Samples of large grids of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

import pytest


def sampled(cells: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Cells in which every value of every parameter occurs; the same whenever they are asked for.

    Names are put in the order of their checksums: as good as drawn, and no seed to hand on.
    """
    seen: set[tuple[str, str]] = set()
    for item in sorted(cells, key=lambda item: crc32(item.name.encode())):
        values = {(name, repr(value)) for name, value in item.callspec.params.items()}
        if not values <= seen:
            seen |= values
            yield item
