"""What of a machine a profile knows, and which measurement would tell most that it does not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from trainplan.costmodel.machine import STRIDED, STRIDED_GROUPS, Provenance, SourceKind
from trainplan.costmodel.measured import DRIVE_WAYS
from trainplan.costmodel.profiles import Point, Profile
from trainplan.costmodel.step import Terms
from trainplan.profiler.fit.quantities import (
    ERRORS,
    NEIGHBOURS,
    QUANTITIES,
    Quantity,
    Standing,
    other_kernels,
)
from trainplan.profiler.journal import DOUBTFUL, noise_fraction, timings


@dataclass(frozen=True, slots=True)
class KnownQuantity:
    """One quantity: where it comes from, and what that may cost."""

    quantity: Quantity
    kind: Standing
    points: int
    scatter_fraction: float
    """Typical relative error; of what no estimate takes none."""
    share: float
    """Of the step the estimate was asked for."""
    timings: int = 0
    """Of its points."""
    doubtful: int = 0
    """Of them, those with a flag that another time may clear."""
    noise_fraction: float | None = None
    """How far its timings are off on average; null where none says."""
    quiet_fraction: float = ERRORS["measured"]
    """What it would scatter by if it were measured as the others were."""

    @property
    def uncertainty(self) -> float:
        """Part of the step time that measuring it, or measuring it again, would make sure of.

        Source: a term with this share of the step moves it by share times scatter; measured,
        it would still scatter, so the difference is what is won. Of what was measured, the scatter
        of its timings alone: that of a curve about its points is not less in another run.
        """
        if self.kind == "measured":
            return self.share * max(0.0, (self.noise_fraction or 0.0) - ERRORS["measured"])
        return self.share * max(0.0, self.scatter_fraction - self.quiet_fraction)


def coverage(
    profile: Profile, provenance: Sequence[Provenance], terms: Terms, step_time_s: float
) -> tuple[KnownQuantity, ...]:
    """Every quantity with its origin; `terms` are exposed seconds of a step of `step_time_s`.

    What estimates do without is listed where it was measured, strided groups where the machine has
    them.
    """
    listed = [one for one in QUANTITIES if not _strided(one) or _source_kinds(one, provenance)]
    quiet = max(ERRORS["measured"], noise_of(profile.points) or 0.0)
    known = (
        replace(_known(quantity, profile, provenance, terms, step_time_s), quiet_fraction=quiet)
        for quantity in listed
    )
    return tuple(one for one in known if one.points or not one.quantity.unused)


def next_measurement(known: Sequence[KnownQuantity]) -> KnownQuantity | None:
    """The quantity whose measurement, first or again, would shrink the error most; null: none."""
    open_ones = [one for one in known if one.uncertainty > 0]
    return max(open_ones, key=lambda one: one.uncertainty, default=None)


def least_certain(known: Sequence[KnownQuantity]) -> KnownQuantity | None:
    """The quantity most of whose timings are doubtful, where most of all are; null: nowhere."""
    if 2 * sum(one.doubtful for one in known) <= sum(one.timings for one in known):
        return None
    return max(known, key=lambda one: one.doubtful, default=None)


def noise_of(points: Sequence[Point]) -> float | None:
    """How far timings are off on average; null without one whose repeats are known.

    Source: derived; the mean, as a step is the sum of what is timed.
    """
    noises = [
        noise_fraction(one.time)
        for one in timings(points)
        if one.time.repeats > 1 and "stated" not in one.time.flags
    ]
    return fmean(noises) if noises else None


def _known(
    quantity: Quantity,
    profile: Profile,
    provenance: Sequence[Provenance],
    terms: Terms,
    step_time_s: float,
) -> KnownQuantity:
    points = [point for point in profile.points if _gives(quantity, point)]
    kind, noise = _standing(quantity, profile, provenance), noise_of(points)
    scatters = [
        value
        for name, value in profile.scatter_fraction.items()
        if quantity.curve and quantity.curve in name and _strided(quantity) == (STRIDED in name)
    ]
    scatter = ERRORS[kind]
    if kind == "measured":  # by these timings and their curves, not by those of others
        scatter = max([*scatters, *([noise] if noise is not None else [])], default=scatter)
    names = _terms(quantity, num_nodes=profile.num_nodes)
    share = sum(getattr(terms, name) for name in names) / step_time_s
    times = [one.time for one in timings(points)]
    return KnownQuantity(
        quantity,
        kind,
        len(points),
        scatter,
        max(0.0, share),
        timings=len(times),
        doubtful=sum(bool(DOUBTFUL & set(time.flags)) for time in times),
        noise_fraction=noise,
    )


def _terms(quantity: Quantity, *, num_nodes: int) -> tuple[str, ...]:
    """In a single node, data-parallel traffic takes its links.

    Source: GPUs of one node reach each other by its links alone, so traffic that collectives
    between nodes would carry goes there.
    """
    if num_nodes > 1 or quantity.item != "collectives":
        return quantity.terms
    links = [one.terms for one in QUANTITIES if one.item == "collectives"]
    return sum(links, ()) if quantity.quantity == NEIGHBOURS else ()


def _gives(quantity: Quantity, point: Point) -> bool:
    if point.kind == "copy":
        return quantity.item == ("drive" if point.direction in DRIVE_WAYS else "copies")
    if point.kind == "optimizer":
        return quantity.item == ("optimizer" if point.place == "gpu" else "cpu_adam")
    if point.kind != "collective":
        return point.kind in quantity.kinds
    if point.operation == "p2p":
        return quantity.item == "p2p"
    inside = STRIDED_GROUPS if point.stride > 1 else NEIGHBOURS
    return quantity.quantity == ("NIC" if point.ranks > point.per_node else inside)


def _strided(quantity: Quantity) -> bool:
    return quantity.name == STRIDED_GROUPS


def _standing(quantity: Quantity, profile: Profile, provenance: Sequence[Provenance]) -> Standing:
    if quantity.taken(profile):
        return "measured"
    if quantity.unused:
        return "other kernels only" if other_kernels(quantity, profile) else quantity.unused
    kinds = _source_kinds(quantity, provenance)
    return kinds[0] if kinds else "fitted"


def _source_kinds(quantity: Quantity, provenance: Sequence[Provenance]) -> list[SourceKind]:
    """What the machine says of where it has the number from."""
    return [
        p.kind for p in provenance if quantity.quantity and p.quantity.endswith(quantity.quantity)
    ]
