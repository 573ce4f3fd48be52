"""The dense MLP half of a layer, and the shared experts, which are one too."""

import numpy as np

from trainplan.costmodel.base import BYTES_FP8
from trainplan.costmodel.blocks.activations import (
    activation_tensors,
    narrow_inputs,
    narrowing_bytes,
)
from trainplan.costmodel.blocks.parts import TERMS, Module, Part, PassSeconds, Shapes, pass_seconds
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    forward_rate,
    linear_seconds,
    product_seconds,
)
from trainplan.costmodel.shards import added_bytes, mlp_tiles


def activation_bytes(shapes: Shapes, width: int) -> FloatColumn:
    """Bytes the activation function moves forward: its inputs and its output.

    Source: derived; a gated unit reads two tensors and writes one, a plain one reads and writes
    one; `narrowing_bytes`.
    """
    tensors = 3 if shapes.job.model.gated_mlp else 2
    each = tensors * shapes.storage + narrowing_bytes(shapes)
    return each * shapes.tokens * width / shapes.table.tp


def inner_bytes(shapes: Shapes, width: int) -> FloatColumn:
    """Activations inside the MLP that backward needs: inputs and output of the activation.

    Source: Korthikanti et al., arXiv:2205.05198, section 4.1 (8 h -> 2 x 2 f, gated 3 x 2 f);
    three quarters with fp8 inputs of the second product (fitted on 24 measured runs); inputs in
    fp8 are a byte each less (`narrow_inputs`).
    """
    share = 0.75 if shapes.keeps_cast_inputs else 1.0
    tensors = activation_tensors(shapes.job.model, shapes.traits.autograd)
    each = share * tensors * shapes.storage - narrow_inputs(shapes) * (shapes.storage - BYTES_FP8)
    return each * shapes.tokens * width / shapes.table.tp


def products_seconds(shapes: Shapes, width: int) -> ForwardBackward:
    """Up (and gate) and down projection.

    Source: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3: columns then rows over tp.
    """
    h, zero = shapes.job.model.hidden_size, np.zeros(shapes.size)
    ups = 2 if shapes.job.model.gated_mlp else 1
    cut = width / shapes.table.tp
    return linear_seconds(
        shapes.machine,
        shapes.linear,
        [Product(shapes.tokens, ups * cut, zero + h), Product(shapes.tokens, zero + h, cut)],
        shapes.gradient_bytes,
    )


def _bias_seconds(shapes: Shapes, width: int) -> FloatColumn:
    """Gradients of the biases of all projections. Source: `Shapes.bias_seconds`."""
    model = shapes.job.model
    ups = (2 if model.gated_mlp else 1) * width / shapes.table.tp
    columns = ups + model.hidden_size / shapes.residual_shards
    return shapes.bias_seconds(columns, stated=model.mlp_bias)


def mlp_part(shapes: Shapes, width: int, module: str, inside: str = "") -> Part:
    """An MLP of the given width, which recomputation knows by the name of `module`."""
    products = products_seconds(shapes, width)
    moved = shapes.eager * activation_bytes(shapes, width)
    activation = elementwise_seconds(shapes.machine, moved)
    tiled = shapes.table.tiled_mlp == 1
    inner = np.where(tiled, 0.0, inner_bytes(shapes, width))
    exchange = shapes.exposed_exchange(products)
    forward = pass_seconds(
        shapes.size, gemm=products.forward, elementwise=activation, tp_comm=exchange.forward
    )
    backward = pass_seconds(
        shapes.size,
        gemm=products.backward,
        elementwise=shapes.machine.constants.elementwise_backward * activation
        + _bias_seconds(shapes, width),
        tp_comm=exchange.backward,
    )
    if tiled.any():
        backward += tile_passes(shapes, width, forward)
    modules: tuple[Module, ...] = (Module(module, forward.total, inner, inside),)
    if shapes.traits.recompute.policy == "torchtitan_selective_op":
        modules = (*modules, selected_operations(shapes, width, activation))
    tail = _tail(shapes, width, exchange.forward)
    return Part(forward, backward, products.weight, inner, modules, tail)


def _tail(shapes: Shapes, width: int, exchange: FloatColumn) -> PassSeconds:
    """The down projection and the exchange behind it, where nothing behind them keeps its input.

    Source: derived; a product keeps its inputs, a residual addition nothing, a dropout its mask and
    a norm its input. Tiles are one operation, which ends with the last of them.
    """
    if shapes.traits.kernels.dropout or shapes.job.model.norm_position != "pre":
        return pass_seconds(shapes.size)
    hidden = np.where(shapes.table.tiled_mlp == 1, 0.0, shapes.job.model.hidden_size)
    down = Product(shapes.tokens, hidden, width / shapes.table.tp)
    machine = shapes.machine
    rate = forward_rate(machine.linear)
    product = product_seconds(machine, rate, down, machine.storage_bytes)
    behind = np.where(shapes.table.sequence_parallel == 1, 0.5, 1.0) * (hidden > 0)
    return pass_seconds(shapes.size, gemm=product, tp_comm=behind * exchange)


def tile_passes(shapes: Shapes, width: int, forward: PassSeconds) -> PassSeconds:
    """What tiles add to the backward pass: forward again, and sums of weight gradients.

    Source: deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py, TiledMLP.backward; the
    weights stay gathered between the tiles, which lie nearer than ZeRO-3's reuse distance.
    """
    model, tiled = shapes.job.model, shapes.table.tiled_mlp == 1
    ups = 2 if model.gated_mlp else 1
    weights = (ups + 1) * model.hidden_size * width / shapes.table.tp
    moved = added_bytes(
        shapes.storage,
        weights,
        mlp_tiles(shapes.job, shapes.table),
        sum_bytes=shapes.storage,
    )
    added = elementwise_seconds(shapes.machine, moved)
    again = PassSeconds(*(np.where(tiled, term, 0.0) for term in TERMS(forward)))
    return again + pass_seconds(shapes.size, elementwise=np.where(tiled, added, 0.0))


def selected_operations(shapes: Shapes, width: int, activation: FloatColumn) -> Module:
    """What torchtitan's policy repeats of an MLP: the second up projection and the activation.

    Source: as `costmodel.blocks.attention.core.selected_operations`.
    """
    zero, cut = np.zeros(shapes.size), width / shapes.table.tp
    up = Product(shapes.tokens, cut, zero + shapes.job.model.hidden_size)
    product = linear_seconds(shapes.machine, shapes.linear, [up])
    dropped = 2 * shapes.storage * shapes.tokens * cut
    return Module("torchtitan_selective_op", product.forward + activation, dropped)
