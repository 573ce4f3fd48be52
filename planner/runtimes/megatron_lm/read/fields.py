"""Every field that was read, with the runtime's words for it and where they stand."""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments
from trainplan.planner.runtimes.reading import Field, Origin

LAYOUT = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "cp_heads": "hierarchical_context_parallel_sizes",
    "dp": "",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "vpp": "num_virtual_stages_per_pipeline_rank num_layers_per_virtual_pipeline_stage "
    "pipeline_model_parallel_layout",
    "schedule": "",
    "stages": "pipeline_model_parallel_layout decoder_first_pipeline_num_layers "
    "decoder_last_pipeline_num_layers account_for_embedding_in_pipeline_split "
    "account_for_loss_in_pipeline_split",
    "micro_batch_size": "micro_batch_size",
    "sequence_parallel": "sequence_parallel",
    "zero_stage": "use_distributed_optimizer use_megatron_fsdp data_parallel_sharding_strategy "
    "use_torch_fsdp2",
    "dp_replicate": "num_distributed_optimizer_instances",
    "recompute": "recompute_granularity recompute_activations moe_layer_recompute",
    "recompute_modules": "recompute_modules",
    "recompute_method": "recompute_method",
    "recompute_num_layers": "recompute_num_layers",
    "offload": "optimizer_cpu_offload optimizer_offload_fraction",
    "offload_modules": "offload_modules fine_grained_activation_offloading",
}
"""Field of a layout, and the options that set it, the first of which is the usual one."""
OPTIONS = {
    "attention": "attention_backend",
    "dropout": "hidden_dropout attention_dropout",
    "cross_entropy": "cross_entropy_loss_fusion",
    "cuda_graph": "cuda_graph_impl cuda_graph_modules enable_cuda_graph external_cuda_graph",
    "overlap_grad_reduce": "overlap_grad_reduce",
    "overlap_param_gather": "overlap_param_gather",
    "overlap_tp_comm": "tp_comm_overlap",
    "overlap_moe_a2a": "overlap_moe_expert_parallel_comm",
    "moe_dispatcher": "moe_token_dispatcher_type moe_flex_dispatcher_backend",
    "gradient_dtype": "grad_reduce_in_bf16 main_grads_dtype megatron_fsdp_main_grads_dtype",
    "fp8_param_gather": "fp8_param_gather fp4_param_gather",
    "moment_dtype": "exp_avg_dtype exp_avg_sq_dtype",
    "offload_activation_layers": "cpu_offloading_num_layers",
    "cp_comm_type": "cp_comm_type",
    "moe_capacity_factor": "moe_expert_capacity_factor",
    "moe_pad_to_capacity": "moe_pad_expert_input_to_capacity",
    "moe_token_drop_policy": "moe_token_drop_policy",
    "moe_router_padding": "moe_router_padding_for_quantization moe_router_padding_for_fp8",
}
TRAINING = {
    "seq_length": "seq_length encoder_seq_length",
    "global_batch_size": "global_batch_size step_batch_size_schedule",
    "precision": "bf16 fp16 fp8 fp8_recipe fp4",
    "tokens": "train_iters train_samples",
    "optimizer": "optimizer",
}
MODEL = {
    "num_hidden_layers": "num_layers encoder_num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_query_groups group_query_attention",
    "head_dim": "kv_channels qk_head_dim qk_pos_emb_head_dim",
    "vocab_size": "vocab_size padded_vocab_size",
    "max_position_embeddings": "max_position_embeddings",
    "position_embedding": "position_embedding_type use_rotary_position_embeddings",
    "rope_theta": "rotary_base",
    "partial_rotary_factor": "rotary_percent",
    "rope_scaling": "rope_type rotary_scaling_factor use_rope_scaling mscale",
    "norm": "normalization",
    "norm_eps": "layernorm_epsilon",
    "activation": "swiglu squared_relu quick_geglu bias_gelu_fusion",
    "gated_mlp": "swiglu quick_geglu",
    "qkv_bias": "add_qkv_bias add_bias_linear",
    "attention_output_bias": "add_bias_linear",
    "mlp_bias": "add_bias_linear",
    "qk_norm": "qk_layernorm",
    "attention_sinks": "softmax_type",
    "sliding_window": "window_size window_attn_skip_freq",
    "tie_word_embeddings": "untie_embeddings_and_output_weights",
    "num_nextn_predict_layers": "mtp_num_layers",
    "mla": "multi_latent_attention q_lora_rank kv_lora_rank v_head_dim",
    "moe": "num_experts moe_ffn_hidden_size moe_router_topk moe_layer_freq "
    "moe_shared_expert_intermediate_size moe_router_score_function",
}
PARTS: Mapping[str, Mapping[str, str]] = {
    "layout": LAYOUT,
    "options": OPTIONS,
    "training": TRAINING,
    "model": MODEL,
}
READ = frozenset(
    dest for part in PARTS.values() for dests in part.values() for dest in dests.split()
)
"""Options without whose values no price is right."""
DERIVED = frozenset({"layout.dp", "layout.schedule", "training.tokens"})
"""Fields that are computed from others where no option gives them."""
OPTIONAL = frozenset({"model.mla", "model.moe", "model.sliding_window", "model.rope_scaling"})
"""Fields that are no news where a model has no such thing."""


def fields(
    arguments: Arguments, job: Job, layout: Layout | None, assumed: frozenset[str]
) -> Iterator[Field]:
    """All fields; `assumed` names those that nothing says."""
    values = {
        "layout": layout.model_dump(mode="json") if layout else {},
        "options": job.options.model_dump(mode="json"),
        "training": job.training.model_dump(mode="json"),
        "model": job.model.model_dump(mode="json"),
    }
    for part, names in PARTS.items():
        for name, dests in names.items():
            full, value = f"{part}.{name}", values[part].get(name)
            if name in values[part] and not (full in OPTIONAL and value is None):
                yield _field(arguments, full, value, dests.split(), assumed)


def _field(
    arguments: Arguments, name: str, value: object, dests: list[str], assumed: frozenset[str]
) -> Field:
    given = [arguments.given[dest] for dest in dests if dest in arguments]
    if name in assumed:
        return Field(name, value, "assumed")
    if given:
        origin: Origin = "derived" if name == "training.tokens" else "stated"
        return Field(name, value, origin, " ".join(g.written for g in given), given[0].place)
    written = arguments.options[dests[0]].flag if dests else ""
    return Field(name, value, "derived" if name in DERIVED else "default", written)
