"""Weights that generalised tensor parallelism gathers one by one.

Source: NVIDIA/Megatron-LM @d98e8a64 `core/extensions/transformer_engine.py` (which linear layers
take a group: those that tensor parallelism cuts, and the grouped ones of experts) and
`core/tensor_parallel/layers.py` (token table and output projection); norms, biases, routers and
projections that tensor ranks have whole stay whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import FULL, LayoutTable, module_bits
from trainplan.costmodel.model import (
    MIXER_COUNTS,
    Matrix,
    latent_params,
    matrices,
    norm_params,
    norms_per_layer,
    router_params,
    side_params,
)
from trainplan.costmodel.shards.cuts import CAST_BYTES

MLP_NAMES = frozenset({"gate", "up", "down"})


@dataclass(frozen=True, slots=True)
class Gathered:
    """The weight of one linear layer, or of one of all experts of a rank."""

    inputs: int
    outputs: int
    by_rows: bool
    """Tensor ranks cut its inputs, not its outputs."""
    experts: bool
    modules: tuple[str, ...]
    """Of selective recomputation, each of which gathers it once more."""

    def elements(self, model: ModelSpec, table: LayoutTable) -> FloatColumn:
        """Of one tensor rank, gathered.

        Source: rows times columns over the ranks that keep their own part in the product.
        """
        if not self.experts or model.moe is None:
            return np.asarray(self.inputs * self.outputs / table.tp)
        held = model.moe.num_experts / table.ep
        return np.asarray(held * self.inputs * self.outputs / table.etp)

    def parts(self, table: LayoutTable) -> FloatColumn:
        """Ranks that it is gathered from."""
        return np.asarray(table.egtp if self.experts else table.gtp, float)

    def repeated(self, table: LayoutTable) -> FloatColumn:
        """1 where a repeated forward pass gathers it once more, into a buffer of its own."""
        again = (table.recompute_modules & module_bits(self.modules)) != 0
        return np.asarray((table.recompute == FULL) | again, float)


def gathered_weights(kind: ModelSpec) -> tuple[Gathered, ...]:
    """Those of a layer of a model with one kind, in the order in which it reads them.

    Matrices that read one input are one weight, as the runtime fuses them.
    """
    joined: list[Gathered] = []
    for one in _cut(kind):
        last = joined[-1] if joined else None
        if last and not one.by_rows and replace(last, outputs=one.outputs) == one:
            joined[-1] = replace(last, outputs=last.outputs + one.outputs)
        else:
            joined.append(one)
    return tuple(joined)


def _cut(kind: ModelSpec) -> Iterator[Gathered]:
    for one in matrices(kind):
        if one.cut != "whole":
            modules = _modules(kind, one)
            yield Gathered(one.inputs, one.outputs, one.cut == "rows", one.experts, modules)


def _modules(kind: ModelSpec, one: Matrix) -> tuple[str, ...]:
    name = one.projections[0]
    if one.experts:
        return ("moe",)
    if name in MLP_NAMES:
        return ("shared_experts", "moe") if kind.moe else ("mlp",)
    return ("mla_up_proj",) if name in ("q_up", "kv_up") else ()


def matrix_shards(table: LayoutTable) -> tuple[IntColumn, ...]:
    """The columns `gtp` and `egtp`; none where no row cuts matrices beyond tensor parallelism."""
    cuts = (table.gtp > 1).any() or (table.egtp > 1).any()
    return (table.gtp, table.egtp) if cuts else ()


def whole_layer_params(model: ModelSpec) -> int:
    """Of a layer of a model with one kind, what every tensor rank has whole: norms, routers, ...

    Source: as `costmodel.model.params`; what tensor parallelism leaves whole stays whole.
    """
    whole = MIXER_COUNTS[model.mixer].whole(model) + norms_per_layer(model) * norm_params(model)
    around = router_params(model, model.moe) + latent_params(model, model.moe) if model.moe else 0
    return whole + side_params(model) + around


def wire_bytes(job: Job) -> float:
    """Bytes of one gathered weight: of a native low-precision one its numbers and their scales.

    Source: NVIDIA/Megatron-LM @d98e8a64 docs/api-guide/core/generalized_tensor_parallel.md, table
    of section 1.3; the backward pass gathers the other cast, as large.
    """
    if not job.training.casts:
        return float(job.training.storage_bytes)
    return CAST_BYTES.get(job.training.precision, BYTES_BF16)
