"""Adapters: two thin products beside a matrix, with what they keep and send.

Source: Hu et al., LoRA, arXiv:2106.09685, section 4.1; huggingface/peft @5d602fdb
`tuners/lora/layer.py`, Linear.forward: result + B(A(x)) * scaling; NVIDIA-NeMo/Megatron-Bridge
@067f987d `peft/utils.py`, ParallelLinearAdapter, which does the same over tensor ranks.
"""

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.architecture import MLP_PROJECTIONS
from trainplan.costmodel.blocks.activations import activation_tensors
from trainplan.costmodel.blocks.attention.activations import reorders_output
from trainplan.costmodel.blocks.parts import Part, Shapes, pass_seconds
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import FloatColumn, IntColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels import (
    ForwardBackward,
    Product,
    elementwise_seconds,
    linear_seconds,
)
from trainplan.costmodel.model import Matrix, adapted_matrices
from trainplan.costmodel.routing import loads

MOVED = np.array([(0, 10, 6, 4, 2, 2), (12, 10, 18, 4, 2, 4), (6, 24, 12, 20, 4, 4)])
"""Of adapters in 16 bits, in fp32 under autocast, and in fp32 without it: bytes moved forward per
input and per output of the matrix, the same backward, bytes of an element of its products, kernels.

The adapter's output is scaled (read, written) and added (two read, one written); backward its
gradient is scaled, and both gradients of the input are added. Autocast: the input is cast to fp32
and back to 16 bits, and so is its gradient. Without it all of the adapter is in fp32: the input is
cast once, the sum is cast back, and both gradients are cast to where they came from.
Source: derived; the operations of peft as in this module (`_cast_input_dtype`, and
`tuners/tuners_utils.py`, cast_adapter_dtype) and of Megatron-Bridge; torch.autocast of linear.
"""
READ_BY: tuple[frozenset[str], ...] = (
    frozenset({"q", "k", "v", "q_down", "kv_down", "in_proj", "low_down", "side"})
    | {"output_gate", "index_k", "index_weights"},
    frozenset({"q_up", "index_q"}),
    frozenset({"gate", "up", "latent_in"}),
)
"""Matrices that read one tensor, which is kept once for the adapters of all."""


KEPT_ANYWAY = ("x_proj", "dt_proj", "low_up", "o_down")
"""Matrices whose input the core of the mixer keeps. Source: `blocks.mixers`, `Carried.kept`; an
output that is projected by groups is that of the core."""


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of one adapter on one rank."""

    rows: FloatColumn
    """Tokens whose inputs it reads."""
    added_rows: FloatColumn
    """Tokens whose outputs it adds to."""
    inputs: FloatColumn
    outputs: FloatColumn
    """Columns that it adds to, of those."""
    first: Product
    second: Product


def adapters_part(shapes: Shapes, *, mlp: bool) -> Part:
    """The adapters of one half of a layer."""
    kind = shapes.job.model
    whole = adapted_matrices(kind, joined=shapes.traits.adapting.joins)
    chosen = [one for one in whole if (one.projections[0] in MLP_PROJECTIONS) == mlp]
    nothing = np.zeros(shapes.size)
    part = Part(
        pass_seconds(shapes.size),
        pass_seconds(shapes.size),
        nothing,
        _kept_inputs(shapes, chosen),
        (),
        pass_seconds(shapes.size),
    )
    for matrix in chosen:
        part = part + _adapter(shapes, matrix)
    return part


def adapter_casts(candidates: Candidates) -> IntColumn:
    """Which line of MOVED: mixed precision of FSDP hands adapters over in 16 bits.

    Source: PyTorch `fsdp/api.py`, MixedPrecision.param_dtype.
    """
    job, table = candidates.job, candidates.table
    if job.options.adapter_dtype != "fp32":
        return np.zeros(len(table), dtype=np.int64)
    alone = job.training.state_precision == "bf16"
    return np.where(alone, 2, np.where(table.zero_stage == 0, 1, 0)).astype(np.int64)


def _adapter(shapes: Shapes, matrix: Matrix) -> Part:
    """One adapter: its products, its traffic, and the output of its first half.

    So thin a product takes at least what its operands take to stream.
    """
    rank, machine = _rank(shapes), shapes.machine
    sizes = _sizes(shapes, matrix)
    products = linear_seconds(
        machine, machine.half, [sizes.first, sizes.second], shapes.gradient_bytes
    )
    into, out, into_back, out_back, element, kernels = MOVED[adapter_casts(shapes)].T
    inputs, outputs = sizes.rows * sizes.inputs, sizes.added_rows * sizes.outputs
    read = elementwise_seconds(machine, element * (inputs + outputs))
    fixed = kernels * machine.constants.launch_seconds
    added = shapes.accumulation_seconds(
        matrix.adapter_params(rank) / (shapes.table.etp if matrix.experts else shapes.table.tp)
    )
    sent = adapter_exchange(shapes, matrix)
    forward = pass_seconds(
        shapes.size,
        gemm=np.maximum(products.forward, read),
        elementwise=elementwise_seconds(machine, into * inputs + out * outputs) + fixed,
        tp_comm=sent.forward,
    )
    moved = elementwise_seconds(machine, into_back * inputs + out_back * outputs)
    backward = pass_seconds(
        shapes.size,
        gemm=np.maximum(products.backward, 2 * read),
        elementwise=moved + fixed + added,
        tp_comm=sent.backward,
    )
    weight = np.maximum(products.weight, read) + added
    kept = element * sizes.rows * rank
    return Part(forward, backward, weight, kept, (), pass_seconds(shapes.size))


def _rank(shapes: Shapes) -> int:
    trained = shapes.job.model.trained
    assert trained is not None
    return trained.rank or 0


def _sizes(shapes: Shapes, matrix: Matrix) -> _Sizes:
    """Products of one rank.

    Beside columns the first half is cut along its rank, beside rows along its inputs; the second
    along its outputs either way. `Adapting.local`: the half at the cut side alone is cut.
    Source: Megatron-Bridge as above: linear_in and linear_out; modelscope/mcore-bridge @f020e47
    `tuners/lora.py`, LoraParallelLinear.update_layer.
    """
    zero, rank = np.zeros(shapes.size), _rank(shapes)
    local = shapes.traits.adapting.local and not matrix.experts
    cut = shapes.table.etp if matrix.experts else shapes.table.tp
    by_rows, whole = matrix.cut == "rows", matrix.cut == "whole"
    rows, own = _rows(shapes, matrix), shapes.tokens / shapes.residual_shards
    inner = zero + rank if by_rows or local else rank / cut
    inputs = matrix.inputs / cut if by_rows else zero + matrix.inputs
    outputs = zero + matrix.outputs if local and (by_rows or whole) else matrix.outputs / cut
    added = outputs
    if by_rows and not matrix.experts and not local:
        added = matrix.outputs / shapes.residual_shards
    first = Product(own if local and not by_rows else rows, inner, inputs)
    second = Product(own if local and by_rows else rows, outputs, zero + rank)
    return _Sizes(first.m, second.m, inputs, added, first, second)


def _rows(shapes: Shapes, matrix: Matrix) -> FloatColumn:
    """Tokens that an adapter multiplies: gathered ones, a rank's own, or those of its experts.

    Source: Megatron-Bridge as above: an adapter sees the tokens of its matrix.
    """
    moe = shapes.job.model.moe
    own = shapes.tokens / shapes.residual_shards
    if matrix.experts and moe is not None:
        return own * moe.rows_per_token * shapes.table.etp * loads(shapes.job, shapes.table).fullest
    return own if matrix.cut == "whole" else shapes.tokens


def _kept_inputs(shapes: Shapes, chosen: list[Matrix]) -> FloatColumn:
    """Inputs of adapters, kept for the gradients of their first halves; of one tensor once.

    What sequence parallelism gathered is kept whole. The output of the attention core is there
    anyway, unless it is kept in two orders, or a gate multiplies it. What is cast is each adapter's
    own.
    Source: as this module; Megatron-Bridge `peft/lora.py`, sequence_parallel_input_regather=False;
    oracle: tests/oracles/test_trained.py.
    """
    kept, casts = np.zeros((2, shapes.size))
    seen: set[tuple[frozenset[str] | str, bool]] = set()
    for matrix in chosen:
        sizes, name = _sizes(shapes, matrix), (_read(shapes, matrix), matrix.experts)
        read = sizes.rows * sizes.inputs
        casts = casts + MOVED[adapter_casts(shapes), 4] * read
        if name not in seen:
            kept = kept + _alone(shapes, matrix) * shapes.storage * read
        seen.add(name)
    return np.where(adapter_casts(shapes) > 0, casts, kept)


def _read(shapes: Shapes, matrix: Matrix) -> frozenset[str] | str:
    """Which tensor a matrix reads; queries that are not compressed read the layer's input."""
    first, mla = matrix.projections[0], shapes.job.model.mla
    if first in READ_BY[1] and mla and not mla.q_lora_rank:
        return READ_BY[0]
    return next((one for one in READ_BY if first in one), first)


def _alone(shapes: Shapes, matrix: Matrix) -> FloatColumn:
    """Is the input of a matrix kept for its adapter alone? Else the operation before it keeps it.

    Source: `reorders_output`; `activation_tensors`, one tensor: of a ReLU the
    output.
    """
    name, model = matrix.projections[0], shapes.job.model
    if name == "o" and model.attention_output_gate == "none":
        return reorders_output(shapes).astype(np.float64)
    one = activation_tensors(model, shapes.traits.autograd) == 1
    anyway = (name == "down" and one) or name in KEPT_ANYWAY
    return np.full(shapes.size, 0.0 if anyway else 1.0)


def adapter_exchange(shapes: Shapes, matrix: Matrix) -> ForwardBackward:
    """Traffic of one adapter over tensor ranks, beside which nothing runs.

    Beside columns: the first half's output is gathered, and the gradient of that summed; the
    gradient of the input is summed where the sequence is whole. Beside rows: the first half's
    output is summed, the second's gathered; under sequence parallelism its gradient is gathered,
    too. Where the traffic of the matrix runs beside products, its gathered input is not handed on,
    so the adapter gathers its own.
    Source: Megatron-Bridge as above, and get_adapter_attributes_from_linear.
    """
    if not (shapes.table.tp > 1).any() or matrix.experts:
        none = np.zeros(shapes.size)
        return ForwardBackward(none, none, none)
    links = group(shapes.machine, shapes.table.tp, np.ones_like(shapes.table.tp))
    column, parallel = shapes.storage * _rows(shapes, matrix), shapes.table.sequence_parallel == 1

    def seconds(operation: str, width: float) -> FloatColumn:
        return collective_seconds(shapes.machine, operation, column * width, links)

    rank, inputs, outputs = float(_rank(shapes)), float(matrix.inputs), float(matrix.outputs)
    if shapes.traits.adapting.local:  # gathered before, or summed behind, the one half that is cut
        half = seconds("all_reduce", rank) / 2 * (matrix.cut != "whole")
        return ForwardBackward(half, half, np.zeros(shapes.size))
    if matrix.cut == "rows":
        forward = seconds("all_reduce", rank) + seconds("all_gather", outputs)
        backward = seconds("all_reduce", rank) + parallel * seconds("all_gather", outputs)
        return ForwardBackward(forward, backward, np.zeros(shapes.size))
    again = parallel & shapes.traits.communication.overlaps_tensor_parallel
    again = again & (matrix.cut == "columns")
    forward = seconds("all_gather", rank) + again * seconds("all_gather", inputs)
    summed = np.where(parallel, 0.0, seconds("all_reduce", inputs))
    backward = seconds("all_reduce", rank) + summed + again * seconds("reduce_scatter", inputs)
    if matrix.cut == "whole":
        forward = forward + seconds("all_gather", outputs)
    return ForwardBackward(forward, backward, np.zeros(shapes.size))
