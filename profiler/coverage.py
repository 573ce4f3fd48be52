"""What of a machine a profile knows, and which measurement would tell most that it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costmodel.explicit import Terms
from costmodel.hardware import Kind, Provenance
from costmodel.spec.profile import Point, Profile

ERRORS: Mapping[Kind, float] = {"measured": 0.03, "fitted": 0.08, "datasheet": 0.15, "assumed": 0.3}
"""Typical relative error of a number by where it comes from.

Source: `measured` and `fitted` from the scatter of the recorded samples in tests/replay (3 to 8 %);
`datasheet` from sustained bandwidth over nominal in examples/accuracy (0.75 to 0.95); `assumed`
from the range of the fitted GPUs (flop factor 1.12 to 2.0).
"""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that estimates rest on, and the item of `plan profile` that measures it."""

    name: str
    item: str
    terms: tuple[str, ...]
    """Terms of a step it sets."""
    kinds: tuple[str, ...]
    """Kinds of points that give it."""
    curve: str = ""
    """How its curves are called in `Profile.scatter_fraction` begin."""
    quantity: str = ""
    """How `Provenance.quantity` ends, where the catalog says where it has it from."""


QUANTITIES = (
    Quantity("matrix products", "gemm", ("gemm",), ("gemm",), " products", "matrix products"),
    Quantity("attention", "attention", ("attention",), ("attention",), "", "attention"),
    Quantity("whole layers", "layer", ("gemm", "attention", "elementwise", "host"), ("layer",)),
    Quantity("kernels without reuse", "stream", ("elementwise",), ("stream",)),
    Quantity(
        "collectives in a node",
        "collectives",
        ("tp_comm", "ep_comm", "cp_comm"),
        ("collective",),
        "_",
        "collectives",
    ),
    Quantity("links between nodes", "collectives", ("dp_comm", "fsdp_comm"), (), "", "NIC"),
    Quantity("messages between stages", "p2p", ("p2p",), ()),
    Quantity("compute beside traffic", "overlap", ("fsdp_comm",), ("overlap",)),
    Quantity("optimizer step", "optimizer", ("optimizer",), ("optimizer",)),
    Quantity("copies to the host", "copies", ("offload",), ("copy",)),
    Quantity("memory outside the allocator", "memory", (), ("memory",)),
    Quantity("power", "power", (), ("power",)),
)
"""In the order of the items."""


@dataclass(frozen=True, slots=True)
class Known:
    """One quantity: where it comes from, and what that may cost."""

    quantity: Quantity
    kind: Kind
    points: int
    scatter_fraction: float
    """Typical relative error."""
    share: float
    """Of the step the estimate was asked for."""

    @property
    def doubt(self) -> float:
        """Part of the step time that measuring it would make sure of. Source: derived."""
        return self.share * max(0.0, self.scatter_fraction - ERRORS["measured"])


def coverage(
    profile: Profile, provenance: Sequence[Provenance], terms: Terms, step_time_s: float
) -> tuple[Known, ...]:
    """Every quantity with its origin; `terms` are exposed seconds of a step of `step_time_s`."""
    return tuple(
        _known(quantity, profile, provenance, terms, step_time_s) for quantity in QUANTITIES
    )


def next_measurement(known: Sequence[Known]) -> Known | None:
    """The quantity whose measurement would shrink the error most; null where none is left."""
    open_ones = [one for one in known if one.kind != "measured" and one.doubt > 0]
    return max(open_ones, key=lambda one: one.doubt, default=None)


def _known(
    quantity: Quantity,
    profile: Profile,
    provenance: Sequence[Provenance],
    terms: Terms,
    step_time_s: float,
) -> Known:
    points = sum(_gives(quantity, point) for point in profile.points)
    kind = "measured" if points else _catalog_kind(quantity, provenance)
    scatters = [
        value
        for name, value in profile.scatter_fraction.items()
        if quantity.curve and quantity.curve in name
    ]
    scatter = max(scatters) if points and scatters else ERRORS[kind]
    names = _terms(quantity, num_nodes=profile.num_nodes)
    share = sum(getattr(terms, name) for name in names) / step_time_s
    return Known(quantity, kind, points, scatter, max(0.0, share))


def _terms(quantity: Quantity, *, num_nodes: int) -> tuple[str, ...]:
    """In a single node, data-parallel traffic takes its links. Source: derived."""
    if num_nodes > 1 or quantity.item != "collectives":
        return quantity.terms
    links = [one.terms for one in QUANTITIES if one.item == "collectives"]
    return () if quantity.quantity == "NIC" else sum(links, ())


def _gives(quantity: Quantity, point: Point) -> bool:
    if point.kind != "collective":
        return point.kind in quantity.kinds
    if point.operation == "p2p":
        return quantity.item == "p2p"
    across = point.ranks > point.per_node
    return quantity.item == "collectives" and across == (quantity.quantity == "NIC")


def _catalog_kind(quantity: Quantity, provenance: Sequence[Provenance]) -> Kind:
    kinds = [
        p.kind for p in provenance if quantity.quantity and p.quantity.endswith(quantity.quantity)
    ]
    return kinds[0] if kinds else "fitted"
