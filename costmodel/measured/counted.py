"""How much each measured part of a profile counts beside the catalog.

Both are estimates of one number with an error each: the catalog's by what it rests on for the GPU
(`costmodel.catalog.evidence`), that of points by their scatter, by what a step adds to kernels that
were timed alone (`costmodel.residuals.share`), and by how little other tools say of how they
measured.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, log
from statistics import median
from types import MappingProxyType

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, MICROSECOND
from trainplan.costmodel.catalog import evidence_of
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.hardware import CollectiveFit, Fit
from trainplan.costmodel.job import Precision
from trainplan.costmodel.kernels import streaming_bytes_per_second
from trainplan.costmodel.machine import OPERATIONS, SHAPES, STRIDES, GemmRate, Machine
from trainplan.costmodel.measured.curve_residuals import (
    collective_seconds_on,
    fitted_attention,
    inside_domain,
    on_curve,
    single_products,
)
from trainplan.costmodel.profiles import (
    AttentionPoint,
    CollectivePoint,
    OptimizerPoint,
    Point,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.costmodel.residuals import MAD_OF_NORMAL, Share, noise_of, share, stated_spread

ALL = 0.995
"""Share from which on nothing is said of the rest: it would be printed as 0 %."""
SHARED_LINK = "PCIe"
"""How links are called that groups of a node have in common, by switches and host bridges; each GPU
has its own NVLink ports."""
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{7}")


@dataclass(frozen=True, slots=True)
class Doubt:
    """How far the catalog may be off in each part, in log units; infinite: it knows nothing."""

    products: float
    """Whole layers and ends, too, which are mostly products."""
    attention: float
    streams: float
    collectives: float
    network: float


def doubt_of(profile: Profile, precision: Precision) -> Doubt:
    """What the catalog is off by where it never saw the machine; less on the GPU where it did.

    Memory and the links of a scale-up domain come with the GPU; PCIe and the network are another
    machine's in any case. What the catalog's own curve is fitted to is no news.
    Source: costmodel/catalog/spreads.toml, `runs` for kernels, `scalars` for the rest, each source
    left out; of a GPU that was seen they are as much less as `runs` are.
    """
    evidence, sizes = evidence_of(profile.gpu, precision), catalog.spreads()
    seen, unseen = sizes.runs.machine_seen.value, sizes.runs.machine_unseen.value
    kernels = {"measured": seen, "stand-in": unseen, "assumed": inf}
    fits, scalars = catalog.fitted(profile.gpu), sizes.scalars
    same_kernels = _again(profile, fits.gemm.values())
    same_links = _again(profile, fits.collectives.values())
    less = seen / unseen if evidence.products == "measured" else 1.0
    inside = scalars["intra_node_bandwidth"].value if evidence.collectives != "assumed" else inf
    inside *= 1.0 if catalog.gpu(profile.gpu).link.startswith(SHARED_LINK) else less
    return Doubt(
        products=0.0 if same_kernels else kernels[evidence.products],
        attention=0.0 if same_kernels else kernels[evidence.attention],
        streams=scalars["memory_bandwidth"].value * less,
        collectives=0.0 if same_links else inside,
        network=0.0 if same_links else scalars["inter_node_bandwidth"].value,
    )


def _again(profile: Profile, fits: Iterable[Fit]) -> bool:
    """Is one of these fits of the catalog made of the measurements of the profile?"""
    mine = {found[0] for one in profile.origins if (found := REPOSITORY.match(one.source))}
    return any(name in fit.source for fit in fits for name in mine)


def _share(
    ratios: Sequence[float], times: Sequence[Timing], spread: float, scatter_fraction: float = 0.0
) -> Share:
    """Share of points by measured over known seconds."""
    if not ratios:
        return Share()
    logs = [log(one) for one in ratios]
    return share(median(logs), spread, noise_of(times, len(ratios), scatter_fraction))


def share_of_products(
    known: Machine,
    profile: Profile,
    rate: GemmRate,
    precisions: tuple[Precision, ...],
    doubt: Doubt,
) -> Share:
    """Of single products in some precisions, by what the catalog's curve says of each.

    Products with fast accumulation are told by their distance from the curve, so they set none.
    """
    mine = single_products(profile.points, precisions)
    if not mine:
        return Share()
    seconds = on_curve(known.memory_bytes_per_second, rate, mine).seconds.tolist()
    ratios = [p.time.seconds / one for p, one in zip(mine, seconds, strict=True)]
    scatter = max(profile.scatter_fraction.get(f"{p} products", 0.0) for p in precisions)
    return _share(ratios, [p.time for p in mine], doubt.products, scatter)


def share_of_attention(known: Machine, points: Sequence[Point], doubt: Doubt) -> Share:
    """Of the fused core, both passes of a point together where both were timed."""
    ratios, times = [], []
    for point in points:
        if isinstance(point, AttentionPoint):
            forward, backward = fitted_attention(known, point)
            both = point.backward.seconds if point.backward else 0.0
            whole = forward + (backward if point.backward else 0.0)
            ratios.append((point.forward.seconds + both) / whole)
            times.append(point.forward)
    return _share(ratios, times, doubt.attention)


def share_of_streams(
    known: Machine, measured: Machine, points: Sequence[Point], doubt: Doubt
) -> Share:
    """Of all speeds of kernels without reuse that were measured.

    Source: as `_share`; one speed of each sort, however many sizes it was taken at.
    """
    speeds = (
        measured.optimizer_bytes_per_second,
        measured.loss_bytes_per_second,
        measured.permute_bytes_per_second,
        streaming_bytes_per_second(measured) if _gives(known, measured) else None,
    )
    ratios = [streaming_bytes_per_second(known) / one for one in speeds if one]
    times = [p.time for p in points if isinstance(p, StreamPoint | OptimizerPoint)]
    return _share(ratios, times, doubt.streams)


def _gives(known: Machine, measured: Machine) -> bool:
    """Do the points give the bandwidth of kernels without reuse?"""
    return measured.constants.elementwise_efficiency != known.constants.elementwise_efficiency


def share_of_links(known: Machine, profile: Profile, spread: float) -> Mapping[str, Share]:
    """Share of each curve of collectives and messages inside a domain.

    Source: `share`, with nothing added in a step that the catalog's curve, taken alone as well,
    would not add, too; one size of message counts in a step, so its scatter counts whole.
    """
    found, points = {}, [p for p in profile.points if isinstance(p, CollectivePoint)]
    for name in profile.fitted.collectives:
        mine = inside_domain(points, name, known.domain_gpus)
        if not mine:
            continue
        scatter = MAD_OF_NORMAL * profile.scatter_fraction.get(name, 0.0)
        noise = hypot(scatter, stated_spread([p.time for p in mine]))
        ratios = np.array([p.time.seconds for p in mine]) / _known_seconds(known, mine)
        found[name] = share(float(np.median(np.log(ratios))), spread, noise, in_place=0.0)
    return found


def _known_seconds(known: Machine, points: Sequence[CollectivePoint]) -> FloatColumn:
    """Seconds of one collective, or of messages, as the catalog has them.

    Source: as `collective_seconds_on`; of messages `costmodel.comm.collectives.message_seconds`.
    """
    first, sent = points[0], np.array([float(p.num_bytes) for p in points])
    near = max(one for one in STRIDES if one <= first.stride)
    if first.operation not in OPERATIONS:
        speed = known.link_bytes_per_second[STRIDES.index(near)]
        return np.asarray(known.constants.p2p_alpha + sent / speed)
    place = OPERATIONS.index(first.operation), SHAPES.index((first.ranks, near))
    curve = CollectiveFit(
        alpha_us=known.alpha_seconds[place] / MICROSECOND,
        bus_gb_per_s=known.bus_bytes_per_second[place] / GB,
        sqrt_coefficient=known.sqrt_coefficient[place],
        source="",
    )
    return collective_seconds_on(curve, points)


def share_of_network(profile: Profile, spread: float) -> Share:
    """Of the bandwidth between domains. Source: as `_links`."""
    times = [p.time for p in profile.points if isinstance(p, CollectivePoint)]
    return share(0.0, spread, stated_spread(times), in_place=0.0)


PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "matrix products": ("products", ("gemm",)),
        "attention": ("attention", ("attention",)),
        "kernels without reuse": ("streams", ("stream", "optimizer")),
        "collectives in a node": ("collectives", ("collective",)),
    }
)
"""Parts as people call them, their place in `Shares`, and the kinds of points that give them."""


def shares_note(machine: Machine, profile: Profile) -> tuple[str, ...]:
    """One line: what of the profile is shrunk to the catalog, and by how much."""
    shares, kinds = machine.shares, {point.kind for point in profile.points}
    levels = {
        name: getattr(shares, part).level for name, (part, of) in PARTS.items() if kinds & {*of}
    }
    if not shares.layers_spread and kinds & {"layer", "embedding", "head"}:
        levels["whole layers"] = 0.0
    less = [f"{name} by {100 * (1 - level):.0f} %" for name, level in levels.items() if level < ALL]
    if not less:
        return ()
    return (
        f"measured, shrunk to the catalog: {', '.join(less)}; what is timed alone is "
        "faster than in a step, of which the catalog knows more",
    )
