"""Whole layers that were measured: they set the level, the parts keep the shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from costmodel.blocks.parts import Module, PassSeconds
from costmodel.machine import Machine
from costmodel.residuals import Residuals, residuals
from costmodel.runtimes import RUNTIMES
from costmodel.runtimes.base import RuntimeTraits
from costmodel.spec.job import Job
from costmodel.spec.layout import Layout
from costmodel.spec.model import ModelSpec
from costmodel.spec.profile import EndPoint, LayerPoint
from costmodel.spec.training import TrainingSpec
from costmodel.table import FloatColumn, LayoutTable


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of one kind of block as its parts add up, one row per key."""

    forward: PassSeconds
    backward: PassSeconds


Parts = Callable[[Job, RuntimeTraits, LayoutTable], Passes]
"""Prices one kind of block from its parts."""


@dataclass(frozen=True, slots=True)
class Levels:
    """Measured over added-up seconds of a kind of layer."""

    forward: Residuals
    backward: Residuals
    collectives_inside: bool
    """Tensor-parallel traffic was measured with the layers, so it shares their level."""

    def factors(self, sizes: Sequence[FloatColumn]) -> tuple[FloatColumn, FloatColumn]:
        """Factors of both passes. Source: `Residuals`."""
        return self.forward.factor(*sizes), self.backward.factor(*sizes)


def levels(
    job: Job, machine: Machine, traits: RuntimeTraits, parts: Parts, *, moe: bool
) -> Levels | None:
    """Levels that the measured layers of the job's own kernels give; null where there is none.

    A layer of other kernels tells nothing that its products and its attention did not tell.
    """
    mine = [
        (point, parts(_job(job, point), _kernels(job, traits, point.runtime), _key(point)))
        for point in machine.layers
        if _tells(point, moe=moe) and _same_kernels(job, traits, point.runtime)
    ]
    ratios = [_ratios(point, layer) for point, layer in mine]
    if not ratios:
        return None
    forward, backward = np.array(ratios).T
    rows = [layer_sizes(point.model, point.seq_length, _key(point), moe=moe) for point, _ in mine]
    sizes = [np.concatenate(column) for column in zip(*rows, strict=True)]
    inside = any(point.collectives_inside for point, _ in mine)
    return Levels(residuals(sizes, forward), residuals(sizes, backward), inside)


def end_levels(
    job: Job, machine: Machine, traits: RuntimeTraits, parts: Parts, *, head: bool
) -> Levels | None:
    """As `levels`, of the embedding or of the head with the loss."""
    kind = "head" if head else "embedding"
    mine = [
        point
        for point in machine.ends
        if point.kind == kind and _same_kernels(job, traits, point.runtime)
    ]
    if not mine:
        return None
    key = LayoutTable.of([Layout()])
    priced = [parts(_end_job(job, p), _kernels(job, traits, p.runtime), key) for p in mine]
    forward = [
        p.forward.seconds / float(one.forward.total[0]) for p, one in zip(mine, priced, strict=True)
    ]
    backward = [
        p.backward.seconds / float(one.backward.total[0])
        for p, one in zip(mine, priced, strict=True)
    ]
    sizes = [
        np.array([float(size) for size in column])
        for column in zip(*((p.tokens, p.hidden_size, p.vocab_size) for p in mine), strict=True)
    ]
    return Levels(
        residuals(sizes, np.array(forward)),
        residuals(sizes, np.array(backward)),
        collectives_inside=False,
    )


def _end_job(job: Job, point: EndPoint) -> Job:
    """The rank's share of the vocabulary as a whole model's."""
    model = job.model.model_copy(
        update={"hidden_size": point.hidden_size, "vocab_size": point.vocab_size}
    )
    training = TrainingSpec(seq_length=point.tokens, global_batch_size=1, precision=point.precision)
    return Job(model=model, training=training, cluster=job.cluster, runtime=job.runtime)


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


def scaled_module(module: Module, factor: FloatColumn) -> Module:
    """What recomputation repeats, at another level."""
    return replace(module, seconds=module.seconds * factor)


def _ratios(point: LayerPoint, layer: Passes) -> tuple[float, float]:
    """Of both passes; one of which nothing is known has the level of the other."""
    forward = _ratio(point, layer.forward, point.forward.seconds) if point.forward else None
    backward = _ratio(point, layer.backward, point.backward.seconds) if point.backward else None
    both = layer.forward + layer.backward
    together = _ratio(point, both, point.both.seconds) if point.both else None
    known = together or forward or backward
    assert known is not None
    return forward or known, backward or known


def _ratio(point: LayerPoint, parts: PassSeconds, measured: float) -> float:
    """Measured over added-up seconds, with the tensor-parallel traffic where it was inside."""
    inside = parts.tp_comm if point.collectives_inside else 0.0
    alone = parts.total - parts.tp_comm - parts.cp_comm - parts.ep_comm
    return measured / float((alone + inside)[0])


def layer_sizes(
    model: ModelSpec, seq_length: int, keys: LayoutTable, *, moe: bool
) -> Sequence[FloatColumn]:
    """What layers resemble each other in: tokens, width, and width of the slice of the MLP."""
    tokens = keys.micro_batch_size * seq_length / keys.cp
    width = model.moe.moe_intermediate_size if moe and model.moe else model.intermediate_size
    sliced = width / (keys.etp if moe else keys.tp)
    return tokens, np.full(len(keys), float(model.hidden_size)), sliced


def _job(job: Job, point: LayerPoint) -> Job:
    training = TrainingSpec(
        seq_length=point.seq_length,
        global_batch_size=point.micro_batch_size,
        precision=point.precision,
    )
    return Job(model=point.model, training=training, cluster=job.cluster, runtime=point.runtime)


def _tells(point: LayerPoint, *, moe: bool) -> bool:
    """Is it a layer of that sort with any time?"""
    sort = point.moe == moe and not (moe and point.model.moe is None)
    return sort and bool(point.forward or point.backward or point.both)


def _same_kernels(job: Job, traits: RuntimeTraits, runtime: str) -> bool:
    """Did kernels like those of the job run? Of a runtime not known here nobody can say."""
    known = runtime == job.runtime or runtime in RUNTIMES
    return known and _kernels(job, traits, runtime).kernels == traits.kernels


def _kernels(job: Job, traits: RuntimeTraits, runtime: str) -> RuntimeTraits:
    return traits if runtime == job.runtime else RUNTIMES[runtime]


def _key(point: LayerPoint) -> LayoutTable:
    layout = Layout(
        tp=point.tp,
        ep=point.ep,
        dp=max(1, point.ep // point.tp),
        micro_batch_size=point.micro_batch_size,
    )
    return LayoutTable.of([layout])
