"""What mixes the tokens of a layer, with the norms of the layer: one part for each mixer."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import Mixer
from trainplan.costmodel.blocks.attention.core import attention_part
from trainplan.costmodel.blocks.mixers.convolutions import convolution_part, mamba_part
from trainplan.costmodel.blocks.mixers.linear_attention import linear_attention_part
from trainplan.costmodel.blocks.mixers.sparse import sparse_attention_part
from trainplan.costmodel.blocks.parts import Part, Shapes, pass_seconds
from trainplan.costmodel.blocks.residual import (
    FEED_FORWARD_KERNELS,
    MIXER_KERNELS,
    mask_bytes,
    residual_bytes,
    residual_columns,
)
from trainplan.costmodel.kernels import elementwise_seconds


def residual_part(shapes: Shapes) -> Part:
    """Norms and residual additions of a layer alone: all that one costs that mixes no tokens."""
    constants = shapes.machine.constants
    kernels = FEED_FORWARD_KERNELS if shapes.job.model.feed_forward != "none" else 0
    kernels += MIXER_KERNELS if shapes.job.model.mixer != "none" else 0
    fixed = kernels * constants.launch_seconds
    moved = shapes.eager * shapes.storage * shapes.tokens * residual_columns(shapes)
    seconds = elementwise_seconds(shapes.machine, moved)
    backward = constants.elementwise_backward * seconds + 1.5 * fixed
    masks = mask_bytes(shapes) / shapes.residual_shards
    return Part(
        pass_seconds(shapes.size, elementwise=seconds + fixed),
        pass_seconds(shapes.size, elementwise=backward),
        np.zeros(shapes.size),
        shapes.tokens * (residual_bytes(shapes) + masks),
        (),
        pass_seconds(shapes.size),
    )


def side_by_side_part(shapes: Shapes) -> Part:
    """Attention and Mamba on one normed input, whose outputs are added (Falcon-H1).

    Source: arXiv:2507.22448, section 2.1: one norm, one residual addition; transformers
    `modeling_falcon_h1.py`, FalconH1DecoderLayer.
    """
    both = attention_part(shapes) + mamba_part(shapes)
    twice = residual_part(shapes)
    return replace(
        both,
        forward=both.forward - twice.forward,
        backward=both.backward - twice.backward,
        saved_bytes=both.saved_bytes - twice.saved_bytes,
    )


MIXER_PARTS: dict[Mixer, Callable[[Shapes], Part]] = {
    "full_attention": attention_part,
    "sliding_attention": attention_part,
    "chunked_attention": attention_part,
    "sparse_attention": sparse_attention_part,
    "bidirectional_attention": attention_part,
    "linear_attention": linear_attention_part,
    "mamba": mamba_part,
    "attention_and_mamba": side_by_side_part,
    "convolution": convolution_part,
    "none": residual_part,
}
"""What each mixer costs."""
