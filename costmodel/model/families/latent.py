"""Multi-head latent attention in a `config.json`."""

from __future__ import annotations

from trainplan.costmodel.architecture import MlaSpec
from trainplan.costmodel.model.families.reader import HfConfig


def latent_attention(config: HfConfig) -> MlaSpec:
    """The ranks and head parts of multi-head latent attention."""
    config.ignore("qk_head_dim", "rope_interleave")
    return MlaSpec(
        q_lora_rank=config.with_defaults({"q_lora_rank": None}).optional_integer("q_lora_rank"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        qk_nope_head_dim=config.integer("qk_nope_head_dim"),
        qk_rope_head_dim=config.integer("qk_rope_head_dim"),
        v_head_dim=config.integer("v_head_dim"),
    )
