"""Questions that differ in one choice, searched until none left can have a better answer."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")


def best_first(
    waiting: Sequence[tuple[Item, float]],
    search: Callable[[Item, float], tuple[float, float]],
    spent: Callable[[], bool],
) -> Iterator[tuple[Item, float, float]]:
    """Each item with the value of its best answer and what no answer of it goes below.

    Items wait with their bounds, in the order in which they are searched. One whose bound is not
    below the best value so far is not searched; nor is one when the time is over, if there is an
    answer. `search` is given the value to beat, and has an infinite value where nothing does.
    """
    best, found = np.inf, False
    for item, floor in waiting:
        value, bound = np.inf, floor
        if bound < best and not (found and spent()):
            value, bound = search(item, best)
            found, best = found or value < best, min(best, value)
        yield item, value, bound
