"""Samples of large grids of parameters, and of the examples of heavy properties."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar
from zlib import crc32

import pytest
from hypothesis import settings

T = TypeVar("T")


class Request:
    """What the options of this run ask for."""

    full = False
    """Every cell of every grid, and all examples."""


def number(by_day: int, by_night: int) -> int:
    """How many draws a heavy test makes: more where `--full` is asked for."""
    return by_night if Request.full else by_day


def examples(by_day: int, by_night: int) -> settings:
    """So many examples of a property."""
    return settings(max_examples=number(by_day, by_night))


def some_cases(cases: Iterable[T], by_day: int) -> list[T]:
    """So many cases at most, spread evenly, the first among them; all where `--full` asks."""
    every = list(cases)
    return every[:: 1 if Request.full else -(-len(every) // by_day)]


def sampled(cells: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Cells in which every value of every parameter occurs; the same whenever they are asked for.

    Next is the cell with most values that none before it has. Of equal ones names decide, in the
    order of their checksums: as good as drawn, and no seed to hand on.
    """
    order = sorted(cells, key=lambda item: crc32(item.name.encode()))
    left = {item: {(n, repr(v)) for n, v in item.callspec.params.items()} for item in order}
    while any(left.values()):
        item = max(left, key=lambda one: len(left[one]))
        yield item
        seen = left.pop(item)
        left = {one: values - seen for one, values in left.items()}


EXACT = {"slack": 0.0, "only_written": False}
"""Options of a search that brute force knows: the fastest of all that the runtime runs."""
