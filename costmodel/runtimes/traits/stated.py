"""What a run states goes before what its runtime does by itself."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def stated_or(stated: T | None, default: T) -> T:
    """The option of a run, or the default where it is silent."""
    return default if stated is None else stated
