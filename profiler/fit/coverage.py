"""What of a machine a profile knows, and which measurement would tell most that it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel.machine.hardware import (
    MESSAGES,
    STRIDED,
    STRIDED_GROUPS,
    Provenance,
    SourceKind,
)
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.spec.evidence.profile import (
    HOST_COPIES,
    MEASURED_RUNTIME,
    CopyPoint,
    EndPoint,
    LayerPoint,
    MemoryPoint,
    OptimizerPoint,
    Point,
    Profile,
)
from trainplan.costmodel.spec.job import DEFAULT_RUNTIME
from trainplan.costmodel.step.results import Terms

Apart = Literal["torch-eager only", "other kernels only", "not used by estimates"]
"""Why an estimate takes no number from what was measured."""
Standing = Literal[SourceKind, Apart]
"""Where the number that an estimate takes comes from, or why it takes none."""
ERRORS: Mapping[Standing, float] = {
    "measured": 0.03,
    "fitted": 0.08,
    "datasheet": 0.15,
    "assumed": 0.3,
    "torch-eager only": 0.0,
    "other kernels only": 0.0,
    "not used by estimates": 0.0,
}
"""Typical relative error of a number by where it comes from.

Source: `measured` and `fitted` from the scatter of the recorded samples in tests/replay (3 to 8 %);
`datasheet` from sustained bandwidth over nominal in examples/accuracy (0.75 to 0.95); `assumed`
from the range of the fitted GPUs (flop factor 1.12 to 2.0).
"""

Taken = Callable[[Profile], bool]
"""Does an estimate take a number from the profile?"""


def _nothing(profile: Profile) -> bool:
    return False


def _layers(profile: Profile) -> bool:
    """Layers set levels where kernels like those of the priced runtime ran.

    Source: `costmodel.blocks.measured_layers`.
    """
    traits = RUNTIMES[DEFAULT_RUNTIME]
    unfused = traits.kernels.attention == "unfused"
    return any(
        p.kernels == traits.kernels.elementwise and (p.attention == "unfused") == unfused
        for p in profile.points
        if isinstance(p, LayerPoint)
    )


def _ends(profile: Profile) -> bool:
    """As `_layers`, of embedding and head."""
    kernels = RUNTIMES[DEFAULT_RUNTIME].kernels.elementwise
    return any(p.kernels == kernels for p in profile.points if isinstance(p, EndPoint))


def _other_kernels(quantity: Quantity, profile: Profile) -> bool:
    """Did something else than plain PyTorch run the layers or ends of a quantity?"""
    return any(
        p.kind in quantity.kinds and p.runtime != MEASURED_RUNTIME
        for p in profile.points
        if isinstance(p, LayerPoint | EndPoint)
    )


def _optimizer(profile: Profile) -> bool:
    return any(isinstance(p, OptimizerPoint) and p.place == "gpu" for p in profile.points)


def _copies(profile: Profile) -> bool:
    return any(isinstance(p, CopyPoint) and p.direction in HOST_COPIES for p in profile.points)


def _memory(profile: Profile) -> bool:
    names = {p.name for p in profile.points if isinstance(p, MemoryPoint)}
    return names >= {"context_bytes", "communicator_bytes"}


NEIGHBOURS = "collectives"
"""How the `Provenance` of groups in a node whose members are next to each other ends."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number that estimates rest on, and the item of `plan profile` that measures it."""

    name: str
    item: str
    terms: tuple[str, ...]
    """Terms of a step it sets."""
    kinds: tuple[str, ...]
    """Kinds of points that tell of it."""
    taken: Taken = _nothing
    """Where no `Provenance` says it: is the number that of the profile?"""
    curve: str = ""
    """How its curves are called in `Profile.scatter_fraction` begin."""
    quantity: str = ""
    """How `Provenance.quantity` ends, where the machine says where it has it from."""
    apart: Apart | None = None
    """Why estimates do without it, so that nobody is sent to measure it."""


QUANTITIES = (
    Quantity(
        "matrix products",
        "gemm",
        ("gemm",),
        ("gemm",),
        curve=" products",
        quantity="matrix products",
    ),
    Quantity("attention", "attention", ("attention",), ("attention",), quantity="attention"),
    Quantity(
        "whole layers",
        "layer",
        ("gemm", "attention", "elementwise", "host"),
        ("layer",),
        _layers,
        apart="torch-eager only",
    ),
    Quantity(
        "embedding and head", "head", (), ("embedding", "head"), _ends, apart="torch-eager only"
    ),
    Quantity(
        "kernels without reuse",
        "stream",
        ("elementwise",),
        ("stream",),
        lambda profile: "elementwise_efficiency" in profile.constants,
    ),
    Quantity(
        "collectives in a node",
        "collectives",
        ("tp_comm", "ep_comm", "cp_comm"),
        ("collective",),
        curve="_",
        quantity=NEIGHBOURS,
    ),
    Quantity(
        STRIDED_GROUPS,
        "collectives",
        (),  # tensor parallelism fills the node of the judged step, as far as heads allow
        (),
        curve=STRIDED,
        quantity=STRIDED_GROUPS,
    ),
    Quantity("links between nodes", "collectives", ("dp_comm", "fsdp_comm"), (), quantity="NIC"),
    Quantity(
        "messages between stages",
        "p2p",
        ("p2p",),
        (),
        lambda profile: any(name.startswith(MESSAGES) for name in profile.fitted.collectives),
    ),
    Quantity(
        "compute beside traffic",
        "overlap",
        ("fsdp_comm",),
        ("overlap",),
        lambda profile: "fsdp_contention" in profile.constants,
    ),
    Quantity("optimizer step", "optimizer", ("optimizer",), ("optimizer",), _optimizer),
    Quantity("copies to the host", "copies", ("offload",), ("copy",), _copies),
    Quantity("memory outside the allocator", "memory", (), ("memory",), _memory),
    Quantity("drive", "drive", (), (), apart="not used by estimates"),
    Quantity("power", "power", (), ("power",), apart="not used by estimates"),
)
"""In the order of the items."""


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
        return quantity.item == ("copies" if point.direction in HOST_COPIES else "drive")
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
        return "other kernels only" if _other_kernels(quantity, profile) else quantity.apart
    kinds = _said(quantity, provenance)
    return kinds[0] if kinds else "fitted"


def _said(quantity: Quantity, provenance: Sequence[Provenance]) -> list[SourceKind]:
    """What the machine says of where it has the number from."""
    return [
        p.kind for p in provenance if quantity.quantity and p.quantity.endswith(quantity.quantity)
    ]
