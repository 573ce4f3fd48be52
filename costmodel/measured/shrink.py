"""A measured machine, each part shrunk to the catalog's as far as its evidence is no better.

Curves are linear in their coefficients, so a mean of two curves is a curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np

from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import LOW_PRECISION, Precision
from trainplan.costmodel.kernels import streaming_bytes_per_second
from trainplan.costmodel.machine import (
    OPERATIONS,
    SHAPES,
    STRIDES,
    GemmRate,
    Machine,
    curve_name,
    nearest_stride,
)
from trainplan.costmodel.measured.counted import (
    doubt_of,
    share_of_attention,
    share_of_links,
    share_of_network,
    share_of_products,
    share_of_streams,
)
from trainplan.costmodel.measured.curve_residuals import with_linear
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.residuals import Residuals, Share, Shares

CONSTANTS = {
    "attention": ("attention_fixed_seconds", "attention_backward_efficiency"),
    "streams": ("elementwise_efficiency", "launch_seconds"),
    "collectives": ("alltoall_alpha",),
    "messages": ("p2p_alpha",),
    "network": ("inter_node_alpha",),
}
"""Constants that points of each part give."""


def shrunk(known: Machine, measured: Machine, profile: Profile, precision: Precision) -> Machine:
    """The machine of a profile, beside that of the catalog as far as that is as well known.

    What the catalog has nothing of is as it was measured.
    Source: `share`.
    """
    doubt, points = doubt_of(profile, precision), profile.points
    of_half = share_of_products(known, profile, known.half, with_linear(precision), doubt)
    of_linear = of_half
    if precision in LOW_PRECISION:
        of_linear = share_of_products(known, profile, known.linear, (precision,), doubt)
    attention = share_of_attention(known, points, doubt)
    curves = share_of_links(known, profile, doubt.collectives)
    shares = Shares(
        products=of_linear,
        attention=attention,
        streams=share_of_streams(known, measured, points, doubt),
        collectives=_least(curves, OPERATIONS),
        messages=_least(curves, ("p2p",)),
        network=share_of_network(profile, doubt.network),
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
        fast=shrunk_residuals(measured.fast, of),
        fast_rows=shrunk_residuals(measured.fast_rows, of),
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
