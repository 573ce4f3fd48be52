"""What of a machine a profile knows, and which measurement would tell most that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainplan.costmodel.machine.hardware import STRIDED, STRIDED_GROUPS, Provenance, SourceKind
from trainplan.costmodel.measured.host import DRIVE_WAYS
from trainplan.costmodel.spec.evidence.profile import Point, Profile
from trainplan.costmodel.step.results import Terms
from trainplan.profiler.fit.quantities import (
    ERRORS,
    NEIGHBOURS,
    QUANTITIES,
    Quantity,
    Standing,
    other_kernels,
)


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

    @property
    def doubt(self) -> float:
        """Part of the step time that measuring it would make sure of.

        Source: a term with this share of the step moves it by share times scatter; measured, it
        would still scatter by ERRORS, so the difference is what is won.
        """
        return self.share * max(0.0, self.scatter_fraction - ERRORS["measured"])


def coverage(
    profile: Profile, provenance: Sequence[Provenance], terms: Terms, step_time_s: float
) -> tuple[KnownQuantity, ...]:
    """Every quantity with its origin; `terms` are exposed seconds of a step of `step_time_s`.

    What estimates do without is listed where it was measured, strided groups where the machine has
    them.
    """
    listed = [one for one in QUANTITIES if not _strided(one) or _said(one, provenance)]
    known = (_known(quantity, profile, provenance, terms, step_time_s) for quantity in listed)
    return tuple(one for one in known if one.points or not one.quantity.apart)


def next_measurement(known: Sequence[KnownQuantity]) -> KnownQuantity | None:
    """The quantity whose measurement would shrink the error most; null where none is left."""
    open_ones = [one for one in known if one.kind != "measured" and one.doubt > 0]
    return max(open_ones, key=lambda one: one.doubt, default=None)


def _known(
    quantity: Quantity,
    profile: Profile,
    provenance: Sequence[Provenance],
    terms: Terms,
    step_time_s: float,
) -> KnownQuantity:
    points = sum(_gives(quantity, point) for point in profile.points)
    kind = _standing(quantity, profile, provenance)
    scatters = [
        value
        for name, value in profile.scatter_fraction.items()
        if quantity.curve and quantity.curve in name and _strided(quantity) == (STRIDED in name)
    ]
    scatter = max(scatters) if kind == "measured" and scatters else ERRORS[kind]
    names = _terms(quantity, num_nodes=profile.num_nodes)
    share = sum(getattr(terms, name) for name in names) / step_time_s
    return KnownQuantity(quantity, kind, points, scatter, max(0.0, share))


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
    if quantity.apart:
        return "other kernels only" if other_kernels(quantity, profile) else quantity.apart
    kinds = _said(quantity, provenance)
    return kinds[0] if kinds else "fitted"


def _said(quantity: Quantity, provenance: Sequence[Provenance]) -> list[SourceKind]:
    """What the machine says of where it has the number from."""
    return [
        p.kind for p in provenance if quantity.quantity and p.quantity.endswith(quantity.quantity)
    ]
