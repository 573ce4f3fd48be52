"""Falcon: one norm or two in front of attention and MLP in parallel, one key-value head or several.

Source: transformers `FalconConfig`, `modeling_falcon.py`; arXiv:2311.16867, section 4.
"""

from __future__ import annotations

from trainplan.costmodel.model.families.family import LINEAR, Fields
from trainplan.costmodel.model.families.reader import HfConfig


def falcon(config: HfConfig) -> Fields:
    """What the switches of a Falcon say together.

    The new architecture has groups of heads and a norm for each half; the older ones have one
    key-value head or as many as heads, and one norm where both halves run in parallel.
    """
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    new, parallel = config.boolean("new_decoder_architecture"), config.boolean("parallel_attn")
    several = config.boolean("multi_query")
    groups = config.optional_integer("num_kv_heads") or heads
    norms = config.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    two = not (new or parallel) or (new and norms == 2)
    width = config.optional_integer("ffn_hidden_size")
    return {
        "num_key_value_heads": groups if new else (1 if several else heads),
        "intermediate_size": width or 4 * hidden,
        "parallel_residual": new or parallel,
        "shared_norm": not two,
        "position_embedding": "alibi" if config.boolean("alibi") else "rope",
        **(LINEAR if config.boolean("bias") else {}),
    }
