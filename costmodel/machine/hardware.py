"""Curves of one kind of GPU: measured, else of the catalog, else of a relative, else assumed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainplan.costmodel import catalog
from trainplan.costmodel.base import (
    BYTES_BF16,
    BYTES_FP8,
    BYTES_FP32,
    GB,
    MICROSECOND,
    TERA,
    SpecError,
)
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.hardware import (
    AttentionFit,
    CollectiveFit,
    Fit,
    FittedConstants,
    GemmFit,
    GpuSpec,
    NodeGroup,
)
from trainplan.costmodel.job import FULL_WIDTH, LOW_PRECISION, Float8Recipe
from trainplan.costmodel.profiles import Profile
from trainplan.costmodel.residuals import Residuals
from trainplan.costmodel.spec import Sourced

SourceKind = Literal["measured", "fitted", "datasheet", "assumed"]

GROUP_SIZES = (2, 4, 8)
"""Sizes of the collective fits; a larger group takes the last one."""
STRIDES = (1, 2, 4)
"""Distances of neighbours in a group that have fits of their own; a larger one takes the last."""
SHAPES = tuple((size, stride) for stride in STRIDES for size in GROUP_SIZES)
"""Columns of the collective fits."""
MESSAGES = "p2p_2"
"""Name of the fit of messages between two GPUs of a node that are next to each other."""
STRIDED = "_stride_"
"""In the names of fits of groups whose members are not next to each other."""
STRIDED_GROUPS = "strided groups"
"""How the `Provenance` of those fits is called."""
PRODUCTS = "matrix products"
"""How the `Provenance` of those of one precision ends."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")

ASSUMED_GEMM = GemmFit(
    fixed_us=6.0,
    flop_factor=1.33,
    byte_factor=0.5,
    source="assumed: mid-range of the fitted GPUs (flop factor 1.12 to 1.64)",
)
ASSUMED_SUSTAINED = 0.85
"""Source: assumed; median of the fitted sustained factors, docs/explanation/constants.md."""
ASSUMED_LINK_FRACTION = 0.75
"""Bus bandwidth over datasheet link speed. Source: 230/300 on A100 and 343-481/450 on H100."""
ASSUMED_ALPHA_US = 20.0
"""Latency of a collective without a fit. Source: all_reduce_8 on A100, 21 us."""

MOVED_TO_CAST = {"fp8": 3.0, "mxfp8": 3.0, "nvfp4": 3.4}
"""Bytes moved to narrow one element of the activation operand of a product.

Source: derived; 8 bits read 2 and write 1. NVFP4 reads the input and the output gradient for their
largest element (2), and again to write them along rows and, after a Hadamard transform, along
columns (2 and twice 9/16), for three products: 2 (2 + 3.125) / 3. NVIDIA/TransformerEngine
@d0067d0d `pytorch/csrc/quantizer.cpp`, NVFP4Quantizer.
"""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where one number of the machine comes from."""

    quantity: str
    kind: SourceKind
    source: str


@dataclass(frozen=True, slots=True)
class GemmRate:
    """Matrix products in one precision."""

    peak_flop_per_second: float
    fixed_seconds: float
    flop_factor: float
    byte_factor: float
    element_bytes: int
    cast_bytes: float = 0.0
    """Moved to narrow one element of the activation operand."""
    residuals: Residuals | None = None
    """By rows, columns, inner size and bytes of an output element, where products were measured."""
    grouped: Residuals | None = None
    """As `residuals` for the grouped products of experts, all groups together."""
    grouped_weight: Residuals | None = None
    """As `grouped`, weight gradients."""
    fast: Residuals | None = None
    """As `residuals`, of products in fp8 whose sums stay in the matrix unit, as forward ones do."""
    fast_rows: Residuals | None = None
    """As `fast`, where rows have scales."""
    recipe: Float8Recipe = "tensorwise"
    """How linear layers in fp8 scale their operands."""


@dataclass(frozen=True, slots=True)
class KnownCurves:
    """What is known of one kind of GPU."""

    name: str
    spec: GpuSpec
    measured: FittedConstants
    """From a profile; empty without one."""
    own: FittedConstants
    """Measured, else from the catalog."""
    other: FittedConstants
    """Of the similar GPU, where this one has none."""
    stand_in: str | None
    """Its name."""
    same_link: bool
    """The similar GPU has the same scale-up link."""
    nic: Sourced | None
    """GB/s between domains, as a profile measured it."""
    power_limit_w: float | None
    """Watts that the board may draw, where they are stated."""


def known_of(group: NodeGroup, profile: Profile | None) -> KnownCurves:
    """Gather the numbers of a group's GPU; a profile of it comes first.

    Raises:
        CatalogError: The GPU is not in the catalog and brings no numbers.
    """
    spec, published = catalog.device(group), catalog.fitted(group.gpu)
    name = catalog.stand_in(group.gpu)
    mine = profile is not None and profile.gpu == group.gpu
    measured = profile.fitted if profile and mine else FittedConstants()
    own = FittedConstants(
        gemm={**published.gemm, **measured.gemm},
        collectives={**published.collectives, **measured.collectives},
        attention=measured.attention or published.attention,
        sustained=published.sustained,
    )
    return KnownCurves(
        name=group.gpu,
        spec=spec,
        measured=measured,
        own=own,
        other=catalog.fitted(name) if name else FittedConstants(),
        stand_in=name,
        nic=profile.nic_gb_per_s if profile and mine else None,
        power_limit_w=_stated_limit(group, spec),
        same_link=name is not None and catalog.gpu(name).link == spec.link,
    )


LEAST_POWER = 0.25
"""Least share of a board's power that is priced. Source: assumed; the law of clocks holds where
dynamic power is most of it, and drivers refuse limits near idle."""


def _stated_limit(group: NodeGroup, spec: GpuSpec) -> float | None:
    """The group's limit of power, which its board must be able to draw.

    Raises:
        SpecError: The board draws less, or what it draws is not known.
    """
    limit, most = group.power_limit_w, spec.tdp_w and spec.tdp_w.value
    if limit and not most:
        raise SpecError(f"no board power of {group.gpu} is known: leave the power limit out")
    if limit and most and limit < LEAST_POWER * most:
        raise SpecError(
            f"power limit of {limit:g} W: below {LEAST_POWER * most:g} W nothing is known of a "
            f"board of {group.gpu}, and none is set so low"
        )
    if limit and most and limit > most:
        raise SpecError(
            f"power limit of {limit:g} W: a board of {group.gpu} draws at most {most:g} W"
        )
    return limit


def provenance(
    known: KnownCurves, quantity: str, fit: Fit, *, measured: bool, own: bool
) -> Provenance:
    """Where a curve comes from: of the profile, of the GPU itself, or of a similar one."""
    known_by: SourceKind = "fitted" if own and fit.kind == "measured" else "assumed"
    kind = "measured" if measured else known_by
    source = fit.source
    if not measured and not own:
        source = f"of another GPU, not measured on {known.name}: {source}"
    return Provenance(f"{known.name} {quantity}", kind, source)


def attention_fit(known: KnownCurves, trace: list[Provenance]) -> AttentionFit:
    """Efficiency of fused attention; of the A100 where nothing nearer is known."""
    measured, own = known.measured.attention, known.own.attention
    fit = own or known.other.attention or catalog.fitted("a100-sxm-80gb").attention
    assert fit is not None
    trace.append(
        provenance(known, "attention", fit, measured=measured is not None, own=own is not None)
    )
    return fit


def gemm_rate(known: KnownCurves, key: str, trace: list[Provenance]) -> GemmRate:
    """A profile's curve of the precision itself, else the catalog's of its family."""
    fit_key = key if key in known.measured.gemm else catalog.products_fit(key)
    fit = known.own.gemm.get(fit_key) or known.other.gemm.get(fit_key) or ASSUMED_GEMM
    measured, own = fit_key in known.measured.gemm, fit_key in known.own.gemm
    trace.append(provenance(known, f"{key} {PRODUCTS}", fit, measured=measured, own=own))
    return GemmRate(
        peak_flop_per_second=known.spec.peak_tflops[key].value * TERA,
        fixed_seconds=fit.fixed_us * MICROSECOND,
        flop_factor=fit.flop_factor / (1.0 if measured else sustained(known, key)),
        byte_factor=fit.byte_factor,
        element_bytes=element_bytes(key),
        cast_bytes=MOVED_TO_CAST.get(key, 0.0),
    )


def element_bytes(precision: str) -> int:
    """Bytes of an operand of a matrix product."""
    wide = BYTES_FP32 if precision in FULL_WIDTH else BYTES_BF16
    return BYTES_FP8 if precision in LOW_PRECISION else wide


def sustained(known: KnownCurves, precision: str) -> float:
    """Sustained over burst speed of a GPU's products, for curves that were not measured.

    Looks for the precision, then for the next lower ones, then for bf16, in the fits of the GPU
    and of its stand-in, at the clock that the power of its board allows. Measured curves show by
    themselves how products run.
    """
    other = known.spec if known.stand_in is None else catalog.gpu(known.stand_in)
    for name in catalog.sustained_fits(precision):
        for constants, fitted_on in ((known.own, known.spec), (known.other, other)):
            if name in constants.sustained:
                return constants.sustained[name].value * powered_clock(known, fitted_on)
    return ASSUMED_SUSTAINED * powered_clock(known, known.spec)


CLOCK_OF_POWER = 1 / 3
"""Exponent of power in the clock that it allows.

Source: derived; dynamic power is capacity x voltage^2 x clock, and voltage rises with the clock, so
power ~ clock^3 (the same law as `power_exponent`, which has other duties of one board).
"""


def powered_clock(known: KnownCurves, fitted_on: GpuSpec) -> float:
    """Clock of products over that at which a speed was fitted: 1 where power does not lower it.

    Source: CLOCK_OF_POWER, of watts for each FLOP/s of peak: the same switches on a board with less
    power; more than the fitted board has buys nothing that was measured.
    """
    watts = known.power_limit_w or (known.spec.tdp_w and known.spec.tdp_w.value)
    if not watts or not fitted_on.tdp_w:
        return 1.0
    peak, fitted_peak = (_half_peak(spec) for spec in (known.spec, fitted_on))
    return float(min(1.0, watts / peak / (fitted_on.tdp_w.value / fitted_peak)) ** CLOCK_OF_POWER)


def _half_peak(spec: GpuSpec) -> float:
    return (spec.peak_tflops.get("bf16") or spec.peak_tflops["fp16"]).value


def collective_fits(
    known: KnownCurves, trace: list[Provenance]
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Start, bus bandwidth and root coefficient by operation and SHAPES.

    A size without measurement takes the largest measured one below it. Source: that of each fit.
    """
    own = _without_messages(known.own.collectives)
    fits = {**(known.other.collectives if known.same_link else {}), **own}
    assumed = CollectiveFit(
        alpha_us=ASSUMED_ALPHA_US,
        bus_gb_per_s=ASSUMED_LINK_FRACTION * known.spec.link_gb_per_s.value,
        sqrt_coefficient=0.0,
        source="assumed: 0.75 of the datasheet link speed",
    )
    used = [[_fit(fits, op, *shape) or assumed for shape in SHAPES] for op in OPERATIONS]
    mine = list(_without_messages(known.measured.collectives).values())
    first = mine[0] if mine else used[0][2]
    trace.append(provenance(known, "collectives", first, measured=bool(mine), own=bool(own)))
    trace.extend(_strided_provenance(known))
    return (
        np.array([[fit.alpha_us * MICROSECOND for fit in row] for row in used]),
        np.array([[fit.bus_gb_per_s * GB for fit in row] for row in used]),
        np.array([[fit.sqrt_coefficient for fit in row] for row in used]),
    )


def _without_messages(fits: Mapping[str, CollectiveFit]) -> Mapping[str, CollectiveFit]:
    return {name: fit for name, fit in fits.items() if not name.startswith(MESSAGES)}


def _strided_provenance(known: KnownCurves) -> Iterator[Provenance]:
    """Where curves of strided groups come from, on nodes that were measured and have such groups.

    Source: derived; a node with a group of four has pairs that are not neighbours.
    """
    measured, quantity = known.measured.collectives, f"{known.name} {STRIDED_GROUPS}"
    strided = [fit for name, fit in _without_messages(measured).items() if STRIDED in name]
    if strided:
        yield Provenance(quantity, "measured", strided[0].source)
    elif any(curve_name(op, size) in measured for op in OPERATIONS for size in GROUP_SIZES[1:]):
        yield Provenance(
            quantity,
            "assumed",
            "not measured, priced as groups of neighbours: `plan profile --only collectives "
            "--only p2p` measures them",
        )


def link_bytes_per_second(known: KnownCurves, bus: FloatColumn) -> FloatColumn:
    """Bandwidth of one message in a domain by stride: measured, else of an all-gather of two.

    A stride without measurement takes the nearest below, else the nearest above.
    Source: fits of the profile; derived, a gather of two is a message each way.
    """
    fits = known.measured.collectives
    names = {s: curve_name("p2p", 2, s) for s in STRIDES if curve_name("p2p", 2, s) in fits}
    if not names:
        gathers = bus[OPERATIONS.index("all_gather")]
        return np.array([gathers[SHAPES.index((2, stride))] for stride in STRIDES])
    near = [max((s for s in names if s <= stride), default=min(names)) for stride in STRIDES]
    return np.array([fits[names[stride]].bus_gb_per_s * GB for stride in near])


def curve_name(operation: str, size: int, stride: int = 1) -> str:
    """Name of the fit of groups of a size inside one domain: `all_reduce_8`, `p2p_2_stride_4`."""
    near = max(one for one in STRIDES if one <= stride)
    return f"{operation}_{size}" + (f"{STRIDED}{near}" if near > 1 else "")


def stride_column(stride: IntColumn) -> IntColumn:
    """Which of STRIDES is used for each distance."""
    return np.asarray((stride >= STRIDES[1]).astype(np.int64) + (stride >= STRIDES[2]))


def nearest_stride(
    fits: Mapping[str, object], operation: str, size: int, stride: int
) -> int | None:
    """The largest distance up to `stride` at which groups of that size have a fit."""
    known = (s for s in reversed(STRIDES) if s <= stride and curve_name(operation, size, s) in fits)
    return next(known, None)


def _fit(
    fits: Mapping[str, CollectiveFit], operation: str, size: int, stride: int
) -> CollectiveFit | None:
    """The fit of that size and the nearest stride, else of neighbours of the largest size below."""
    near = nearest_stride(fits, operation, size, stride)
    if near is not None:
        return fits[curve_name(operation, size, near)]
    names = [curve_name(operation, n) for n in reversed(GROUP_SIZES) if n < size]
    return next((fits[name] for name in names if name in fits), None)
