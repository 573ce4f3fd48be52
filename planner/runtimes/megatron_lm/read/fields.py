"""Every field that was read, with the runtime's words for it and where they stand."""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments
from trainplan.planner.runtimes.reading import Field, Origin

LAYOUT: Mapping[str, tuple[str, ...]] = {
    "tp": (keys.TP,),
    "pp": (keys.PP,),
    "cp": (keys.CP,),
    "cp_heads": (keys.NESTED_SIZES,),
    "dp": (),
    "ep": (keys.EP,),
    "etp": (keys.ETP,),
    "gtp": (keys.WEIGHT_SHARDS,),
    "egtp": (keys.EXPERT_SHARDS,),
    "vpp": (keys.VPP, "num_layers_per_virtual_pipeline_stage", keys.STAGES),
    "schedule": (),
    "stages": (
        keys.STAGES,
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "account_for_embedding_in_pipeline_split",
        "account_for_loss_in_pipeline_split",
    ),
    "micro_batch_size": (keys.MICRO_BATCH,),
    "sequence_parallel": (keys.SEQUENCE_PARALLEL,),
    "zero_stage": (keys.DISTRIBUTED, keys.FSDP, keys.FSDP_STRATEGY, "use_torch_fsdp2"),
    "dp_replicate": (keys.REPLICAS,),
    "replicas_share_optimizer": (keys.OUTER_STRATEGY,),
    "recompute": (keys.RECOMPUTE, "recompute_activations", "moe_layer_recompute"),
    "recompute_modules": (keys.RECOMPUTED_MODULES,),
    "recompute_method": (keys.RECOMPUTE_METHOD,),
    "recompute_num_layers": (keys.RECOMPUTED_LAYERS,),
    "offload": (keys.CPU_OPTIMIZER, keys.CPU_FRACTION),
    "offload_modules": (keys.OFFLOADED_MODULES, keys.OFFLOADS),
}
"""Field of a layout, and the options that set it, the first of which is the usual one."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "attention": (keys.ATTENTION,),
    "dropout": (keys.HIDDEN_DROPOUT, keys.ATTENTION_DROPOUT),
    "cross_entropy": (keys.LOSS_FUSION,),
    "cuda_graph": (keys.GRAPH, keys.GRAPH_MODULES, "enable_cuda_graph", "external_cuda_graph"),
    "overlap_grad_reduce": (keys.GRADIENT_OVERLAP,),
    "overlap_param_gather": (keys.GATHER_OVERLAP,),
    "bucket_mb": (keys.BUCKET,),
    "overlap_tp_comm": (keys.TP_OVERLAP,),
    "microbatch_group_size": (keys.GROUP,),
    "overlap_moe_a2a": (keys.EXPERT_OVERLAP,),
    "delay_wgrad": (keys.DELAYED_WEIGHTS,),
    "overlap_shared_experts": (keys.SHARED_OVERLAP,),
    "moe_dispatcher": (keys.DISPATCHER, keys.BACKEND),
    "moe_dispatch_dtype": (keys.TOKENS_THERE, keys.GRADIENTS_THERE),
    "gradient_dtype": (keys.NARROW_SUMS, "main_grads_dtype", keys.FSDP_GRADIENTS),
    "fp8_recipe": (keys.FP8_RECIPE,),
    "fp8_param_gather": (keys.FP8_GATHER, keys.FP4_GATHER),
    "moment_dtype": (keys.FIRST_MOMENT, keys.SECOND_MOMENT),
    "offload_activation_layers": (keys.HOST_LAYERS,),
    "cp_comm_type": (keys.EXCHANGE,),
    "moe_capacity_factor": (keys.CAPACITY,),
    "moe_pad_to_capacity": (keys.PADDED,),
    "moe_token_drop_policy": (keys.DROPS,),
    "moe_router_padding": (keys.ROUTER_PADDING, "moe_router_padding_for_fp8"),
}
DECODER_LENGTH = "decoder_seq_length"
"""Of the language model behind a tower, where `--seq-length` is what the tower reads.

Source: NVIDIA/Megatron-LM `examples/multimodal/model.py`.
"""
TRAINING: Mapping[str, tuple[str, ...]] = {
    "seq_length": (keys.LENGTH, "encoder_seq_length", DECODER_LENGTH),
    "global_batch_size": (keys.BATCH, "step_batch_size_schedule"),
    "precision": (keys.BF16, keys.FP16, keys.FP8, keys.FP8_RECIPE, keys.FP4),
    "tokens": (keys.STEPS, "train_samples"),
    "optimizer": (keys.OPTIMIZER,),
}
MODEL: Mapping[str, tuple[str, ...]] = {
    "num_hidden_layers": (keys.LAYERS, "encoder_num_layers"),
    "hidden_size": (keys.HIDDEN,),
    "intermediate_size": (keys.FFN,),
    "num_attention_heads": (keys.HEADS,),
    "num_key_value_heads": (keys.GROUPS, keys.GROUPED),
    "head_dim": (keys.CHANNELS, keys.QK_CHANNELS, keys.ROTARY_CHANNELS),
    "vocab_size": (keys.VOCABULARY, "padded_vocab_size"),
    "max_position_embeddings": (keys.MAX_POSITIONS,),
    "position_embedding": (keys.POSITIONS, "use_rotary_position_embeddings"),
    "rope_theta": (keys.ROTARY_BASE,),
    "partial_rotary_factor": (keys.ROTARY_PERCENT,),
    "rope_scaling": (keys.ROPE_TYPE, keys.YARN_FACTOR, keys.LLAMA_SCALING, keys.MSCALE),
    "norm": (keys.NORM,),
    "norm_eps": (keys.EPSILON,),
    "activation": (keys.SWIGLU, keys.SQUARED_RELU, keys.QUICK_GEGLU, keys.GELU_FUSION),
    "gated_mlp": (keys.SWIGLU, keys.QUICK_GEGLU),
    "qkv_bias": (keys.QKV_BIAS, keys.BIASES),
    "attention_output_bias": (keys.BIASES,),
    "mlp_bias": (keys.BIASES,),
    "qk_norm": (keys.QK_NORM,),
    "attention_sinks": (keys.SOFTMAX,),
    "sliding_window": (keys.WINDOW, keys.WINDOW_SKIPS),
    "tie_word_embeddings": (keys.UNTIED,),
    "num_nextn_predict_layers": (keys.PREDICTIONS,),
    "mla": (keys.LATENT, keys.Q_RANK, keys.KV_RANK, keys.V_CHANNELS),
    "moe": (
        keys.EXPERTS,
        keys.EXPERT_FFN,
        keys.TOP_K,
        keys.EXPERT_LAYERS,
        keys.SHARED_EXPERT,
        keys.SCORES,
    ),
}
PARTS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "layout": LAYOUT,
    "options": OPTIONS,
    "training": TRAINING,
    "model": MODEL,
}
READ = frozenset(dest for part in PARTS.values() for dests in part.values() for dest in dests)
"""Options without whose values no price is right."""
DERIVED = frozenset({"layout.dp", "layout.schedule", "training.tokens"})
"""Fields that are computed from others where no option gives them."""
OPTIONAL = frozenset({"model.mla", "model.moe", "model.sliding_window", "model.rope_scaling"})
"""Fields that are no news where a model has no such thing."""


def length_key(arguments: Arguments) -> str:
    """The option that says how long a sequence of the language model is."""
    tower = "encoder_seq_length" not in arguments and arguments.whole(DECODER_LENGTH)
    return DECODER_LENGTH if tower else keys.LENGTH


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
                yield _field(arguments, full, value, dests, assumed)


def _field(
    arguments: Arguments, name: str, value: object, dests: tuple[str, ...], assumed: frozenset[str]
) -> Field:
    given = [arguments.given[dest] for dest in dests if dest in arguments]
    if name in assumed:
        return Field(name, value, "assumed")
    if given:
        origin: Origin = "derived" if name == "training.tokens" else "stated"
        return Field(name, value, origin, " ".join(g.written for g in given), given[0].place)
    written = arguments.options[dests[0]].flag if dests else ""
    return Field(name, value, "derived" if name in DERIVED else "default", written)
