"""What the runtime's validator stops at, in its order; a bare name is a rule of the cost model.

Source: Megatron-LM `megatron/training/arguments.py`, validate_args.
"""

from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts, excludes, needs
from trainplan.planner.runtimes.megatron_lm.read.model import positions

REMOVED = {
    "batch_size": "--micro-batch-size",
    "warmup": "--lr-warmup-fraction",
    "model_parallel_size": "--tensor-model-parallel-size",
    "checkpoint_activations": "--recompute-activations",
}
REQUIRED = ("hidden_size", "num_attention_heads", "max_position_embeddings")
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
ONE_QUEUE = f"FSDP refuses {QUEUES}=1: unset it, or set 8"
SHARDS = ("use_distributed_optimizer", "use_megatron_fsdp")


def _removed(dest: str, now: str) -> Check:
    says = f"--{dest.replace('_', '-')} is no longer valid: use {now}"
    return Check("removed_flag", lambda f: f.given(dest), says, dest)


def _steps(f: Facts) -> bool:
    """Iterations and samples are two ways to count."""
    kinds = {"iters": f.count("train_iters"), "samples": f.count("train_samples")}
    warm = f.arguments.number("lr_warmup_fraction") is not None
    for kind, other in (("iters", "samples"), ("samples", "iters")):
        mixed = any(f.count(f"lr_{name}_{other}") for name in ("decay", "warmup"))
        twice = warm and f.count(f"lr_warmup_{kind}") > 0
        if kinds[kind] and (kinds[other] or mixed or twice):
            return True
    return False


def _weight_decay(f: Facts) -> bool:
    ends = [f.given(f"{end}_weight_decay") for end in ("start", "end")]
    return any(ends) if f.text("weight_decay_incr_style") == "constant" else not all(ends)


def _queues(f: Facts) -> bool:
    free = any(map(f.on, ("use_torch_fsdp2", "use_megatron_fsdp")))
    free = free or f.on("overlap_moe_expert_parallel_comm") or not f.old_gpu
    return (f.tp > 1 or f.cp > 1) and not free and f.environment.get(QUEUES) != "1"


def _data(f: Facts) -> bool:
    parts = f.given("train_data_path", "valid_data_path", "test_data_path")
    return f.on("mock_data") + f.given("data_path") + parts > 1


def _graph_environment(f: Facts) -> bool:
    segments = "expandable_segments:True" in f.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return segments and f.environment.get("NCCL_GRAPH_REGISTER") != "0"


def _checked_loss(f: Facts) -> bool:
    """Dynamic loss scaling checks by itself."""
    scaled = f.on("fp16") and not f.arguments.number("loss_scale")
    return f.on("check_for_nan_in_loss_and_grad") and not scaled


def _missing(f: Facts) -> bool:
    return not f.layers or not all(f.count(dest) for dest in REQUIRED)


def _odd_heads(f: Facts) -> bool:
    odd = f.count("hidden_size") % max(1, f.count("num_attention_heads")) != 0
    return odd and not f.count("kv_channels")


def _old_graphs(f: Facts) -> bool:
    old = [f.on(f"{kind}_cuda_graph") for kind in ("enable", "external")]
    twice = f.given("cuda_graph_scope_deprecated") and f.given("cuda_graph_modules")
    return all(old) or twice or (any(old) and f.text("cuda_graph_impl") != "none")


FIRST: tuple[Check | str, ...] = (
    needs("local_attention", "attention_backend=local", "spec=('local',)"),
    *(_removed(dest, now) for dest, now in REMOVED.items()),
    Check("old_graph_flags", _old_graphs, "say graphs once: --cuda-graph-impl and its modules"),
    Check(
        "missing_flag",
        lambda f: not f.given("micro_batch_size"),
        "--micro-batch-size is missing: add it",
    ),
    excludes("batch_or_schedule", "step_batch_size_schedule", "global_batch_size"),
)

SHARDING: tuple[Check | str, ...] = (
    needs("gather_overlap_needs_sharding", "overlap_param_gather", *SHARDS, "optimizer=dist_muon"),
    needs("gathers_overlap_with_reductions", "overlap_param_gather", "overlap_grad_reduce"),
    excludes(
        "torch_fsdp2_conflicts",
        "use_torch_fsdp2",
        "pp",
        "ep",
        "use_distributed_optimizer",
        "gradient_accumulation_fusion",
        "fp16",
        "!untie_embeddings_and_output_weights",
        "ckpt_format=torch",
        "ckpt_format=fsdp_dtensor",
    ),
    Check(
        "fsdp_needs_queues",
        lambda f: f.on("use_torch_fsdp2") and f.environment.get(QUEUES) == "1",
        ONE_QUEUE,
    ),
    needs("gather_beside_step", "overlap_param_gather_with_optimizer_step", SHARDS[0]),
    needs("gather_beside_step", "overlap_param_gather_with_optimizer_step", "overlap_param_gather"),
    needs("gather_beside_step", "overlap_param_gather_with_optimizer_step", "vpp"),
    needs("gather_beside_step", "overlap_param_gather_with_optimizer_step", "ckpt_format=torch"),
    needs("fp8_gather_needs_sharding", "fp8_param_gather", *SHARDS, "use_torch_fsdp2"),
    excludes("fp8_or_fp4", "fp8", "fp4"),
    needs("fp4_gather_needs_fp4", "fp4_param_gather", "fp4"),
    excludes(
        "fsdp_excludes_distributed_optimizer",
        "megatron_fsdp_version=2",
        "use_distributed_optimizer",
    ),
    needs("fsdp_optimizer", "use_megatron_fsdp", "optimizer=adam", "optimizer=sgd"),
    Check(
        "fsdp_needs_queues",
        lambda f: f.on("use_megatron_fsdp") and f.environment.get(QUEUES) == "1",
        ONE_QUEUE,
    ),
    needs("fsdp_checkpoint_format", "use_megatron_fsdp", "ckpt_format=fsdp_dtensor"),
    Check(
        "fsdp_whole_on_meta",
        lambda f: (
            f.on("use_megatron_fsdp", "init_model_with_meta_device")
            and f.text("data_parallel_sharding_strategy") == "no_shard"
        ),
        "--init-model-with-meta-device excludes --data-parallel-sharding-strategy no_shard",
        "init_model_with_meta_device",
    ),
)

SHAPE: tuple[Check | str, ...] = (
    excludes("bf16_or_fp16", "bf16", "fp16"),
    Check(
        "accumulation_type",
        lambda f: (
            f.on("bf16", "accumulate_allreduce_grads_in_fp32")
            and f.text("main_grads_dtype") == "bf16"
        ),
        "--accumulate-allreduce-grads-in-fp32 excludes --main-grads-dtype bf16: take one out",
        "main_grads_dtype",
    ),
    Check(
        "graph_of_step_needs_unchecked_loss",
        lambda f: f.text("cuda_graph_impl") == "full_iteration" and _checked_loss(f),
        "--cuda-graph-impl full_iteration needs --no-check-for-nan-in-loss-and-grad: add it",
        "cuda_graph_impl",
    ),
    Check("iterations_or_samples", _steps, "count by iterations or by samples: take one kind out"),
    excludes("layers_twice", "num_layers", "encoder_num_layers"),
    Check(
        "missing_flag",
        _missing,
        "--num-layers, --hidden-size, --num-attention-heads and --max-position-embeddings are "
        "needed: add what is missing",
    ),
    Check(
        "heads_divide_hidden",
        _odd_heads,
        "the heads must divide --hidden-size where --kv-channels says nothing: add it",
        "hidden_size",
    ),
    "cp_divides_sequence",
    Check(
        "missing_flag",
        lambda f: not f.given("seq_length", "encoder_seq_length"),
        "--seq-length is missing: add it",
    ),
    Check(
        "positions_hold_sequence",
        lambda f: f.count("max_position_embeddings") < f.count("seq_length"),
        "--max-position-embeddings must be at least --seq-length: raise it",
        "max_position_embeddings",
    ),
    Check(
        "learning_rates",
        lambda f: (
            f.given("lr") and (f.arguments.number("min_lr") or 0) > (f.arguments.number("lr") or 0)
        ),
        "--min-lr exceeds --lr: lower it",
        "min_lr",
    ),
    needs("save_needs_interval", "save", "save_interval"),
    needs("fp32_residual_needs_16_bits", "fp32_residual_connection", "bf16", "fp16"),
    Check("weight_decay", _weight_decay, "give both ends of the weight decay and its style"),
)

LAST: tuple[Check | str, ...] = (
    needs("distributed_activations", "distribute_saved_activations", "tp"),
    needs("distributed_activations", "distribute_saved_activations", "recompute=full"),
    needs("distributed_activations", "distribute_saved_activations", "recompute_method"),
    excludes("selective_recompute_takes_modules", "recompute=selective", "recompute_method"),
    Check(
        "tp_overlap_needs_sequence_parallel",
        lambda f: f.on("tp_comm_overlap") and not f.sequence_parallel,
        "--tp-comm-overlap needs tp above 1 and --sequence-parallel: add them, or take it out",
        "tp_comm_overlap",
    ),
    Check(
        "device_max_connections",
        _queues,
        f"tp or cp above 1 on GPUs before Blackwell needs export {QUEUES}=1",
    ),
    Check(
        "positions_removed",
        lambda f: not f.on("add_position_embedding") and positions(f.arguments) != "rope",
        "--no-position-embedding is gone: use --position-embedding-type none",
        "add_position_embedding",
    ),
    needs("ep_needs_experts", "ep", "num_experts"),
    "ep_divides_experts",
    needs("dcp_needs_torch_fsdp2", "ckpt_format=torch_dcp", "use_torch_fsdp2"),
    excludes("dcp_needs_torch_fsdp2", "ckpt_format=torch_dcp", "tp", "pp"),
    needs("checkpoint_needs_fsdp", "ckpt_format=fsdp_dtensor", "use_megatron_fsdp"),
    Check("one_data_source", _data, "give one of --mock-data, --data-path and the split paths"),
    Check(
        "fused_loss_removed",
        lambda f: f.on("cross_entropy_loss_fusion") and f.text("cross_entropy_fusion_impl") == "te",
        "the fused loss of Transformer Engine is off here: --cross-entropy-fusion-impl native",
        "cross_entropy_fusion_impl",
    ),
    excludes("fake_group_excludes_flex", "fake_process_group", "moe_token_dispatcher_type=flex"),
    needs(
        "offload_needs_precision_aware", "optimizer_cpu_offload", "use_precision_aware_optimizer"
    ),
    Check(
        "offload_of_fp8_weights",
        lambda f: (
            f.on("optimizer_cpu_offload", "fp8_param_gather") and f.text("fp8_recipe") != "delayed"
        ),
        "--optimizer-cpu-offload with --fp8-param-gather needs --fp8-recipe delayed",
        "fp8_param_gather",
    ),
    *(
        needs("needs_transformer_engine", one, "transformer_impl=transformer_engine")
        for one in ("delay_wgrad_compute", "fine_grained_activation_offloading")
    ),
    Check(
        "offload_needs_environment",
        lambda f: (
            f.on("fine_grained_activation_offloading")
            and f.environment.get("NVTE_CPU_OFFLOAD_V1") != "1"
        ),
        "activation offload with Transformer Engine 2.10 needs export NVTE_CPU_OFFLOAD_V1=1",
        "fine_grained_activation_offloading",
    ),
    Check(
        "graph_needs_environment",
        lambda f: f.text("cuda_graph_impl") == "transformer_engine" and _graph_environment(f),
        "graphs of layers beside expandable segments need export NCCL_GRAPH_REGISTER=0",
        "cuda_graph_impl",
    ),
    excludes(
        "graph_of_step_takes_no_modules", "cuda_graph_impl=full_iteration", "cuda_graph_modules"
    ),
    excludes("groups_or_latent_attention", "multi_latent_attention", "group_query_attention"),
)
