"""The numbers that estimates rest on, and which measurement tells each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import CPU
from trainplan.costmodel.job import DEFAULT_RUNTIME
from trainplan.costmodel.machine import MESSAGES, STRIDED, STRIDED_GROUPS, SourceKind
from trainplan.costmodel.measured import DRIVE_WAYS, speed_spread
from trainplan.costmodel.profiles import (
    HOST_COPIES,
    MEASURED_RUNTIME,
    CopyPoint,
    EndPoint,
    LayerPoint,
    MemoryPoint,
    OptimizerPoint,
    Profile,
)
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits

NotInEstimates = Literal["torch-eager only", "other kernels only", "not used by estimates"]
"""Why an estimate takes no number from what was measured."""
Standing = Literal[SourceKind, NotInEstimates]
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
"""Typical relative error of a number by where it comes from; `measured` stands for timings that do
not say how they scatter.

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
    kernels = _traits(profile).kernels
    unfused = kernels.attention == "unfused"
    return any(
        p.kernels == kernels.elementwise and (p.attention == "unfused") == unfused
        for p in profile.points
        if isinstance(p, LayerPoint)
    )


def _traits(profile: Profile) -> RuntimeTraits:
    """Those of the priced runtime on the device of the profile."""
    device, traits = profile.device or catalog.gpu(profile.gpu), RUNTIMES[DEFAULT_RUNTIME]
    return traits.without_engine(traits) if device.architecture == CPU else traits


def _ends(profile: Profile) -> bool:
    """As `_layers`, of embedding and head."""
    kernels = _traits(profile).kernels.elementwise
    return any(p.kernels == kernels for p in profile.points if isinstance(p, EndPoint))


def other_kernels(quantity: Quantity, profile: Profile) -> bool:
    """Did something else than plain PyTorch run the layers or ends of a quantity?"""
    return any(
        p.kind in quantity.kinds and p.runtime != MEASURED_RUNTIME
        for p in profile.points
        if isinstance(p, LayerPoint | EndPoint)
    )


def _optimizer(profile: Profile) -> bool:
    """Adam's, which is what the judged step updates with."""
    adam = (p for p in profile.points if isinstance(p, OptimizerPoint) and p.name == "adamw")
    return any(p.place == "gpu" for p in adam)


def _host_updates(profile: Profile) -> bool:
    return any(isinstance(p, OptimizerPoint) and p.place == "cpu" for p in profile.points)


def _drive(profile: Profile) -> bool:
    """Both ways past the cache: what the cache gives tells nothing of the drive."""
    ways = {p.direction for p in profile.points if isinstance(p, CopyPoint) and not p.cached}
    return ways >= set(DRIVE_WAYS)


def _copies(profile: Profile) -> bool:
    return any(isinstance(p, CopyPoint) and p.direction in HOST_COPIES for p in profile.points)


def _memory(profile: Profile) -> bool:
    names = {p.name for p in profile.points if isinstance(p, MemoryPoint)}
    return names >= {"context_bytes", "communicator_bytes"}


def _stragglers(profile: Profile) -> bool:
    return speed_spread(profile.points) is not None


UNUSED: NotInEstimates = "not used by estimates"
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
    unused: NotInEstimates | None = None
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
        unused="torch-eager only",
    ),
    Quantity(
        "embedding and head", "head", (), ("embedding", "head"), _ends, unused="torch-eager only"
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
        "compute during traffic",
        "overlap",
        ("fsdp_comm",),
        ("overlap",),
        lambda profile: "fsdp_contention" in profile.constants,
    ),
    Quantity("optimizer step", "optimizer", ("optimizer",), ("optimizer",), _optimizer),
    Quantity("copies to the host", "copies", ("offload",), ("copy",), _copies),
    Quantity("memory outside the allocator", "memory", (), ("memory",), _memory),
    Quantity("Adam in host memory", "cpu_adam", (), (), _host_updates, unused=UNUSED),
    Quantity("drive", "drive", (), (), _drive, unused=UNUSED),
    Quantity("power", "power", (), ("power",), _stragglers, unused=UNUSED),
)
"""In the order of the items."""
