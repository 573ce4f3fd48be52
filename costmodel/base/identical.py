"""A key for caches: the very same object."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Identical(Generic[T]):
    """Equal only to a key of the same object: for values that are long to compare or hold arrays.

    The key keeps its object alive, so no other one takes its place in memory.
    """

    of: T

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identical) and self.of is other.of
