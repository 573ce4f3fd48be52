"""Matrix products and attention of a profile, with the curves through them."""

from collections.abc import Iterator, Mapping, Sequence

from trainplan.cli.blocks import Block, Columns, Table, number, table
from trainplan.cli.pages.figures import chart, label, log_axis, scatter, series
from trainplan.cli.pages.report.profile_links import fitted_line, markers, spaced
from trainplan.cli.words import seconds
from trainplan.costmodel.base import GB, TERA
from trainplan.costmodel.measured import attention_flop, on_curve
from trainplan.costmodel.profiles import AttentionPoint, ProductPoint, Profile
from trainplan.profiler.fit import gemm_rate, spec_of

MOST_TICKS = 8
"""Of an axis of lengths."""


def product_charts(profile: Profile) -> Iterator[Block]:
    """TFLOP/s of matrix products over their FLOP, with the curve of each precision."""
    points = [one for one in profile.points if isinstance(one, ProductPoint)]
    if not points:
        return
    precisions = list(dict.fromkeys(one.precision for one in points))
    traces = [
        trace
        for place, name in enumerate(precisions)
        for trace in _product_traces(profile, [p for p in points if p.precision == name], place)
    ]
    best = max(points, key=_tflops)
    yield chart(
        "products-by-size",
        "TFLOP/s of matrix products by FLOP; the dashed curve is of square ones, crossed points "
        "are to be doubted",
        f"The fastest reaches {_tflops(best):.4g} TFLOP/s, at {best.m} x {best.n} x {best.k}.",
        traces,
        _products_table(points),
        x="FLOP",
        y="TFLOP/s",
        xaxis={"type": "log", "dtick": 1, "exponentformat": "power"},
        yaxis={"rangemode": "tozero"},
        height=420,
    )


def _products_table(points: Sequence[ProductPoint]) -> Table:
    columns: Columns = (
        *map(number, ("m", "n", "k", "groups")),
        "precision",
        number("seconds", seconds),
        number("TFLOP/s"),
        "flags",
    )
    rows = (
        (
            *(p.m, p.n, p.k, p.groups, _format(p)),
            *(p.time.seconds, _tflops(p), ", ".join(p.time.flags)),
        )
        for p in points
    )
    return table("Matrix products", columns, rows)


def _format(point: ProductPoint) -> str:
    """Its precision, and in fp8 how it accumulates and scales where that is not as in gradients."""
    rows = f", {point.recipe}" if point.recipe != "tensorwise" else ""
    return point.precision + ", fast accumulation" * point.fast_accumulation + rows


def _flop(point: ProductPoint) -> float:
    return 2.0 * point.m * point.n * point.k * point.groups


def _tflops(point: ProductPoint) -> float:
    return _flop(point) / point.time.seconds / TERA


def _product_traces(
    profile: Profile, points: Sequence[ProductPoint], place: int
) -> Iterator[Mapping[str, object]]:
    name = points[0].precision
    yield scatter(
        name,
        map(_flop, points),
        map(_tflops, points),
        "%{text}: %{y:.4g} TFLOP/s<extra>%{fullData.name}</extra>",
        text=[
            label(f"{p.m} x {p.n} x {p.k}" + f" x {p.groups}" * (p.groups > 1) + f" {_format(p)}")
            for p in points
        ],
        marker=markers([one.time for one in points], series(place)),
    )
    if name in profile.fitted.gemm and name in spec_of(profile).peak_tflops:
        sizes = spaced([_flop(one) for one in points])
        squares = [_square(size, points[0]) for size in sizes]
        spec = spec_of(profile)
        rate = gemm_rate(spec, name, profile.fitted.gemm[name])
        took = on_curve(spec.memory_gb_per_s.value * GB, rate, squares).seconds
        speed = [_flop(one) / float(t) / TERA for one, t in zip(squares, took, strict=True)]
        yield fitted_line([_flop(one) for one in squares], speed, f"{name}, fitted", series(place))


def _square(flop: float, like: ProductPoint) -> ProductPoint:
    side = max(1, round((flop / 2) ** (1 / 3)))
    return like.model_copy(
        update={"m": side, "n": side, "k": side, "groups": 1, "weight_gradient": False}
    )


def attention_charts(profile: Profile) -> Iterator[Block]:
    """TFLOP/s of the core of attention by sequence length."""
    points = [one for one in profile.points if isinstance(one, AttentionPoint)]
    if not points:
        return

    def speed(one: AttentionPoint) -> float:
        return float(attention_flop(one)) / one.forward.seconds / TERA

    best = max(points, key=speed)
    heads = (
        f"{p.num_heads} heads of {p.head_dim}, micro batch {p.micro_batch_size}" for p in points
    )
    drawn = scatter(
        "",
        [one.seq_length for one in points],
        map(speed, points),
        "%{x:,} tokens, %{text}: %{y:.4g} TFLOP/s<extra></extra>",
        text=list(heads),
        marker=markers([one.forward for one in points], "@green"),
    )
    columns: Columns = (*map(number, ("tokens", "heads", "head size", "TFLOP/s")), "flags")
    rows = (
        (p.seq_length, p.num_heads, p.head_dim, speed(p), ", ".join(p.forward.flags))
        for p in points
    )
    yield chart(
        "attention-by-length",
        "TFLOP/s of the core of causal attention, forward, by sequence length",
        f"The fastest reaches {speed(best):.4g} TFLOP/s, at {best.seq_length:,} tokens.",
        [drawn],
        table("Attention, forward", columns, rows),
        x="tokens of a sequence",
        y="TFLOP/s",
        xaxis=_lengths(points),
        yaxis={"rangemode": "tozero"},
    )


def _lengths(points: Sequence[AttentionPoint]) -> dict[str, object]:
    """An axis with a tick at every length, where they are few."""
    lengths = sorted({one.seq_length for one in points})
    if len(lengths) > MOST_TICKS:
        return log_axis(lengths)
    return {"type": "log", "tickvals": lengths, "ticktext": [f"{one:,}" for one in lengths]}
