"""What of a model no builder of torchtitan expresses, whatever the layout.

Files are those of pytorch/torchtitan at the commit of `planner.runtimes.torchtitan`. Read by the
search, which warns, and by the exporter, which refuses.
"""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.runtimes.rare_parts import rare_parts, unwritten_layers

SCALINGS = ("llama3", "yarn")
"""Ways to stretch positions. Source: torchtitan/models/common/rope.py, RoPE.Config.scaling."""


def unsupported_feature(model: ModelSpec) -> str | None:
    """The first feature without a builder, as a noun phrase; null: all have one."""
    parts = (_blocks, _attention, _positions, _experts, rare_parts, unwritten_layers)
    return next((feature for part in parts for feature in part(model)), None)


def _blocks(model: ModelSpec) -> Iterator[str]:
    """Source: torchtitan/models/common/decoder.py and feed_forward.py."""
    if model.tower:
        yield model.tower.called
    if model.norm != "rmsnorm" or model.norm_position != "pre" or not model.final_norm:
        yield "norms other than RMSNorm before each part and at the end"
    if model.parallel_residual:
        yield "attention and MLP in parallel"
    if model.activation != "silu" or not model.gated_mlp:
        yield "an MLP other than SwiGLU"
    if model.mlp_bias:
        yield "biases of the MLP"
    if model.embedding_size not in (None, model.hidden_size):
        yield "an embedding narrower than hidden_size"
    if model.scale_embeddings:
        yield "scaled token embeddings"
    if model.attn_logit_softcapping is not None or model.final_logit_softcapping is not None:
        yield "soft-capped logits"


def _attention(model: ModelSpec) -> Iterator[str]:
    """Sinks, windows and biases occur in its gpt_oss alone. Source: models/gpt_oss/model.py."""
    if model.qk_norm == "full":
        yield "norms over all heads of queries and keys"
    if model.attention_sinks and model.moe and model.moe.expert_bias:
        return
    if model.attention_sinks:
        yield "attention sinks but those of gpt-oss"
    if model.num_sliding_window_layers:
        yield "sliding windows but those of gpt-oss"
    if model.qkv_bias or model.attention_output_bias:
        yield "biases of attention"
    if model.swiglu_limit is not None:
        yield "a clamped gated unit"


def _positions(model: ModelSpec) -> Iterator[str]:
    """Source: torchtitan/models/common/rope.py."""
    if model.position_embedding != "rope":
        yield f"positions of kind {model.position_embedding!r}"
    if model.partial_rotary_factor != 1.0:
        yield "positions on a part of each head"
    if model.rope_scaling and model.rope_scaling.rope_type not in SCALINGS:
        yield f"positions scaled by {model.rope_scaling.rope_type!r}"


def _experts(model: ModelSpec) -> Iterator[str]:
    """Source: torchtitan/models/deepseek_v3/__init__.py and qwen3/__init__.py, their builders."""
    moe = model.moe
    if model.num_nextn_predict_layers and not model.mla:
        yield "multi-token prediction without latent attention"
    if moe is None:
        return
    if moe.moe_layer_freq > 1:
        yield "experts in every n-th layer"
    if moe.shared_expert_gate:
        yield "a gate on the shared expert"
    if moe.mean_experts_per_tok is not None:
        yield "experts that compute nothing (mean_experts_per_tok)"
    yield from (_with_latent(moe) if model.mla else _with_heads(moe))


def _with_latent(moe: MoeSpec) -> Iterator[str]:
    shared = moe.shared_expert_intermediate_size
    if shared == 0 or shared % moe.moe_intermediate_size:
        yield "experts with latent attention without a whole number of shared ones"


def _with_heads(moe: MoeSpec) -> Iterator[str]:
    if moe.shared_expert_intermediate_size or moe.first_k_dense_replace:
        yield "shared experts or dense layers with experts, without latent attention"
    plain = moe.router_score_function == "softmax" and moe.norm_topk_prob
    if not plain or (moe.n_group or 1) > 1 or (moe.routed_scaling_factor or 1.0) != 1.0:
        yield "a router without normalised softmax, without latent attention"
