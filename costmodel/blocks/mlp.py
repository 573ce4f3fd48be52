"""The dense MLP half of a layer, and the shared experts, which are one too."""

from __future__ import annotations

import numpy as np

from costmodel.blocks.parts import Module, Part, Shapes, pass_seconds
from costmodel.compute import (
    ELEMENTWISE_BACKWARD,
    ForwardBackward,
    Product,
    elementwise_seconds,
    linear_seconds,
)
from costmodel.table import FloatColumn
from costmodel.units import BYTES_BF16


def activation_bytes(shapes: Shapes, width: int) -> FloatColumn:
    """Bytes the activation function moves forward: its inputs and its output.

    Source: derived; a gated unit reads two tensors and writes one, a plain one reads and writes
    one.
    """
    tensors = 3 if shapes.job.model.gated_mlp else 2
    return tensors * BYTES_BF16 * shapes.tokens * width / shapes.table.tp


def inner_bytes(shapes: Shapes, width: int) -> FloatColumn:
    """Activations inside the MLP that backward needs: inputs and output of the activation.

    Source: Korthikanti et al., arXiv:2205.05198, section 4.1 (8 h -> 2 x 2 f, gated 3 x 2 f);
    three quarters with fp8 inputs of the second product (fitted on 24 measured runs).
    """
    share = 1.0 if shapes.machine.linear.element_bytes == BYTES_BF16 else 0.75
    return share * activation_bytes(shapes, width)


def products_seconds(shapes: Shapes, width: int) -> ForwardBackward:
    """Up (and gate) and down projection.

    Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3: columns then rows over tp.
    """
    h, zero = shapes.job.model.hidden_size, np.zeros(shapes.size)
    ups = 2 if shapes.job.model.gated_mlp else 1
    cut = width / shapes.table.tp
    return linear_seconds(
        shapes.machine,
        shapes.machine.linear,
        [Product(shapes.tokens, ups * cut, zero + h), Product(shapes.tokens, zero + h, cut)],
    )


def mlp_part(shapes: Shapes, width: int, module: str, inside: str = "") -> Part:
    """An MLP of the given width, which recomputation knows by the name of `module`."""
    products = products_seconds(shapes, width)
    activation = elementwise_seconds(shapes.machine, activation_bytes(shapes, width))
    inner = inner_bytes(shapes, width)
    forward = pass_seconds(
        shapes.size, gemm=products.forward, elementwise=activation, tp_comm=shapes.tp_exchange
    )
    backward = pass_seconds(
        shapes.size,
        gemm=products.backward,
        elementwise=ELEMENTWISE_BACKWARD * activation,
        tp_comm=shapes.tp_exchange + shapes.tp_regather,
    )
    return Part(forward, backward, inner, (Module(module, forward.total, inner, inside),))
