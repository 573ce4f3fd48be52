"""Goes through the combinations and tells of each as it has run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainplan.costmodel.base import PlanError
from trainplan.planner.verification.by_megatron import Combination
from trainplan.planner.verification.by_runtime import counted as counted_of
from trainplan.planner.verification.compared import Compared, Report, compared
from trainplan.planner.verification.expected import Expected

Run = Callable[[Combination], tuple[Sequence[Report], float] | str]
"""Trains in real processes: what each rank saw, and seconds from start to end, or how something
outside ended one; raises `PlanError` where they fail."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One combination, and how it went."""

    combination: Combination
    seconds: float | None = None
    """From its start to its last report."""
    found: Compared | None = None
    failure: str = ""
    """Why there is nothing to compare."""
    ended: bool = False
    """Something outside ended it, so that nothing is known."""

    @property
    def equal(self) -> bool:
        """Does it compute what one process does, and send and keep what is counted?"""
        return self.found is not None and self.found.equal


def verify(
    reference: Combination,
    others: Iterable[Combination],
    run: Run,
    counted: Callable[[Combination], Expected] = counted_of,
) -> Iterator[Ran]:
    """Run one process, then every combination; yields each of these when it has run.

    Args:
        reference: What one process trains.
        others: What is compared with it.
        run: Trains one of them.
        counted: What its ranks should hold, send and keep.

    Raises:
        PlanError: One process does not come to its end.
    """
    alone = run(reference)
    if isinstance(alone, str):
        raise PlanError(f"one process did not come to its end: {alone}")
    for one in others:
        try:
            found = run(one)
        except PlanError as error:
            yield Ran(one, failure=str(error))
            continue
        if isinstance(found, str):
            yield Ran(one, failure=found, ended=True)
        else:
            yield Ran(one, found[1], compared(one.job, alone[0], found[0], counted(one)))
