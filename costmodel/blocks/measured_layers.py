"""Whole layers that were measured: they set the level, the parts keep the shape.

A level counts beside that of the parts as its evidence merits (`costmodel.residuals`): alone
where the job's own runtime ran the layer as a whole or the catalog knows nothing, else less.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median
from typing import TypeVar

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.blocks.parts import PassSeconds
from trainplan.costmodel.candidates import Candidates, Context
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.profiles import EndPoint, LayerPoint, Timing
from trainplan.costmodel.residuals import IN_PLACE, Residuals, Share, noise_of, residuals, share
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits

PointT = TypeVar("PointT", LayerPoint, EndPoint)
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one kind of block as its parts add up, one row per key."""

    forward: PassSeconds
    backward: PassSeconds


Parts = Callable[[Candidates, bool], Passes]
"""Prices one kind of block from its parts, for each key; true: in the order of a step, where weight
gradients are added to those of other micro batches."""
Sizes = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Ratios:
    """Measured over added-up seconds of one point."""

    sizes: Sizes
    forward: float
    backward: float
    whole: float
    """Of both passes together."""
    point: LayerPoint | EndPoint


@dataclass(frozen=True, slots=True)
class Levels:
    """Measured over added-up seconds of a kind of block."""

    forward: Residuals
    backward: Residuals
    collectives_inside: bool
    """Tensor-parallel traffic was measured with the layers, so it shares their level."""

    def factors(self, sizes: Sequence[FloatColumn]) -> tuple[FloatColumn, FloatColumn]:
        """Factors of both passes. Source: `Residuals`."""
        return self.forward.factor(*sizes), self.backward.factor(*sizes)


def levels(context: Context, parts: Parts, *, moe: bool) -> Levels | None:
    """Levels that measured layers of kernels like the job's give; null where there is none.

    A layer of other kernels tells nothing that its products and its attention did not tell: how
    much slower they are in place than alone is not carried over. Of several runtimes with the same
    kernels those of the job's library tell, and of these those that ran in the order of a step.
    """
    layers = context.machine.layers
    alike = [p for p in layers if _tells(p, moe=moe) and _alike(p, context.traits)]
    mine = _most_telling(alike, context.traits)
    measured: list[Ratios] = []

    def together(point: LayerPoint) -> tuple[ModelSpec, int, bool]:
        return point.model, point.seq_length, point.in_step

    for (model, seq_length, in_step), points in _grouped(mine, together).items():
        keys = LayoutTable.of([_layout(point) for point in points])
        layer = parts(_keys(context, model, seq_length, keys), in_step)
        sizes = np.stack(layer_sizes(model, seq_length, keys, moe=moe), axis=-1).tolist()
        for row, point in enumerate(points):
            measured.append(Ratios(tuple(sizes[row]), *_ratios(point, layer, row), point))
    return _levels(context, measured)


def end_levels(context: Context, parts: Parts, *, head: bool) -> Levels | None:
    """As `levels`, of the embedding or of the head with the loss."""
    kind = "head" if head else "embedding"
    kernels = context.traits.kernels.elementwise
    alike = [p for p in context.machine.ends if p.kind == kind and p.kernels == kernels]
    mine = _most_telling(alike, context.traits)
    measured: list[Ratios] = []

    def together(point: EndPoint) -> tuple[int, int, bool]:
        return point.hidden_size, point.vocab_size, point.in_step

    for (hidden, vocab, in_step), points in _grouped(mine, together).items():
        sizes = {"hidden_size": hidden, "vocab_size": vocab, "trained": None}
        model = context.job.model.model_copy(update=sizes)
        keys = LayoutTable.of([Layout(micro_batch_size=point.tokens) for point in points])
        end = parts(_keys(context, model, 1, keys), in_step)
        for row, point in enumerate(points):
            added = float(end.forward.total[row]), float(end.backward.total[row])
            times = point.forward.in_a_row, point.backward.in_a_row
            ratios = times[0] / added[0], times[1] / added[1], sum(times) / sum(added)
            measured.append(Ratios((point.tokens, hidden, vocab), *ratios, point))
    return _levels(context, measured)


def _levels(context: Context, measured: Sequence[Ratios]) -> Levels | None:
    """Levels of the points that tell most of the job: those in place, if there are any."""
    in_place = [
        one for one in measured if not one.point.alone and _is_own(one.point, context.traits)
    ]
    used = in_place or measured
    if not used:
        return None
    sizes = tuple(np.array([one.sizes for one in used], dtype=np.float64).T)
    counted = _counted(context.machine.shares.layers_spread, used, in_place=bool(in_place))
    inside = any(getattr(one.point, "collectives_inside", False) for one in used)
    passes = ([one.forward for one in used], [one.backward for one in used])
    forward, backward = (_weighted(residuals(sizes, np.array(one)), counted) for one in passes)
    return Levels(forward, backward, inside)


def library_of(runtime: str) -> str:
    """Library whose layers a runtime trains, as `RuntimeTraits.library`; else its own name."""
    known = RUNTIMES.get(runtime)
    return (known.library if known else "") or runtime


def _is_own(point: LayerPoint | EndPoint, traits: RuntimeTraits) -> bool:
    """Is it of the library of the job?"""
    return library_of(point.runtime) == library_of(traits.name)


def _counted(spread: float, used: Sequence[Ratios], *, in_place: bool) -> Share:
    """Share of the level of layers. Source: `residuals.share`, over both passes together."""
    logs = [log(one.whole) for one in used]
    times = [taken for one in used for taken in _passes(one.point)]
    noise = noise_of(times, len(used))
    return share(median(logs), spread, noise, 0.0 if in_place else IN_PLACE)


def _passes(point: LayerPoint | EndPoint) -> list[Timing]:
    """Times that the level is of."""
    both = point.both if isinstance(point, LayerPoint) else None
    return [taken for taken in (point.forward, point.backward, both) if taken]


def _weighted(measured: Residuals, counted: Share) -> Residuals:
    """Of what both passes have in common the share of the level, of all else that of the shape.

    Source: derived; log factor = share of level times common + share of shape times the rest.
    """
    common = log(counted.ratio)
    far = counted.level * common + counted.shape * (measured.level - common)
    return measured.shrunk(counted.shape, far)


def _grouped(
    points: Sequence[PointT], key: Callable[[PointT], KeyT]
) -> Mapping[KeyT, list[PointT]]:
    """Points that are priced together."""
    groups: dict[KeyT, list[PointT]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def scaled(seconds: PassSeconds, factor: FloatColumn, *, tensor_parallel: bool) -> PassSeconds:
    """A pass at another level; its traffic only where that was measured with it."""
    return replace(
        seconds,
        gemm=seconds.gemm * factor,
        attention=seconds.attention * factor,
        elementwise=seconds.elementwise * factor,
        host=seconds.host * factor,
        tp_comm=seconds.tp_comm * (factor if tensor_parallel else 1.0),
    )


def _ratios(point: LayerPoint, layer: Passes, row: int) -> tuple[float, float, float]:
    """Of each pass and of both; one of which nothing is known has the level of the other."""

    def ratio(parts: PassSeconds, measured: Timing | None) -> float | None:
        """Measured over added-up seconds, with tensor-parallel traffic where it was inside."""
        traffic = parts.cp_comm + parts.ep_comm
        outside = traffic if point.collectives_inside else traffic + parts.tp_comm
        return measured.in_a_row / float((parts.total - outside)[row]) if measured else None

    forward = ratio(layer.forward, point.forward)
    backward = ratio(layer.backward, point.backward)
    known = ratio(layer.forward + layer.backward, point.both) or forward or backward
    assert known is not None
    if forward and backward and not point.both:
        shares = float(layer.forward.total[row]), float(layer.backward.total[row])
        known = (forward * shares[0] + backward * shares[1]) / sum(shares)
    return forward or known, backward or known, known


def layer_sizes(
    model: ModelSpec, seq_length: int, keys: LayoutTable, *, moe: bool
) -> Sequence[FloatColumn]:
    """What layers resemble each other in: tokens, width, and width of the slice of the MLP."""
    tokens = keys.micro_batch_size * seq_length / keys.cp
    width = model.moe.moe_intermediate_size if moe and model.moe else model.intermediate_size
    sliced = width / (keys.etp if moe else keys.tp)
    return tokens, np.full(len(keys), float(model.hidden_size)), sliced


def _keys(context: Context, model: ModelSpec, seq_length: int, keys: LayoutTable) -> Candidates:
    job = context.job
    alike: dict[str, object] = {"seq_length": seq_length, "lengths": None, "packing": "none"}
    training = job.training.model_copy(update=alike)
    job = Job(model=model, training=training, cluster=job.cluster, runtime=job.runtime)
    return replace(context.with_table(keys), job=job)


def _tells(point: LayerPoint, *, moe: bool) -> bool:
    """Is it a layer of that sort with any time?"""
    sort = point.moe == moe and not (moe and point.model.moe is None)
    return sort and bool(point.forward or point.backward or point.both)


def _alike(point: LayerPoint, traits: RuntimeTraits) -> bool:
    """Did kernels like those of the job run?"""
    unfused = point.attention == "unfused", traits.kernels.attention == "unfused"
    return point.kernels == traits.kernels.elementwise and unfused[0] == unfused[1]


def _most_telling(points: Sequence[PointT], traits: RuntimeTraits) -> Sequence[PointT]:
    """Those of the runtime's own library where there are any, and of these those in a step."""
    own = [one for one in points if _is_own(one, traits)] or points
    return [one for one in own if one.in_step] or own


def _layout(point: LayerPoint) -> Layout:
    return Layout(
        tp=point.tp,
        sequence_parallel=point.sequence_parallel,
        ep=point.ep,
        dp=max(1, point.ep // point.tp),
        micro_batch_size=point.micro_batch_size,
    )
