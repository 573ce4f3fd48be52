"""A ring that sends queries one way and outputs the other, beside one that sends keys and values.

No runtime here has it, so no layout chooses it: what it would give says `token_ring_gain`.
"""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.blocks.attention.activations import LSE_BYTES
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.model.params import query_columns, value_columns


def token_ring_bytes(model: ModelSpec, tokens: FloatColumn, storage_bytes: int) -> FloatColumn:
    """Bytes of one step in the direction that sends more, of links that send both ways at once.

    Queries of a piece travel one way; its output and log-sum-exp come back the other.
    Source: Wang et al., TokenRing, arXiv:2412.20501.
    """
    output = storage_bytes * value_columns(model) + LSE_BYTES * model.num_attention_heads
    each = max(storage_bytes * query_columns(model), output)
    return np.asarray(each * tokens)


def ring_bytes(model: ModelSpec, tokens: FloatColumn, storage_bytes: int) -> FloatColumn:
    """Bytes of one step of a ring, one way: keys and values of a piece.

    Source: Liu et al., Ring Attention, arXiv:2310.01889, section 3.
    """
    share = 1.0 if model.mla else model.num_key_value_heads / model.num_attention_heads
    columns = (query_columns(model) + value_columns(model)) * share
    return np.asarray(storage_bytes * columns * tokens)


def token_ring_gain(model: ModelSpec, storage_bytes: int) -> float:
    """How much faster its messages are; below 1 where few heads have keys and values.

    Source: derived; both rings send as many messages over the same links, so times are as the
    bytes of the fuller direction.
    """
    one = np.ones(1)
    ring = ring_bytes(model, one, storage_bytes)
    return float((ring / token_ring_bytes(model, one, storage_bytes))[0])
