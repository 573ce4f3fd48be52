"""Megatron-LM imported from a checkout, with what Transformer Engine would bring marked present."""

import stand_ins

FUSED = (
    "fused_apply_rotary_pos_emb",
    "fused_apply_rotary_pos_emb_thd",
    "fused_permute",
    "fused_permute_with_probs",
    "fused_sort_chunks_by_index",
    "fused_sort_chunks_by_index_with_probs",
    "fused_unpermute",
    "fused_permute_and_pad_with_probs",
    "fused_compute_score_for_moe_aux_loss",
    "fused_moe_aux_loss",
    "fused_topk_with_score_function",
)
"""Kernels that configurations ask after: whether they are there, no more."""


def load() -> None:
    """Import from MEGATRON_LM_PATH."""
    stand_ins.checkout("MEGATRON_LM_PATH", "megatron")
    stand_ins.quiet()
    stand_ins.gpu(9)
    import megatron.core.utils
    import megatron.training.arguments
    import megatron.training.training
    from megatron.core.extensions import transformer_engine
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils
    from packaging.version import Version

    megatron.core.utils._te_version = Version(stand_ins.TRANSFORMER_ENGINE)
    for module in (rope_utils, moe_utils, transformer_engine):
        for name in FUSED:
            if getattr(module, name, True) is None:
                setattr(module, name, lambda *_, **__: None)


class FusedAdam:
    """Its signature is asked for."""

    def __init__(
        self, params=None, lr=0, *, master_weights=None, master_weight_dtype=None,
        exp_avg_dtype=None, exp_avg_sq_dtype=None, use_decoupled_grad=False,
        store_param_remainders=False,
    ):  # fmt: skip
        pass
