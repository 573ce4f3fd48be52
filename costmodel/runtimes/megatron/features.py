"""What of a model the command line of Megatron-LM cannot express, whatever the layout.

Files are those of NVIDIA/Megatron-LM at the commit in `megatron_core.VERSION`. Read by the search,
which warns, and by the exporter, which refuses.
"""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec, MoeSpec, RopeScaling
from trainplan.costmodel.runtimes.rare_parts import rare_parts
from trainplan.costmodel.runtimes.traits.layers import (
    GATED_DELTA,
    GATED_OUTPUT,
    LATENT_EXPERTS,
    MAMBA_2,
    ONE_HALF,
    SPARSE,
    uncommon_parts,
)

LAYERS = frozenset({MAMBA_2, GATED_DELTA, SPARSE, ONE_HALF, GATED_OUTPUT, LATENT_EXPERTS})
"""Uncommon parts of layers. Source: core/models/hybrid/hybrid_layer_allocation.py, Symbols;
core/transformer/transformer_config.py:278, 301 and 952; Mamba-1 and other rules of linear attention
are nowhere."""
MAMBA_KERNEL = 4
"""Source: core/ssm/mamba_mixer.py, d_conv, which no option sets."""
ACTIVATIONS = frozenset({("silu", True), ("relu2", False), ("gelu", False), ("gelu_tanh", False)})
"""(activation, gated) with an option. Source: megatron/training/arguments.py, network size."""


def unsupported_feature(model: ModelSpec) -> str | None:
    """The first feature without an option, as a noun phrase; null: all have one."""
    return next((feature for features in PARTS for feature in features(model)), None)


def _layers(model: ModelSpec) -> Iterator[str]:
    """Mixers, and their sizes that have no option."""
    yield from sorted(uncommon_parts(model) - LAYERS)
    ssm = model.ssm
    if ssm and (ssm.input_bias or ssm.output_bias or not ssm.conv_bias):
        yield "Mamba with biases of its projections, or without one of its convolution"
    if ssm and not ssm.gated_norm:
        yield "Mamba without a gated norm"
    if ssm and ssm.conv_kernel != MAMBA_KERNEL:
        yield f"Mamba with a convolution over {ssm.conv_kernel} tokens, only {MAMBA_KERNEL}"
    if model.mixer == "sparse_attention" and model.mla is None:
        yield "sparse attention that is not latent"


def all_linear_biased(model: ModelSpec) -> bool:
    """Does every linear layer carry a bias, as one option of the runtime says for all?"""
    return model.attention_output_bias and _mlps_biased(model) == {True}


def _mlps_biased(model: ModelSpec) -> set[bool]:
    """Biases of the kinds of MLP the model has."""
    kinds = {model.mlp_bias} if model.num_dense_layers else set()
    return kinds | ({model.moe.expert_bias} if model.moe else set())


def _blocks(model: ModelSpec) -> Iterator[str]:
    if model.tower:
        yield f"{model.tower.called} (pretrain_gpt.py and the recipe for it have text alone)"
    if model.norm_position != "pre":
        yield f"norms in position {model.norm_position!r}"
    if not model.final_norm:
        yield "a model without final norm"
    if model.parallel_residual:
        yield "attention and MLP in parallel"
    if model.embedding_size not in (None, model.hidden_size):
        yield "an embedding narrower than hidden_size"
    if model.position_embedding_offset:
        yield "unused rows in front of the learned positions"
    if model.attn_logit_softcapping is not None:
        yield "soft-capped attention logits"
    if model.final_logit_softcapping is not None:
        yield "soft-capped output logits"
    if model.scale_embeddings:
        yield "scaled token embeddings"


def _activations(model: ModelSpec) -> Iterator[str]:
    if (model.activation, model.gated_mlp) not in ACTIVATIONS:
        gate = "gated" if model.gated_mlp else "plain"
        yield f"a {gate} MLP with activation {model.activation!r}"
    if model.swiglu_limit is not None and model.model_type != "gpt_oss":
        yield "swiglu_limit without the gated unit of gpt_oss"


def _biases(model: ModelSpec) -> Iterator[str]:
    """On all linear layers, on queries, keys and values only, or nowhere."""
    if model.mla and (model.qkv_bias or model.attention_output_bias):
        yield "latent attention with biases"
    elif all_linear_biased(model):
        if not model.qkv_bias:
            yield "linear layers with biases but none on queries, keys and values"
    elif model.attention_output_bias or True in _mlps_biased(model):
        yield (
            "a bias on some of attention output and MLPs but not on all "
            f"(attention_output_bias = {model.attention_output_bias}, "
            f"MLPs {sorted(_mlps_biased(model))})"
        )


def _norms(model: ModelSpec) -> Iterator[str]:
    """Queries and keys are normed per head, with the norm of the whole model."""
    if model.qk_norm == "full":
        yield "a norm over all heads of queries and keys (qk_norm = 'full'), only one per head"
    if model.qk_norm == "head" and model.norm != "rmsnorm" and model.mla is None:
        yield "an RMSNorm on queries and keys in a model whose other norms are layernorm"


def _positions(model: ModelSpec) -> Iterator[str]:
    if model.position_embedding != "rope":
        return
    if model.rope_theta != int(model.rope_theta):
        yield f"rope_theta = {model.rope_theta}: --rotary-base is an integer, round it"
    scaling = model.rope_scaling
    if scaling is None:
        return
    if not _scaling_expressed(scaling, latent=model.mla is not None):
        yield (
            f"rope_scaling of type {scaling.rope_type!r} with factor {scaling.factor} in this kind "
            "of attention: it costs no time and no memory, drop it"
        )
    elif scaling.rope_type == "yarn" and model.mla is None and model.num_nextn_predict_layers:
        yield (
            "multi-token prediction with YaRN positions outside latent attention: rope_scaling "
            "costs no time and no memory, drop it"
        )


def _scaling_expressed(scaling: RopeScaling, *, latent: bool) -> bool:
    """Latent attention has plain positions and YaRN only; interpolation is by whole numbers."""
    if scaling.rope_type == "linear":
        return not latent and scaling.factor == int(scaling.factor)
    return scaling.rope_type == "yarn" or (scaling.rope_type == "llama3" and not latent)


def _experts(model: ModelSpec) -> Iterator[str]:
    if model.moe:
        yield from _router(model.moe)


def _router(moe: MoeSpec) -> Iterator[str]:
    sigmoid = moe.router_score_function == "sigmoid"
    if moe.mean_experts_per_tok is not None:
        yield "experts that compute nothing (mean_experts_per_tok)"
    if moe.shared_expert_intermediate_size and moe.expert_bias:
        yield "shared experts with biases"
    if sigmoid and not moe.norm_topk_prob and moe.num_experts_per_tok > 1:
        yield (
            "sigmoid router scores that are not normalised over the chosen experts "
            "(norm_topk_prob = false)"
        )
    if moe.router_bias != moe.expert_bias and not (moe.router_bias and sigmoid):
        yield (
            "a learned router bias other than that of all linear layers (router_bias = "
            f"{moe.router_bias}, expert_bias = {moe.expert_bias})"
        )


PARTS = (_layers, _blocks, _activations, _biases, _norms, _positions, _experts, rare_parts)
