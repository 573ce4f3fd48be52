"""Names that families give to one field or activation, and fields that change nothing."""

import re
from collections.abc import Mapping
from typing import Final

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.spec import shown

ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model", "n_embed", "model_dim"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "dff"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "attention_heads"),
    "num_key_value_heads": (
        "num_kv_heads",
        "n_head_kv",
        "n_kv_heads",
        "num_query_groups",
        "num_attention_groups",
    ),
    "head_dim": ("kv_channels", "attention_head_dim", "d_head"),
    "vocab_size": ("n_vocab",),
    "max_position_embeddings": (
        *("n_positions", "n_ctx", "max_seq_len", "max_sequence_length", "model_max_length"),
        *("seq_length", "context_length"),
    ),
    "hidden_act": ("hidden_activation", "activation_function", "mlp_hidden_act", "activation"),
    "rms_norm_eps": (
        *("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"),
        "layernorm_epsilon",
    ),
    "rope_theta": ("rotary_emb_base", "rope_base"),
    "partial_rotary_factor": ("rotary_pct",),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        *("num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
        "experts_per_token",
    ),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "shared_expert_intermediate_size": (
        *("moe_shared_expert_intermediate_size", "shared_intermediate_size"),
        "shared_experts_intermediate_size",
    ),
    "first_k_dense_replace": ("num_dense_layers",),
    "moe_layer_freq": ("decoder_sparse_step",),
    "scoring_func": ("score_function", "score_func", "moe_router_activation_func"),
    "norm_topk_prob": ("moe_renormalize", "route_norm"),
    "n_group": ("num_expert_group",),
    "routed_scaling_factor": (
        *("router_scaling_factor", "route_scale", "moe_routed_scaling_factor"),
        "moe_router_scaling_factor",
    ),
    "num_nextn_predict_layers": ("num_mtp_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
    "sliding_window": ("sliding_window_size", "attention_window_size"),
    "sliding_window_pattern": ("_sliding_window_pattern", "global_attn_every_n_layers"),
}
"""The name used here -> those that mean the same. Source: `attribute_map` and the fields of the
configuration classes of transformers 5."""

MAY_DIFFER: Final = frozenset({"max_position_embeddings", "rms_norm_eps"})
"""Fields of which a file may hold two names with two values: the first counts, neither a size."""

_HARMLESS_NAMES: Final = """
    _attn_implementation _attn_implementation_internal _commit_hash _name_or_path _source
    architectures attention_softmax_in_fp32 attn_implementation auto_map backbone bad_words_ids
    begin_suppress_tokens chunk_size_feed_forward cross_attention_hidden_size
    custom_pipelines diversity_penalty do_sample dtype early_stopping eos_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    id2label is_decoder is_encoder_decoder label2id length_penalty logits_to_keep max_length
    max_window_layers min_length model_type mtp_loss_scaling_factor mup_enabled name
    no_repeat_ngram_size num_beam_groups num_beams
    num_key_value_groups num_labels num_logits_to_keep num_return_sequences output_attentions
    output_hidden_states output_router_logits output_scores pad_id prefix pretraining_tp
    problem_type quantization_config query_pre_attn_scalar remove_invalid_values
    reorder_and_upcast_attn repetition_penalty rescale_prenorm_residual residual_in_fp32
    return_dict return_dict_in_generate router_dtype router_jitter_noise
    scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights seq_aux
    softmax_scale suppress_tokens task_specific_params temperature tf_legacy_loss
    tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p
    unsloth_fixed unsloth_version use_associative_scan use_bfloat16 use_cache use_flash_attn
    use_mamba_kernels use_mambapy use_mem_eff_path use_return_dict
"""
_HARMLESS_SHAPES: Final = re.compile(
    r".*(dropout|_pdrop|_drop|drop_rate|layerdrop)(_prob|_p)?"
    r"|(dropout|drop)_.*"
    r"|.*token_(id|ids|index)"
    r"|.*(initializer|init)_(range|std|method|scale|cutoff_factor|variance_scale|device)"
    r"|init_(std|device|method)"
    r"|.*aux_loss.*|.*loss_coef(ficient)?"
    r"|summary_.*|classifier_.*|rope_.*|.*_rope_theta|time_step_(min|max|floor|limit|scale)"
)
"""Drop-outs, tokens with a meaning, first values of weights, losses, position settings."""

ACTIVATIONS: Final[Mapping[str, str]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "xielu": "xielu",
}
"""Spelling in `config.json` -> ours. Source: transformers `activations.py`, `ACT2CLS`."""


def is_harmless(name: str) -> bool:
    """Does a field change no size and no product, whatever its value?

    Source: the count of every decoder class of transformers 5.24 with each field changed alone.
    """
    return name in _HARMLESS_NAMES.split() or _HARMLESS_SHAPES.fullmatch(name) is not None


def alias_of(config: HfConfig, name: str, only: str | None = None) -> str:
    """The name this file uses for a field; its own where it has none, for the message.

    Raises:
        SpecError: Two of the names are in the file with different values.
    """
    names = (only,) if only else (name, *ALIASES.get(name, ()))
    there = [one for one in names if one in config.values]
    given = [one for one in there if config.values[one] is not None]
    if len(given) > 1 and name not in MAY_DIFFER:
        _agree(config, given)
    config.ignore(*there)
    for one in (*given, *there, *(one for one in names if one in config.defaults)):
        return one
    return names[0]


def usual_name(name: str) -> str:
    """The name used here of a field, given any of its names."""
    return next((usual for usual, others in ALIASES.items() if name in others), name)


def _agree(config: HfConfig, given: list[str]) -> None:
    first, *others = given
    for other in others:
        if config.values[other] != config.values[first]:
            raise SpecError(
                f"{config.where}: '{config.path}{first}' = {shown(config.values[first])} and "
                f"'{config.path}{other}' = {shown(config.values[other])} contradict each other; "
                "correct one of them"
            )


def activation(config: HfConfig, name: str, *aliases: str) -> str:
    """The activation of the MLP, in our spelling."""
    value = config.text(name, *aliases)
    if value not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise UnsupportedError(
            f"{config.where}: activation {value!r} in '{name}' is not modelled; known: {known}"
        )
    return ACTIVATIONS[value]
