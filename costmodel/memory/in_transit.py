"""Activations off the device, and those of them that are on it all the same."""

import numpy as np

from trainplan.costmodel.blocks import RowBlocks
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows, FloatColumn
from trainplan.costmodel.layouts import FULL, LayoutTable
from trainplan.costmodel.pipeline import Ranks

LAYERS_IN_TRANSIT = 2
"""Layers whose offloaded activations are on the device: the one that runs, and the one whose copy
is under way. Source: as `costmodel.pipeline.bound.LayerSeconds.overlapped_with_copy`."""


def kept_in_transit(candidates: Candidates, blocks: RowBlocks, away: ClassRows) -> ClassRows:
    """Kept activations off the device that are on it all the same.

    Source: LAYERS_IN_TRANSIT; of inputs alone that of the running layer, deepspeedai/DeepSpeed
    runtime/activation_checkpointing/offload_activations.py, _restore_tensor: none comes ahead.
    """
    if not candidates.table.offload_checkpoints.any():
        return np.zeros((1, 1))
    kept = blocks.largest(lambda layer: layer.saved_bytes)
    full = candidates.table.recompute == FULL
    inputs = blocks.kinds.layer_input_bytes[blocks.key]
    return np.asarray(np.minimum(away, np.where(full, inputs, LAYERS_IN_TRANSIT * kept)))


def in_transit_bytes(blocks: RowBlocks, ranks: Ranks, table: LayoutTable) -> ClassRows:
    """Offloaded activations that are on the device all the same, on each rank class.

    Those that offload most. Source: LAYERS_IN_TRANSIT.
    """
    if not table.offload_modules.any():
        return np.zeros((1, 1))
    held = [*zip(ranks.whole_held, blocks.layers, strict=True), (ranks.mtp_held, blocks.mtp)]
    count, freed = np.broadcast_arrays(
        np.stack([number for number, _ in held]),
        np.stack([layer.copies.freed_bytes for _, layer in held])[:, None],
    )
    order = np.argsort(-freed, axis=0, kind="stable")
    count, freed = (np.take_along_axis(one, order, axis=0) for one in (count, freed))
    before = np.cumsum(count, axis=0) - count
    taken = np.minimum(count, np.maximum(0, LAYERS_IN_TRANSIT - before))
    return np.asarray((taken * freed).sum(axis=0))


def device_share(ranks: Ranks, offloaded_layers: int) -> FloatColumn:
    """Share of the activations that stays on the GPU when some layers of a rank go to the host.

    Source: derived; Megatron-LM `--cpu-offloading-num-layers` counts layers of one rank.
    """
    layers = np.maximum(1.0, np.sum(ranks.layers, axis=0))
    return np.asarray(1 - np.minimum(offloaded_layers, layers) / layers)
