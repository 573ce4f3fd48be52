"""Blocks gathered for every layout, with what each recomputes selectively and offloads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.architecture import ATTENTIONS
from trainplan.costmodel.blocks.attention.activations import core_bytes, reorders_output
from trainplan.costmodel.blocks.attention.key_values import key_value_width
from trainplan.costmodel.blocks.block import Block
from trainplan.costmodel.blocks.kinds import Blocks, blocks, distinct_keys
from trainplan.costmodel.blocks.parts import Shapes, shapes
from trainplan.costmodel.candidates import Candidates, of_kinds, remembered
from trainplan.costmodel.columns import BoolColumn, FloatColumn, IntColumn
from trainplan.costmodel.kernels import sum_columns
from trainplan.costmodel.layouts import FULL, UNIFORM, LayoutTable, offloads, recomputes
from trainplan.costmodel.model import expert_hidden, query_columns, value_columns
from trainplan.costmodel.routing import loads


@dataclass(frozen=True, slots=True)
class Copies:
    """Bytes of one layer and one micro batch."""

    copied_bytes: FloatColumn
    """To the host in the forward pass, and back in the backward pass."""
    freed_bytes: FloatColumn
    """Activations that leave the device for it."""


@dataclass(frozen=True, slots=True)
class Offloadable(Copies):
    """A module whose inputs may wait on the host."""

    name: str


def layer_copies(keys: Candidates, *, key: IntColumn, table: LayoutTable) -> tuple[Copies, ...]:
    """What a layer of each kind offloads in each row.

    `keys` are the distinct block keys and `key` says which one a row has.
    """
    kinds = of_kinds(keys)
    nothing = np.broadcast_to(0.0, len(table))
    if not table.offload_modules.any():
        return (Copies(nothing, nothing),) * len(kinds)
    return tuple(_chosen(_modules(kind), key, table) for kind in kinds)


@remembered
def _modules(keys: Candidates) -> tuple[Offloadable, ...]:
    """What a layer of a model with one kind may offload."""
    columns, model = shapes(keys), keys.job.model
    attention = _attention(columns) if model.mixer in ATTENTIONS else ()
    return *attention, *(_experts(columns) if model.moe else ())


def _chosen(modules: Sequence[Offloadable], key: IntColumn, table: LayoutTable) -> Copies:
    copied, freed = np.zeros((2, len(table)))
    for module in modules:
        chosen = offloads(table, module.name)
        copied += chosen * module.copied_bytes[key]
        freed += chosen * module.freed_bytes[key]
    return Copies(copied, freed)


def _attention(columns: Shapes) -> tuple[Offloadable, ...]:
    """Input of the projections (with the latents of MLA), inputs and output of the core.

    The input of a layer is copied where its norm is a part of the projection, but never counted as
    freed: the schedule holds that of every stage until its backward pass. The output of the core
    is copied with its inputs, and again as the input of the projection behind it, which holds the
    same tensor unless it was reordered.
    Source: Megatron Core `transformer/attention.py` and `multi_latent_attention.py`, the regions
    `qkv_linear`, `core_attn` and `attn_proj`; `pipeline_parallel/schedules.py`, `input_tensors`.
    """
    model, tokens = columns.job.model, columns.tokens
    row = columns.storage * tokens * model.hidden_size / columns.residual_shards
    normed = columns.input_bytes / columns.storage * row
    latent = 0
    if model.mla:
        latent = 2 * (model.mla.q_lora_rank or 0) + 2 * model.mla.kv_lora_rank
        latent += model.mla.qk_rope_head_dim
    projected = normed + columns.storage * tokens * latent / columns.residual_shards
    element = columns.storage * tokens / columns.table.tp
    output = element * value_columns(model)
    keys_values = columns.storage * tokens * key_value_width(columns)
    inputs = element * query_columns(model) + keys_values + core_bytes(columns)
    return (
        Offloadable(projected + (0.0 if model.mla else row), projected, "qkv_linear"),
        Offloadable(inputs + output, inputs + reorders_output(columns) * output, "core_attn"),
        Offloadable(output, output, "attn_proj"),
    )


def _experts(columns: Shapes) -> tuple[Offloadable, ...]:
    """Input of the norm, of the first product and of the activation of the experts.

    The product keeps its input as it came, not as it is multiplied, where it is offloaded.
    Source: Megatron Core `transformer/moe/experts.py`, the regions `expert_fc1` and `moe_act`,
    `set_save_original_input`; `transformer_layer.py`, the region `mlp_norm`.
    """
    model, moe = columns.job.model, columns.job.model.moe
    assert moe is not None
    residual = columns.storage * columns.tokens * model.hidden_size / columns.residual_shards
    local = columns.tokens / columns.residual_shards
    fullest = loads(columns.job, columns.table).fullest
    rows = local * moe.rows_per_token * columns.table.etp * fullest
    cut = moe.moe_intermediate_size / columns.table.etp
    inputs = rows * expert_hidden(model)
    branches = columns.storage * rows * cut * (2 if model.gated_mlp else 1)
    share = 0.75 if columns.keeps_cast_inputs else 1.0
    return (
        Offloadable(residual, residual, "mlp_norm"),
        Offloadable(columns.storage * inputs, columns.input_bytes * inputs, "expert_fc1"),
        Offloadable(branches, share * branches, "moe_act"),
    )


@dataclass(frozen=True, slots=True)
class Selective:
    """One kind of layer under the selective recomputation and the offload of each row."""

    seconds: FloatColumn
    """Forward work repeated in the backward pass."""
    saved_bytes: FloatColumn
    """Activations kept from forward to backward."""
    dropped_bytes: FloatColumn
    """Not kept, but present again while one layer runs backward."""
    copies: Copies
    """What waits on the host; not in `saved_bytes`."""


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Blocks of distinct keys, and what each row makes of them."""

    kinds: Blocks
    key: IntColumn
    """Row of `kinds` that belongs to each layout."""
    layers: tuple[Selective, ...]
    """Of each kind, in the order of `ModelSpec.kinds`."""
    mtp: Selective

    def largest(self, bytes_of: Callable[[Selective], FloatColumn]) -> FloatColumn:
        """Largest of some bytes over the kinds of layer.

        Source: derived; one layer runs at a time, and it may be of any kind.
        """
        return np.asarray(np.max([bytes_of(layer) for layer in self.layers], axis=0))


@remembered
def row_blocks(candidates: Candidates) -> RowBlocks:
    """Price every distinct block once and gather it by row."""
    table = candidates.table
    keys, key = distinct_keys(candidates)
    kinds = blocks(keys)
    copies = layer_copies(keys, key=key, table=table)
    layers = tuple(
        selective(block, key, table, some) for block, some in zip(kinds.layers, copies, strict=True)
    )
    module = [(kinds.layers[kind], layers[kind]) for kind in candidates.job.model.kinds_of_module]
    again = (table.recompute == FULL) & (table.recompute_method == UNIFORM)
    again &= candidates.traits.recompute.layers != "every_kth"
    return RowBlocks(kinds, key, layers, _prediction(kinds, key, module, again))


def _prediction(
    kinds: Blocks, key: IntColumn, module: Sequence[tuple[Block, Selective]], again: BoolColumn
) -> Selective:
    """The layers inside a multi-token-prediction module: uniform recomputation repeats them too.

    Source: Megatron Core multi_token_prediction.py:1621 (the block method leaves them whole);
    pytorch/torchtitan distributed/activation_checkpoint.py (of a decoder `layers` alone).
    """
    inputs = kinds.layer_input_bytes[key]
    dropped = sum_columns(
        np.where(again, whole.saved_bytes[key] - inputs, layer.dropped_bytes)
        for whole, layer in module
    )
    copies = Copies(
        sum_columns(layer.copies.copied_bytes for _, layer in module),
        sum_columns(layer.copies.freed_bytes for _, layer in module),
    )
    return Selective(
        seconds=sum_columns(
            np.where(again, whole.forward.total[key], layer.seconds) for whole, layer in module
        ),
        saved_bytes=kinds.mtp.saved_bytes[key] - dropped - copies.freed_bytes,
        dropped_bytes=dropped,
        copies=copies,
    )


def selective(block: Block, key: IntColumn, table: LayoutTable, copies: Copies) -> Selective:
    """What a row recomputes by modules, which the host launches again while the GPU runs.

    A pass takes the longer of both, so where the host is behind, what it launches counts, and what
    the GPU repeats does not. Source: derived from `Launches.waiting_backward`.
    """
    seconds, launched, dropped = np.zeros((3, len(table)))
    for module in block.modules if table.recompute_modules.any() else ():
        chosen = recomputes(table, module.name)
        if module.inside:
            chosen &= ~recomputes(table, module.inside)
        if chosen.any():
            own = module.seconds if module.launch_seconds is None else module.launch_seconds
            seconds += chosen * module.seconds[key]
            launched += chosen * own[key]
            dropped += chosen * module.dropped_bytes[key]
    kept = np.maximum(0.0, block.saved_bytes[key] - dropped - copies.freed_bytes)
    ahead = block.host_ahead[key]
    longer = np.maximum(seconds, ahead + launched) - np.maximum(0.0, ahead)
    return Selective(longer, kept, dropped, copies)
