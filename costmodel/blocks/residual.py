"""Norms, residual additions and small side products of a layer, of both halves or of one."""

import numpy as np

from trainplan.costmodel.blocks.activations import layer_norms_extra_bytes
from trainplan.costmodel.blocks.parts import Part, Shapes, pass_seconds
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import Product, linear_seconds
from trainplan.costmodel.model import halves
from trainplan.costmodel.shards import CAST_BYTES

RESIDUAL_PASSES = 10
"""Elements moved per token and hidden unit by two norms and two residual additions, fused.

Source: derived: norm reads 1 and writes 1, residual reads 2 and writes 1, twice each.
"""
STREAM_PASSES = 8
"""Elements moved per token, hidden unit and stream by a half of a layer that mixes streams.

Source: derived: read by the product that weighs them, read for the input of the half, read and
written with its output, which counts twice: such kernels reach 0.4 of the bandwidth, others 0.8
(NVIDIA/TransformerEngine pull request 2790, cuTile, which Megatron Core's `fused_mhc_kernels.py`
is written in).
"""
STREAM_INPUT_PASSES = 4
"""As above without the streams. Source: derived: the input of the half is written, read and normed,
its output read."""
LEGACY_RESIDUAL_PASSES = 13
"""As above with bias, dropout and its mask in the residual kernel.

Source: Megatron-LM `fused_bias_dropout.py`, bias_dropout_add: mask written, bias and mask read.
"""
MASK_BYTES = 1
"""One element of a dropout mask. Source: arXiv:2205.05198, section 4.1."""
FEED_FORWARD_KERNELS = 3
"""Of a layer's kernels beside the products, those of its feed-forward half: norm, activation and
residual addition.

Source: derived; a norm before the first product, an activation between both products and a residual
addition behind the second are one kernel each.
"""
MIXER_KERNELS = 2
"""As above of its other half, without what stands between its products: norm and residual addition.

Source: as FEED_FORWARD_KERNELS.
"""


def residual_columns(shapes: Shapes) -> FloatColumn:
    """Elements moved per token by the norms and residual additions of a layer.

    Source: RESIDUAL_PASSES and LEGACY_RESIDUAL_PASSES, which are of two halves.
    """
    model = shapes.job.model
    legacy = shapes.traits.kernels.elementwise == "legacy"
    passes = LEGACY_RESIDUAL_PASSES if legacy else RESIDUAL_PASSES
    if model.residual_streams > 1:
        passes = 2 * (STREAM_PASSES * model.residual_streams + STREAM_INPUT_PASSES)
    norms = passes * (1.5 if model.norm_position == "both" else 1.0) * (halves(model) / 2)
    return norms * model.hidden_size / shapes.residual_shards


def residual_bytes(shapes: Shapes) -> FloatColumn:
    """Bytes per token kept of the residual stream: input and output of the norm of each half.

    Source: Korthikanti et al., arXiv:2205.05198, section 4.1; a product keeps its input as
    it was cast (`CAST_BYTES`); what norms keep beyond that is in `blocks/activations.py`; halves
    that mix streams keep those too.
    """
    model = shapes.job.model
    rows = (2 + 2 * shapes.input_bytes / shapes.storage) * (halves(model) / 2)
    norms = layer_norms_extra_bytes(model, shapes.traits.autograd, shapes.storage)
    if model.residual_streams > 1:
        rows += model.residual_streams * halves(model)
    residual = (rows * shapes.storage * model.hidden_size + norms) / shapes.residual_shards
    return residual + shapes.storage * model.hidden_size * gathered_rows(shapes)


def mask_bytes(shapes: Shapes) -> int:
    """Bytes per token of the dropout masks of a layer's residual additions."""
    model = shapes.job.model
    masks = halves(model) * MASK_BYTES * model.hidden_size
    return masks if shapes.traits.kernels.dropout else 0


def gathered_rows(shapes: Shapes) -> FloatColumn:
    """Rows of the hidden size, as stored, that gathered inputs of products add to a rank's own.

    Source: `Footprint.keeps_gathered_inputs`; gathered in 8 bits where products take those.
    """
    footprint, training = shapes.traits.footprint, shapes.job.training
    element = CAST_BYTES[training.precision] if training.casts else shapes.storage
    rows = halves(shapes.job.model) * element / shapes.storage * (1 - 1 / shapes.residual_shards)
    return np.asarray(rows * footprint.keeps_gathered_inputs)


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
