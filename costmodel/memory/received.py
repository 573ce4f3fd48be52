"""Buffers that a pipeline receives into."""

import numpy as np

from trainplan.costmodel.blocks import RowBlocks
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.columns import ClassRows
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.schedules import SCHEDULES

SPLITS = np.array([SCHEDULES[name].splits_backward for name in SCHEDULE_NAMES])


def received_bytes(candidates: Candidates, blocks: RowBlocks, ranks: Ranks) -> ClassRows:
    """What torch's pipelining receives into, next to the activations in flight.

    It has a buffer for every micro batch of a step from the first step on: of the input of each
    virtual stage but the first, and of the gradient of the output of each but the last. Those of
    passes in flight are the inputs that activations count. Where the gradient of the input is
    made by itself, it stays with that buffer until the next step; where two stages in a row are on
    one rank, it is counted twice.

    Source: pytorch v2.13.0 torch.distributed.pipelining `stage.py`, _setup_forward_recv_info and
    _setup_backward_recv_info, for all chunks; `_backward.py`, stage_backward_input, whose
    `inp.grad` clear_runtime_states is the first to drop. Counted on its stages by
    tests/oracles/test_torch_receive_buffers.py.
    """
    table = candidates.table
    if not candidates.traits.on_torch or not (table.pp > 1).any():
        return np.zeros((1, 1))
    inputs, outputs = table.vpp - ranks.embedding, table.vpp - ranks.head
    each = inputs * (1 + SPLITS[table.schedule]) + outputs
    buffers = num_microbatches(candidates.job, table) * each - ranks.received_held
    size = blocks.kinds.layer_input_bytes[blocks.key]
    return np.asarray(np.where(table.pp > 1, buffers * size, 0.0))
