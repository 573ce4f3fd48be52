"""Small products of a layer beside its two halves: gates, low-rank branches, mixed streams."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.blocks.parts import Part, Shapes, pass_seconds
from trainplan.costmodel.kernels import Product, linear_seconds


def side_part(shapes: Shapes) -> Part:
    """Every rank multiplies its own tokens with whole weights, and keeps the outputs.

    What such a layer does with them element by element is left out.
    Source: derived from `ModelSpec.side_products`: each is a linear layer no rank divides, as the
    down-projections of latent attention.
    """
    tokens, zero = shapes.tokens / shapes.residual_shards, np.zeros(shapes.size)
    pairs = shapes.job.model.side_products
    products = [Product(tokens, zero + outputs, zero + inputs) for inputs, outputs in pairs]
    seconds = linear_seconds(shapes.machine, shapes.linear, products, shapes.gradient_bytes)
    return Part(
        pass_seconds(shapes.size, gemm=seconds.forward),
        pass_seconds(shapes.size, gemm=seconds.backward),
        seconds.weight,
        saved_bytes=shapes.storage * tokens * sum(outputs for _, outputs in pairs),
        modules=(),
        tail=pass_seconds(shapes.size),
    )
