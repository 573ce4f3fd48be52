"""A tower for one micro batch: encoder and projectors, beside the token embedding.

Its layers are priced as those of a decoder. Every context-parallel rank runs it whole, and every
tensor rank where its matrices are not cut; its own sequences are never cut.
Source: NVIDIA-NeMo/Megatron-Bridge @067f987d `models/qwen_vl/modelling_qwen3_vl/
transformer_config.py`, get_vision_model_config (tensor_model_parallel_size of the decoder,
sequence_parallel off, context_parallel_size 1), and `models/qwen_vl/modeling_qwen25_vl.py`,
hook_hf_module_setattr_for_tp_grad_sync (a module of transformers, whole on every tensor rank).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from trainplan.costmodel.architecture import ProjectorSpec, TowerSpec
from trainplan.costmodel.blocks.block import Block
from trainplan.costmodel.blocks.parts import TERMS, PassSeconds, Shapes, pass_seconds, shapes
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels import Product, elementwise_seconds, linear_seconds
from trainplan.costmodel.shards import tower_layers, tower_ranks, tower_rows


@dataclass(frozen=True, slots=True)
class TowerBlock:
    """A tower, with what full recomputation makes of it."""

    block: Block
    """Its `recompute_forward` is that of the layers of the encoder, where they are trained."""
    recomputed_bytes: FloatColumn
    """Of `saved_bytes`, what full recomputation keeps: of a layer its input."""
    layer_bytes: FloatColumn
    """What one layer makes that a backward pass reads, kept or not."""


def tower_block(keys: Candidates, layer_of: Callable[[Shapes], Block]) -> TowerBlock | None:
    """The tower of the model for each key; `layer_of` prices one layer of a model of one kind.

    Source: derived; its layers and what stands around them run one after the other.
    """
    tower = keys.job.model.tower
    if tower is None:
        return None
    columns = _columns(keys, tower)
    layers, each, inputs = [], [], np.zeros(len(keys.table))
    for kind in tower_layers(tower):
        rows = tower_rows(keys, kind)
        own = shapes(rows)
        each.append(layer_of(own))
        layers.append(_times(each[-1], kind.count))
        inputs = inputs + kind.count * own.storage * own.tokens * tower.hidden_size
    encoder = reduce(add, [*layers, _embedding(columns, tower)])
    again = encoder.recompute_forward
    if tower.frozen != "none":
        encoder, inputs = encoder.forward_alone(), np.zeros(len(keys.table))
    projector = reduce(
        add, (_projector(columns, p) for p in tower.projectors), _handed_over(columns)
    )
    if tower.frozen == "all":
        projector = projector.forward_alone()
    layer_bytes = sum(one.saved_bytes for one in layers) if tower.frozen == "none" else 0.0
    whole = encoder + projector
    whole = replace(whole, recompute_forward=_scaled(again, float(tower.frozen == "none")))
    largest = np.max([one.saved_bytes for one in each], axis=0)
    return TowerBlock(whole, whole.saved_bytes - layer_bytes + inputs, largest)


def with_tower(embedding: Block, tower: TowerBlock | None) -> Block:
    """The first block of the model: the token embedding, and the tower that runs beside it."""
    return embedding if tower is None else embedding + tower.block


def _scaled(seconds: PassSeconds, factor: float) -> PassSeconds:
    return PassSeconds(*(factor * term for term in TERMS(seconds)))


def _times(block: Block, count: int) -> Block:
    """So many such layers, which full recomputation repeats."""
    return Block(
        _scaled(block.forward, count),
        _scaled(block.backward, count),
        weight=count * block.weight,
        saved_bytes=count * block.saved_bytes,
        modules=(),
        recompute_forward=_scaled(block.recompute_forward, count),
        host_ahead=count * block.host_ahead,
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the parts around the layers need."""

    shapes: Shapes
    patches: FloatColumn
    """Of one micro batch."""
    handed: FloatColumn
    """Tokens of one micro batch that the decoder gets."""
    tp: FloatColumn
    """Ranks that a matrix is cut over."""


def _columns(keys: Candidates, tower: TowerSpec) -> _Columns:
    samples = keys.table.micro_batch_size.astype(np.float64) * tower.samples_per_sequence
    patches, handed = samples * tower.patches_per_sample, samples * tower.tokens_per_sample
    tp = tower_ranks(tower, keys.table).astype(np.float64)
    return _Columns(shapes(keys), patches, handed, tp)


def _part(columns: _Columns, products: list[Product], moved: FloatColumn, *, half: bool) -> Block:
    """Products with what they move beside: its gradients move twice as much.

    Source: `linear_seconds`; an elementwise operation reads its gradient and writes that of its
    input backward, and reads what it kept.
    """
    of = columns.shapes
    rate = of.machine.half if half else of.linear
    size, weights = len(of.table), np.zeros(len(of.table))
    gemm = linear_seconds(of.machine, rate, products, of.gradient_bytes) if products else None
    for one in products:
        weights = weights + one.n * one.k
    added = of.accumulation_seconds(weights)
    launches = (1 + len(products)) * of.machine.constants.launch_seconds
    seconds = elementwise_seconds(of.machine, of.eager * moved) + launches
    zero = np.zeros(size)
    forward = pass_seconds(size, gemm=gemm.forward if gemm else zero, elementwise=seconds)
    backward = pass_seconds(
        size, gemm=gemm.backward if gemm else zero, elementwise=2 * seconds + added
    )
    weight = (gemm.weight if gemm else zero) + added
    return Block(
        forward,
        backward,
        weight,
        saved_bytes=zero,
        modules=(),
        recompute_forward=pass_seconds(size),
        host_ahead=zero,
    )


def _embedding(columns: _Columns, tower: TowerSpec) -> Block:
    """Patches from pixels or sound, in 16 bits: their gradient stops at the weights.

    Source: a convolution whose stride is its kernel is one product of patches (arXiv:2010.11929,
    section 3.1); positions are added, and the input is kept for the gradient of the weights.
    """
    of, zero = columns.shapes, np.zeros(len(columns.patches))
    products = [
        Product(columns.patches * one.rows, zero + one.out_features, zero + one.in_features)
        for one in tower.embeddings
    ]
    moved = 3 * of.storage * columns.patches * tower.hidden_size
    block = _part(columns, products, moved, half=True)
    first = linear_seconds(of.machine, of.machine.half, products[:1], of.gradient_bytes)
    backward = replace(block.backward, gemm=block.backward.gemm - (first.backward - first.weight))
    read = sum(one.rows * one.in_features for one in tower.embeddings)
    return replace(block, backward=backward, saved_bytes=of.storage * columns.patches * read)


def _handed_over(columns: _Columns) -> Block:
    """The tokens of the tower take their places among those of the text: read and written."""
    hidden = columns.shapes.job.model.hidden_size
    return _part(columns, [], 2 * columns.shapes.storage * columns.handed * hidden, half=True)


def _projector(columns: _Columns, projector: ProjectorSpec) -> Block:
    """Norm, matrices and the activations between them, on the tokens handed over.

    Where matrices are cut, by columns and rows in turn, the output of each second one, and backward
    the gradient of its input, is all-reduced.
    Source: Shoeybi et al., arXiv:1909.08053, section 3; Megatron-Bridge `modelling_qwen3_vl`,
    PatchMergerSubmodules (TEColumnParallelLinear, TERowParallelLinear).
    """
    of, tp, zero = columns.shapes, columns.tp, np.zeros(len(columns.handed))
    products, exchanged, inner = [], zero, zero + 0.0
    for place, one in enumerate(projector.linears):
        by_rows = place % 2 == 1
        n, k = (
            (zero + one.out_features, one.in_features / tp)
            if by_rows
            else (one.out_features / tp, zero + one.in_features)
        )
        products.append(Product(columns.handed * one.rows, n, k))
        exchanged = exchanged + by_rows * (one.out_features + projector.linears[0].in_features)
        inner = inner + (0.0 if by_rows else 1.0) * (len(projector.linears) > place + 1) * n
    block = _part(
        columns,
        products,
        of.storage * columns.handed * (2 * projector.norm_size + 2 * inner),
        half=False,
    )
    first = projector.linears[0].in_features
    kept = (first * (1 + bool(projector.norm_size)) + 2 * inner) * of.storage * columns.handed
    links = group(of.machine, tp.astype(np.int64), np.ones(len(zero), dtype=np.int64))
    bytes_each_way = of.storage * columns.handed * exchanged / 2
    reduced = collective_seconds(of.machine, "all_reduce", bytes_each_way, links)
    both = pass_seconds(len(zero), tp_comm=reduced * (tp > 1))
    return replace(
        block, forward=block.forward + both, backward=block.backward + both, saved_bytes=kept
    )
