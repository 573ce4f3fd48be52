"""The first and the last block: embedding, and output projection with the loss."""

import numpy as np

from trainplan.costmodel.blocks.parts import PassSeconds, Shapes, pass_seconds, traffic_left
from trainplan.costmodel.blocks.residual import MASK_BYTES
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.job import Job
from trainplan.costmodel.kernels import (
    Product,
    elementwise_seconds,
    linear_seconds,
    streaming_bytes_per_second,
)
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RuntimeTraits, loss_tiles
from trainplan.costmodel.shards import added_bytes, padded_vocab, projected_share, table_weights

LOSS_PASSES = 5
"""Elements moved per logit by a fused vocabulary-parallel cross entropy, forward and backward.

Source: logits are read twice and their gradient is written, three elements; exponentials in fp32,
two elements wide, pass memory once and are in cache otherwise.
"""
UNFUSED_LOSS_PASSES = 12
"""As above, one kernel for each operation on an fp32 copy.

Source: derived from Megatron-LM `vocab_parallel_cross_entropy.py`: copy, maximum, difference,
exponential, sum, quotient, and the gradient cast back.
"""


def embedding_passes(shapes: Shapes) -> tuple[PassSeconds, PassSeconds, FloatColumn]:
    """Forward, backward and weight-gradient seconds of the token embedding.

    A gather of rows, then one exchange; backward the rows are added up in a gradient of the whole
    table, which starts from zeros.

    Source: Shoeybi et al., arXiv:1909.08053, section 3 (vocabulary-parallel embedding); PyTorch
    `aten/src/ATen/native/cuda/Embedding.cu`, embedding_dense_backward_cuda; `table_added_bytes`.
    """
    moved = 2 * shapes.storage * shapes.tokens * shapes.job.model.hidden_size
    seconds = elementwise_seconds(shapes.machine, moved) + shapes.machine.constants.launch_seconds
    exchange = shapes.tp_wire
    weights = table_weights(shapes.job.model, shapes.table)
    whole = (shapes.storage + shapes.table_added_bytes) * weights
    added = shapes.accumulation_seconds(weights) + elementwise_seconds(shapes.machine, whole)
    return (
        pass_seconds(shapes.size, elementwise=seconds, tp_comm=exchange / 2),
        pass_seconds(shapes.size, elementwise=2 * seconds + added, tp_comm=exchange / 2),
        added,
    )


def head_passes(shapes: Shapes) -> tuple[PassSeconds, PassSeconds, FloatColumn]:
    """Forward, backward and weight-gradient seconds of final norm, projection and loss, in bf16.

    Tiles run both passes at once, and add their gradients of the table.
    Source: Korthikanti et al., arXiv:2205.05198, section 4.3; three products of T x V x h;
    deepspeedai/DeepSpeed runtime/sequence_parallel/ulysses_sp.py, TiledFusedLogitsLoss.
    """
    model, rate = shapes.job.model, shapes.machine.half
    tokens = shapes.tokens * projected_share(shapes.job, shapes.traits)
    vocab = padded_vocab(model.vocab_size, shapes.table.tp) / shapes.table.tp
    h = np.zeros(shapes.size) + model.hidden_size
    products = linear_seconds(
        shapes.machine, rate, [Product(tokens, vocab, h)], shapes.gradient_bytes
    )
    weights = table_weights(model, shapes.table)
    added = shapes.accumulation_seconds(weights)
    traits = shapes.traits
    logits, gathered = shapes.storage * tokens * vocab, np.zeros(shapes.size)
    if traits.communication.gathers_logits:
        logits = logits * shapes.table.tp
        gathered = _gather_seconds(shapes, logits)
    loss = _loss_seconds(shapes, logits)
    tiles = loss_tiles(shapes.job, shapes.table, traits.tiling)
    tiles = np.where(shapes.table.tiled_loss == 1, tiles, 1.0)
    sums = traits.gradients.accumulated_bytes if traits.tiling.loss_chunks else shapes.storage
    tile_sums = added_bytes(shapes.storage, weights, tiles, sum_bytes=sums)
    added = added + elementwise_seconds(shapes.machine, tile_sums)
    fixed = 3 * shapes.machine.constants.launch_seconds
    exchange, wire = shapes.tp_exchange / 2, shapes.tp_wire / 2
    back = exchange + shapes.tp_regather, wire + shapes.tp_wire_again
    return (
        pass_seconds(
            shapes.size,
            gemm=products.forward,
            elementwise=loss / 2 + fixed,
            tp_comm=traffic_left(exchange, wire, products.forward) + gathered,
        ),
        pass_seconds(
            shapes.size,
            gemm=products.backward,
            elementwise=loss / 2 + fixed + added,
            tp_comm=traffic_left(*back, products.backward),
        ),
        products.weight + added,
    )


def _gather_seconds(shapes: Shapes, logit_bytes: FloatColumn) -> FloatColumn:
    """Seconds until every tensor rank has all logits. Source: `Communication.gathers_logits`."""
    links = group(shapes.machine, shapes.table.tp, np.ones(shapes.size, dtype=np.int64))
    return collective_seconds(shapes.machine, "all_gather", logit_bytes, links)


def _loss_seconds(shapes: Shapes, logit_bytes: FloatColumn) -> FloatColumn:
    """Seconds of the cross entropy, forward and backward; the fused kernel as measured, if it was.

    Source: LOSS_PASSES and UNFUSED_LOSS_PASSES.
    """
    machine = shapes.machine
    if shapes.traits.kernels.elementwise != "fused":
        return elementwise_seconds(machine, UNFUSED_LOSS_PASSES * logit_bytes)
    speed = machine.loss_bytes_per_second or streaming_bytes_per_second(machine)
    return LOSS_PASSES * logit_bytes / speed


def mtp_projection_passes(shapes: Shapes) -> tuple[PassSeconds, PassSeconds, FloatColumn]:
    """The 2h x h projection that joins a token's hidden state and the next embedding.

    Source: DeepSeek-V3, arXiv:2412.19437, equation 21.
    """
    zero = np.zeros(shapes.size)
    h = shapes.job.model.hidden_size
    product = Product(shapes.tokens / shapes.table.tp, zero + h, zero + 2 * h)
    seconds = linear_seconds(shapes.machine, shapes.linear, [product], shapes.gradient_bytes)
    added = shapes.accumulation_seconds(2 * h * h / shapes.table.tp)
    return (
        pass_seconds(shapes.size, gemm=seconds.forward),
        pass_seconds(shapes.size, gemm=seconds.backward, elementwise=added),
        seconds.weight + added,
    )


def embedding_kept_bytes(job: Job, traits: RuntimeTraits, table: LayoutTable) -> FloatColumn:
    """Kept of one micro batch behind the token table: the input of a norm, and a dropout's mask.

    Both are there however layers are recomputed, which begin behind them.
    Source: bigscience-workshop/Megatron-DeepSpeed `megatron/model/language_model.py`, Embedding
    (embedding_layernorm, then dropout); `megatron/model/gpt_model.py`, _is_checkpointable;
    PyTorch derivatives.yaml, native_layer_norm (its input) and native_dropout (its mask).
    """
    model, training = job.model, job.training
    element = training.storage_bytes * model.embedding_norm + MASK_BYTES * traits.kernels.dropout
    cut = np.where(table.sequence_parallel == 1, table.tp, 1)
    tokens = table.micro_batch_size * training.seq_length / table.cp / cut
    return np.asarray(element * tokens * model.hidden_size)
