"""A measured machine, each part shrunk to the catalog's as far as its evidence is no better.

Both are estimates of one number with an error each: the catalog's by what it rests on for the GPU
(`costmodel.catalog.evidence`), that of points by their scatter, by what a step adds to kernels that
were timed alone (`costmodel.machine.shares.share`), and by how little other tools say of how they
measured. Curves are linear in their coefficients, so a mean of two curves is a curve.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, log
from statistics import median
from typing import TypedDict

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import GB, MICROSECOND
from trainplan.costmodel.catalog.evidence import evidence_of
from trainplan.costmodel.layouts import FloatColumn
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.machine.compute import streaming_bytes_per_second
from trainplan.costmodel.machine.hardware import (
    OPERATIONS,
    SHAPES,
    STRIDES,
    GemmRate,
    curve_name,
    nearest_stride,
)
from trainplan.costmodel.machine.residuals import Residuals
from trainplan.costmodel.machine.shares import (
    MAD_OF_NORMAL,
    Share,
    Shares,
    noise_of,
    share,
    stated_spread,
)
from trainplan.costmodel.measured.curve_residuals import (
    collective_seconds_on,
    fitted_attention,
    inside_domain,
    on_curve,
)
from trainplan.costmodel.spec.evidence.profile import (
    AttentionPoint,
    CollectivePoint,
    OptimizerPoint,
    Point,
    ProductPoint,
    Profile,
    StreamPoint,
    Timing,
)
from trainplan.costmodel.spec.gpu import CollectiveFit, Fit
from trainplan.costmodel.spec.job import FULL_WIDTH, LOW_PRECISION, Precision

CONSTANTS = {
    "attention": ("attention_fixed_seconds", "attention_backward_efficiency"),
    "streams": ("elementwise_efficiency", "launch_seconds"),
    "collectives": ("alltoall_alpha",),
    "messages": ("p2p_alpha",),
    "network": ("inter_node_alpha",),
}
"""Constants that points of each part give."""
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
    """What the catalog is off by where it never saw the machine; less in kernels where it did.

    Links are another machine's in any case. What the catalog's own curve is fitted to is no news.
    Source: costmodel/catalog/spreads.toml, `runs` for kernels, `scalars` for the rest.
    """
    evidence, sizes = evidence_of(profile.gpu, precision), catalog.spreads()
    seen, unseen = sizes.runs.machine_seen.value, sizes.runs.machine_unseen.value
    kernels = {"measured": seen, "stand-in": unseen, "assumed": inf}
    fits, scalars = catalog.fitted(profile.gpu), sizes.scalars
    same_kernels = _again(profile, fits.gemm.values())
    same_links = _again(profile, fits.collectives.values())
    inside = scalars["intra_node_bandwidth"].value if evidence.collectives != "assumed" else inf
    return Doubt(
        products=0.0 if same_kernels else kernels[evidence.products],
        attention=0.0 if same_kernels else kernels[evidence.attention],
        streams=scalars["memory_bandwidth"].value,
        collectives=0.0 if same_links else inside,
        network=0.0 if same_links else scalars["inter_node_bandwidth"].value,
    )


def _again(profile: Profile, fits: Iterable[Fit]) -> bool:
    """Is one of these fits of the catalog made of the measurements of the profile?"""
    mine = {found[0] for one in profile.origins if (found := REPOSITORY.match(one.source))}
    return any(name in fit.source for fit in fits for name in mine)


def shrunk(known: Machine, measured: Machine, profile: Profile, precision: Precision) -> Machine:
    """The machine of a profile, beside that of the catalog as far as that is as well known.

    What the catalog has nothing of is as it was measured.
    Source: `share`.
    """
    doubt, points = doubt_of(profile, precision), profile.points
    halves: tuple[Precision, ...] = ("bf16", "fp16")
    wide, low = precision in FULL_WIDTH, precision in LOW_PRECISION
    of_half = _products(known, profile, known.half, (precision,) if wide else halves, doubt)
    of_linear = _products(known, profile, known.linear, (precision,), doubt) if low else of_half
    attention = _attention(known, points, doubt)
    curves = _links(known, profile, doubt.collectives)
    shares = Shares(
        products=of_linear,
        attention=attention,
        streams=_streams(known, measured, points, doubt),
        collectives=_least(curves, OPERATIONS),
        messages=_least(curves, ("p2p",)),
        network=_network(profile, doubt.network),
        layers_spread=doubt.products,
    )
    return replace(
        _with_links(known, measured, shares, curves),
        half=_rate(known.half, measured.half, of_half),
        linear=_rate(known.linear, measured.linear, of_linear),
        **_attention_fields(known, measured, attention),
        constants=measured.constants.model_copy(update=_constants(known, measured, shares)),
        optimizer_bytes_per_second=_speed(known, measured.optimizer_bytes_per_second, shares),
        loss_bytes_per_second=_speed(known, measured.loss_bytes_per_second, shares),
        shares=shares,
    )


def _share(
    ratios: Sequence[float], times: Sequence[Timing], spread: float, scatter_fraction: float = 0.0
) -> Share:
    """Share of points by measured over known seconds."""
    if not ratios:
        return Share()
    logs = [log(one) for one in ratios]
    return share(median(logs), spread, noise_of(times, scatter_fraction))


def _products(
    known: Machine,
    profile: Profile,
    rate: GemmRate,
    precisions: tuple[Precision, ...],
    doubt: Doubt,
) -> Share:
    mine = [
        p
        for p in profile.points
        if isinstance(p, ProductPoint) and p.groups == 1 and p.precision in precisions
    ]
    if not mine:
        return Share()
    seconds = on_curve(known.memory_bytes_per_second, rate, mine).seconds.tolist()
    ratios = [p.time.seconds / one for p, one in zip(mine, seconds, strict=True)]
    scatter = max(profile.scatter_fraction.get(f"{p} products", 0.0) for p in precisions)
    return _share(ratios, [p.time for p in mine], doubt.products, scatter)


def _attention(known: Machine, points: Sequence[Point], doubt: Doubt) -> Share:
    ratios, times = [], []
    for point in points:
        if isinstance(point, AttentionPoint):
            forward, backward = fitted_attention(known, point)
            both = point.backward.seconds if point.backward else 0.0
            whole = forward + (backward if point.backward else 0.0)
            ratios.append((point.forward.seconds + both) / whole)
            times.append(point.forward)
    return _share(ratios, times, doubt.attention)


def _streams(known: Machine, measured: Machine, points: Sequence[Point], doubt: Doubt) -> Share:
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
    return _share(ratios, times[: len(ratios)], doubt.streams)


def _gives(known: Machine, measured: Machine) -> bool:
    """Do the points give the bandwidth of kernels without reuse?"""
    return measured.constants.elementwise_efficiency != known.constants.elementwise_efficiency


def _links(known: Machine, profile: Profile, spread: float) -> Mapping[str, Share]:
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
    """Seconds of one collective, or of messages, as the catalog has them."""
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


def _network(profile: Profile, spread: float) -> Share:
    """Of the bandwidth between domains. Source: as `_links`."""
    times = [p.time for p in profile.points if isinstance(p, CollectivePoint)]
    return share(0.0, spread, stated_spread(times), in_place=0.0)


def _least(curves: Mapping[str, Share], operations: Sequence[str]) -> Share:
    """Of the curves of some operations the one that counts least."""
    mine = [of for name, of in curves.items() if name.startswith(tuple(operations))]
    return min(mine, key=lambda one: one.shape, default=Share())


def _places(of: Mapping[str, Share], least: Share) -> FloatColumn:
    """Share by operation and shape of group: of the curve that stands there, else the least.

    Source: as `costmodel.machine.hardware.collective_fits`.
    """
    near = [
        [(op, size, nearest_stride(of, op, size, stride)) for size, stride in SHAPES]
        for op in OPERATIONS
    ]
    return np.array(
        [
            [of[curve_name(op, size, at)].shape if at else least.shape for op, size, at in row]
            for row in near
        ]
    )


def _rate(known: GemmRate, measured: GemmRate, of: Share) -> GemmRate:
    return replace(
        measured,
        fixed_seconds=of.mean(known.fixed_seconds, measured.fixed_seconds),
        flop_factor=of.mean(known.flop_factor, measured.flop_factor),
        byte_factor=of.mean(known.byte_factor, measured.byte_factor),
        residuals=shrunk_residuals(measured.residuals, of),
        grouped=shrunk_residuals(measured.grouped, of),
        grouped_weight=shrunk_residuals(measured.grouped_weight, of),
    )


def shrunk_residuals(residuals: Residuals | None, of: Share) -> Residuals | None:
    """What a curve leaves of its points, of which the share of their shape counts."""
    return residuals.shrunk(of.shape) if residuals else None


def _attention_fields(known: Machine, measured: Machine, of: Share) -> _AttentionFields:
    """Source: seconds are F / peak (1 + half / s) / efficiency: linear in 1 / e and half / e."""
    inverse = of.mean(1 / known.attention_max_efficiency, 1 / measured.attention_max_efficiency)
    slope = of.mean(
        known.attention_half_length / known.attention_max_efficiency,
        measured.attention_half_length / measured.attention_max_efficiency,
    )
    return {
        "attention_max_efficiency": 1 / inverse,
        "attention_half_length": slope / inverse,
        "attention_residuals": shrunk_residuals(measured.attention_residuals, of),
        "attention_backward_residuals": shrunk_residuals(measured.attention_backward_residuals, of),
    }


class _AttentionFields(TypedDict):
    """Of `Machine`."""

    attention_max_efficiency: float
    attention_half_length: float
    attention_residuals: Residuals | None
    attention_backward_residuals: Residuals | None


def _with_links(
    known: Machine, measured: Machine, shares: Shares, curves: Mapping[str, Share]
) -> Machine:
    """Source: alpha + B / bandwidth + c sqrt(B), linear in all but the inverse bandwidth."""
    of = _places(curves, shares.collectives)
    left = measured.collective_residuals.items()
    nic = measured.nic_bytes_per_second
    if nic != known.nic_bytes_per_second:
        nic = shares.network.rate(known.nic_bytes_per_second, nic)
    bus = known.bus_bytes_per_second, measured.bus_bytes_per_second
    links = known.link_bytes_per_second, measured.link_bytes_per_second
    at = np.array([curves.get(curve_name("p2p", 2, s), shares.messages).shape for s in STRIDES])
    return replace(
        measured,
        alpha_seconds=_mean(known.alpha_seconds, measured.alpha_seconds, of),
        bus_bytes_per_second=1 / _mean(1 / bus[0], 1 / bus[1], of),
        sqrt_coefficient=_mean(known.sqrt_coefficient, measured.sqrt_coefficient, of),
        link_bytes_per_second=1 / _mean(1 / links[0], 1 / links[1], at),
        nic_bytes_per_second=nic,
        collective_residuals={place: one.shrunk(float(of[place])) for place, one in left},
    )


def _mean(known: FloatColumn, measured: FloatColumn, of: FloatColumn) -> FloatColumn:
    """Source: the linear mean; exact where all of what was measured counts."""
    return np.asarray((1 - of) * known + of * measured)


def _constants(known: Machine, measured: Machine, shares: Shares) -> Mapping[str, float]:
    """Constants that points give, each with the share of the level of its part."""
    return {
        name: getattr(known.constants, name) ** (1 - of.level)
        * getattr(measured.constants, name) ** of.level
        for part, names in CONSTANTS.items()
        for name, of in ((name, getattr(shares, part)) for name in names)
    }


def _speed(known: Machine, measured: float | None, shares: Shares) -> float | None:
    """A speed of kernels without reuse. Source: `share`; the level is all that one speed has."""
    of, fitted = shares.streams.level, streaming_bytes_per_second(known)
    return measured and fitted ** (1 - of) * measured**of
