"""Layers with frozen weights, and layers that no gradient reaches.

A frozen weight needs no product for its own gradient and no input of its product: what is left
backward is the gradient of the input. What norms, activations and the attention core read backward
is kept all the same.
Source: PyTorch `derivatives.yaml`, `mm` (an input is kept for the gradient of the other alone),
`_fused_rms_norm`, `silu`; Megatron-LM `core/tensor_parallel/layers.py`, wgrad_compute.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.architecture import ATTENTIONS, ModelSpec, adapted
from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.blocks.activations import activation_tensors
from trainplan.costmodel.blocks.adapters import adapters_part
from trainplan.costmodel.blocks.attention.activations import reorders_output
from trainplan.costmodel.blocks.parts import Module, Part, PassSeconds, Shapes, pass_seconds
from trainplan.costmodel.blocks.residual import gathered_rows
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.kernels import elementwise_seconds
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.mixers import linear_of, ssm_of
from trainplan.costmodel.model import (
    expert_hidden,
    halves,
    matrices,
    quantised_bytes,
    value_columns,
)
from trainplan.costmodel.routing import loads
from trainplan.costmodel.shards import remade_bytes

WHOLE_HALVES = ("mlp", "moe")
"""Modules of recomputation that drop all that the second half of a layer keeps."""


def with_frozen_weights(shapes: Shapes) -> Shapes:
    """Columns of a layer with frozen weights: nothing is gathered again, nothing accumulated."""
    nothing = np.zeros(shapes.size)
    return replace(
        shapes,
        tp_regather=nothing,
        tp_wire_again=nothing,
        added_bytes=nothing,
        table_added_bytes=0,
    )


def frozen_passes(backward: PassSeconds, weight: FloatColumn) -> PassSeconds:
    """A backward pass without its products of weight gradients."""
    return backward - pass_seconds(len(weight), gemm=weight)


def frozen_layer(shapes: Shapes, attention: Part, second: Part | None) -> Part:
    """The halves of a layer with frozen weights, and the adapters beside them; null: one half."""
    part = _frozen(attention, unread_mixer_bytes(shapes)) + adapters_part(shapes, mlp=False)
    part = replace(part, modules=tuple(_norm_out(shapes, one) for one in part.modules))
    if second is not None:
        part += _frozen_second(shapes, second)
    both, backward = made_weight_seconds(shapes)
    again = pass_seconds(shapes.size, elementwise=both + backward)
    return replace(
        part,
        forward=part.forward + pass_seconds(shapes.size, elementwise=both),
        backward=part.backward + again,
    )


def _frozen(part: Part, unread: FloatColumn) -> Part:
    return replace(
        part,
        backward=frozen_passes(part.backward, part.weight),
        weight=np.zeros_like(part.weight),
        saved_bytes=part.saved_bytes - unread,
        experts=part.experts
        and replace(
            part.experts,
            backward=part.experts.backward - part.experts.weight,
            weight=np.zeros_like(part.weight),
        ),
    )


def _frozen_second(shapes: Shapes, second: Part) -> Part:
    """The feed-forward half, whose adapters are repeated and dropped with it."""
    products = product_bytes(shapes)
    frozen = _frozen(second, unread_mlp_bytes(shapes))
    part = frozen + adapters_part(shapes, mlp=True)
    own = part.forward - frozen.forward

    def adapted(module: Module) -> Module:
        if module.name in WHOLE_HALVES:
            seconds = module.seconds + own.total
            return replace(module, seconds=seconds, dropped_bytes=part.saved_bytes)
        dropped = module.dropped_bytes - products.get(module.name, np.zeros(shapes.size))
        return replace(module, dropped_bytes=np.maximum(0.0, dropped))

    return replace(part, modules=tuple(map(adapted, part.modules)))


def _norm_out(shapes: Shapes, module: Module) -> Module:
    """What a module drops, where that is kept at all: the input of an output projection."""
    kept = module.name != "gdn_norm_out" or "out_proj" in adapted(shapes.job.model)
    return module if kept else replace(module, dropped_bytes=np.zeros(shapes.size))


def unread_mixer_bytes(shapes: Shapes) -> FloatColumn:
    """What the first half keeps for gradients of weights alone.

    The outputs of both norms of the layer, the copy of the core's output in another order or
    behind a gate, the outputs of the norms of latents, and what mixers with a state project.
    Source: as this module; `attention.core.saved_bytes` and `Carried.kept`.
    """
    model, latent, copied = shapes.job.model, 0, np.zeros(shapes.size, dtype=np.bool)
    if model.mixer in ATTENTIONS:
        latent = (model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank if model.mla else 0
        gated = model.attention_output_gate != "none"
        copied = reorders_output(shapes) | gated
    rows = halves(model) * shapes.input_bytes / shapes.storage
    sharded = (rows * model.hidden_size + latent) / shapes.residual_shards
    within = (value_columns(model) * copied + _projected_columns(model)) / shapes.table.tp
    columns = sharded + model.hidden_size * gathered_rows(shapes) + within
    return shapes.tokens * shapes.storage * columns


def _projected_columns(model: ModelSpec) -> int:
    """Columns that a mixer keeps for its output projection: of a normed or gated output.

    Source: `Carried.kept` of each mixer in `blocks.mixers`.
    """
    if model.mixer == "linear_attention":
        return linear_of(model).value_width
    if model.mixer in ("mamba", "attention_and_mamba"):
        ssm = ssm_of(model)
        return ssm.inner_width * (ssm.gated_norm or bool(ssm.time_step_rank))
    return model.hidden_size if model.mixer == "convolution" else 0


def unread_mlp_bytes(shapes: Shapes) -> FloatColumn:
    """As above of the second half: inputs of its last product, and of experts' first one.

    Source: as this module; `feed_forward.mlp.inner_bytes` and `feed_forward.rows.saved_bytes`.
    """
    model, moe = shapes.job.model, shapes.job.model.moe
    if model.feed_forward == "none":
        return np.zeros(shapes.size)
    unread = sum(product_bytes(shapes).values(), start=np.zeros(shapes.size))
    if model.feed_forward != "moe" or moe is None:
        return unread
    return unread + shapes.input_bytes * expert_rows(shapes) * expert_hidden(model)


def product_bytes(shapes: Shapes) -> dict[str, FloatColumn]:
    """Bytes kept of the inputs of last products, by the module that holds them.

    In low precision what is kept around an activation is three quarters of it in 16 bits, of which
    the inputs are all but one tensor. Source: as `unread_mlp_bytes`.
    """
    model, moe = shapes.job.model, shapes.job.model.moe
    tensors = activation_tensors(model, shapes.traits.autograd)
    if model.feed_forward != "moe" or moe is None:
        width = model.intermediate_size / shapes.table.tp
        return {"mlp": shapes.tokens * width * _product_share(shapes, tensors)}
    weighted = shapes.traits.footprint.weighted_experts and not model.gated_mlp
    cut = moe.moe_intermediate_size / shapes.table.etp
    shared = moe.shared_expert_intermediate_size / shapes.table.tp
    routed = _product_share(shapes, tensors + weighted)
    return {
        "moe_act": expert_rows(shapes) * cut * routed,
        "shared_experts": shapes.tokens * shared * _product_share(shapes, tensors),
    }


def _product_share(shapes: Shapes, tensors: int) -> float:
    """Bytes per element of what is kept around an activation for the weight behind it."""
    share = 0.75 if shapes.keeps_cast_inputs else 1.0
    inputs = max(1, tensors - 1)
    return shapes.storage * max(0.0, share * tensors - inputs)


def expert_rows(shapes: Shapes) -> FloatColumn:
    """Rows that the experts of one rank see. Source: as `feed_forward.rows.routing_of`."""
    moe = shapes.job.model.moe
    assert moe is not None
    balanced = shapes.tokens / shapes.residual_shards * moe.rows_per_token * shapes.table.etp
    return np.asarray(balanced * loads(shapes.job, shapes.table).fullest)


def made_weight_seconds(shapes: Shapes) -> tuple[FloatColumn, FloatColumn]:
    """Making the matrices of a layer as they multiply: in either pass, and backward alone.

    Those in 4 bits are read and written in 16, transposes in 8 are read and written.
    Source: bitsandbytes `autograd/_functions.py`, MatMul4Bit, forward and backward; `remade_bytes`.
    """
    kind, nothing = shapes.job.model, np.zeros(shapes.size)
    weights = held_weights(kind, shapes.table)
    moved = 2 * remade_bytes(shapes.job, shapes.traits) * weights
    if kind.trained is None or not kind.trained.quantised:
        return nothing, elementwise_seconds(shapes.machine, moved)
    both = quantised_bytes(kind) + BYTES_BF16 * weights
    return elementwise_seconds(shapes.machine, both), nothing


def held_weights(kind: ModelSpec, table: LayoutTable) -> FloatColumn:
    """Weights of the matrices of a layer on one rank, those of all its experts too."""
    experts = kind.moe.num_experts / (table.ep * table.etp) if kind.moe else 0.0
    held = np.zeros(len(table))
    for one in matrices(kind):
        cut = 1.0 if one.cut == "whole" else 1 / table.tp
        held = held + one.size * (experts if one.experts else cut)
    return held
