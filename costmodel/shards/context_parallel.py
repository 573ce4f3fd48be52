"""How context parallelism exchanges: heads for sequence, gathered keys and values, or a ring."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import ContextExchange
from trainplan.costmodel.layouts import LayoutTable


def heads_to_cut(model: ModelSpec) -> int:
    """Key-value heads that an exchange of heads deals out; latent attention has as many as queries.

    Source: Transformer Engine @d0067d0d `context_parallel.py:4246`.
    """
    return model.num_attention_heads if model.mla else model.num_key_value_heads


def context_ways(
    model: ModelSpec, exchange: ContextExchange, table: LayoutTable
) -> tuple[BoolColumn, BoolColumn]:
    """Which rows exchange heads for sequence, and which gather keys and values; else: a ring.

    A ring has neither windows nor sinks: all layers of a model with either exchange heads, or
    gather keys and values where the heads cannot be cut.
    Source: Transformer Engine @d0067d0d `context_parallel.py`, attn_forward_func_with_cp.
    """
    windows, sinks = model.sliding_window is not None, model.attention_sinks
    instead = exchange == "p2p" and (windows or sinks)
    cut = (heads_to_cut(model) % (table.tp * table.cp) == 0) | sinks
    heads = cut if instead else np.full(len(table), exchange == "a2a")
    gathered = ~cut if instead else np.full(len(table), exchange == "all_gather")
    return heads & (table.cp > 1), gathered & (table.cp > 1)
