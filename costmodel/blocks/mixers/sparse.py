"""Attention on the keys that an indexer picks."""

import numpy as np

from trainplan.costmodel.architecture import IndexerSpec
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.blocks.attention.core import attention_part
from trainplan.costmodel.blocks.mixers.carried import CHUNK_PRODUCTS_SPEED
from trainplan.costmodel.blocks.parts import Part, Shapes, pass_seconds
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import Product, elementwise_seconds, linear_seconds
from trainplan.costmodel.mixers import attention_span, indexer_flop

SCORE_PASSES = 3
"""Passes of fp32 over the scores of the indexer: written, and read twice by the selection.

Source: derived; Megatron Core @d98e8a64 `experimental_attention_variant/ops/indexer.py`.
"""
INDEXER_KERNELS = 8
"""Three projections, norm of the keys, rotation of both, scores, selection. Source: derived; as
`_indexer`."""


def sparse_attention_part(shapes: Shapes) -> Part:
    """Attention with the indexer, where the layer has one of its own."""
    model = shapes.job.model
    attention = attention_part(shapes)
    if model.indexer is None or model.shares_index:
        return attention
    return attention + _indexer(shapes, model.indexer)


def _indexer(shapes: Shapes, indexer: IndexerSpec) -> Part:
    """Projections, scores of all keys, selection. Every tensor rank does all of it.

    It learns from a loss of its own on the keys that it picked, so its scores have gradients there
    alone. Kept: its queries, key and head weights, and the keys that it picked.
    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.1, equation 4; Megatron Core @d98e8a64
    `experimental_attention_variant/dsa.py`, whose projections are duplicated.
    """
    machine, model, zero = shapes.machine, shapes.job.model, np.zeros(shapes.size)
    width = indexer.num_heads * indexer.head_dim
    latent = (model.mla and model.mla.q_lora_rank) or model.hidden_size
    sizes = ((width, latent), (indexer.head_dim + indexer.num_heads, model.hidden_size))
    products = linear_seconds(
        machine,
        shapes.linear,
        [Product(shapes.tokens, zero + n, zero + k) for n, k in sizes],
        shapes.gradient_bytes,
    )
    forward, backward = _scores(shapes)
    seen = shapes.job.training.seq_length / (2 * (model.key_compression or 1))
    moved = elementwise_seconds(machine, SCORE_PASSES * BYTES_FP32 * shapes.tokens * seen)
    moved = moved + INDEXER_KERNELS * machine.constants.launch_seconds
    kept = shapes.storage * (width + indexer.head_dim + indexer.num_heads)
    picked = BYTES_FP32 * min(indexer.top_k, shapes.job.training.seq_length)
    return Part(
        pass_seconds(shapes.size, gemm=products.forward, attention=forward, elementwise=moved),
        pass_seconds(shapes.size, gemm=products.backward, attention=backward),
        products.weight,
        shapes.tokens * (kept + picked),
        (),
        pass_seconds(shapes.size),
    )


def _scores(shapes: Shapes) -> tuple[FloatColumn, FloatColumn]:
    """Seconds of the indexer's scores in both passes. Source: `_indexer`; CHUNK_PRODUCTS_SPEED."""
    model, seq_length = shapes.job.model, shapes.job.training.seq_length
    machine = shapes.machine
    speed = CHUNK_PRODUCTS_SPEED * machine.attention_max_efficiency
    flop = shapes.tokens * indexer_flop(model, seq_length)
    forward = flop / (machine.half.peak_flop_per_second * speed)
    picked = min(1.0, attention_span(model, seq_length) / (seq_length / 2))
    return forward, 2 * picked * forward
