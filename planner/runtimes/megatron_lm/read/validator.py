"""What the runtime's validator stops at, in its order; a bare name is a rule of the cost model.

Source: Megatron-LM `megatron/training/arguments.py`, validate_args.
"""

from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts, excludes, forbids, needs
from trainplan.planner.runtimes.megatron_lm.read.model import positions

REMOVED = {
    "batch_size": "--micro-batch-size",
    "warmup": "--lr-warmup-fraction",
    "model_parallel_size": "--tensor-model-parallel-size",
    "checkpoint_activations": "--recompute-activations",
}
OF_SHAPE = (keys.HIDDEN, keys.HEADS, keys.MAX_POSITIONS)
"""What of a model every launch says."""
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
SHARDS = (keys.DISTRIBUTED, keys.FSDP)


def _removed(dest: str, now: str) -> Check:
    says = f"--{dest.replace('_', '-')} is no longer valid: use {now}"
    return Check("removed_flag", lambda f: f.given(dest), says, dest)


def _one_queue(fsdp: str) -> Check:
    says = f"FSDP refuses {QUEUES}=1: unset it, or set 8"
    return Check(
        "fsdp_needs_queues", lambda f: f.on(fsdp) and f.environment.get(QUEUES) == "1", says
    )


def _steps(f: Facts) -> bool:
    """Iterations and samples are two ways to count."""
    kinds = {"iters": f.count(keys.STEPS), "samples": f.count("train_samples")}
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
    free = any(map(f.on, ("use_torch_fsdp2", keys.FSDP)))
    free = free or f.on(keys.EXPERT_OVERLAP) or not f.old_gpu
    return (f.tp > 1 or f.cp > 1) and not free and f.environment.get(QUEUES) != "1"


def _data(f: Facts) -> bool:
    parts = f.given("train_data_path", "valid_data_path", "test_data_path")
    return f.on("mock_data") + f.given(keys.DATA) + parts > 1


def _graph_environment(f: Facts) -> bool:
    segments = "expandable_segments:True" in f.environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return segments and f.environment.get("NCCL_GRAPH_REGISTER") != "0"


def _checked_loss(f: Facts) -> bool:
    """Dynamic loss scaling checks by itself."""
    scaled = f.on(keys.FP16) and not f.arguments.number("loss_scale")
    return f.on(keys.LOSS_CHECK) and not scaled


def _missing(f: Facts) -> bool:
    return not f.layers or not all(map(f.count, OF_SHAPE))


def _odd_heads(f: Facts) -> bool:
    odd = f.count(keys.HIDDEN) % max(1, f.count(keys.HEADS)) != 0
    return odd and not f.count(keys.CHANNELS)


def _old_graphs(f: Facts) -> bool:
    old = [f.on(f"{kind}_cuda_graph") for kind in ("enable", "external")]
    twice = f.given("cuda_graph_scope_deprecated") and f.given(keys.GRAPH_MODULES)
    return all(old) or twice or (any(old) and f.text(keys.GRAPH) != "none")


FIRST: tuple[Check | str, ...] = (
    needs("local_attention", f"{keys.ATTENTION}=local", f"{keys.SPEC}=('local',)"),
    *(_removed(dest, now) for dest, now in REMOVED.items()),
    Check("old_graph_flags", _old_graphs, "state graphs once: --cuda-graph-impl and its modules"),
    Check(
        "missing_flag",
        lambda f: not f.given(keys.MICRO_BATCH),
        "--micro-batch-size is missing: add it",
    ),
    excludes("batch_or_schedule", "step_batch_size_schedule", keys.BATCH),
)

SHARDING: tuple[Check | str, ...] = (
    needs(
        "gather_overlap_needs_sharding", keys.GATHER_OVERLAP, *SHARDS, f"{keys.OPTIMIZER}=dist_muon"
    ),
    needs("gathers_overlap_with_reductions", keys.GATHER_OVERLAP, keys.GRADIENT_OVERLAP),
    excludes(
        "torch_fsdp2_conflicts",
        "use_torch_fsdp2",
        "pp",
        "ep",
        keys.DISTRIBUTED,
        "gradient_accumulation_fusion",
        keys.FP16,
        f"!{keys.UNTIED}",
        f"{keys.CHECKPOINTS}=torch",
        f"{keys.CHECKPOINTS}=fsdp_dtensor",
    ),
    _one_queue("use_torch_fsdp2"),
    *(
        needs("gather_beside_step", "overlap_param_gather_with_optimizer_step", wanted)
        for wanted in (keys.DISTRIBUTED, keys.GATHER_OVERLAP, "vpp", f"{keys.CHECKPOINTS}=torch")
    ),
    needs("fp8_gather_needs_sharding", keys.FP8_GATHER, *SHARDS, "use_torch_fsdp2"),
    excludes("fp8_or_fp4", keys.FP8, keys.FP4),
    needs("fp4_gather_needs_fp4", keys.FP4_GATHER, keys.FP4),
    excludes("fsdp_excludes_distributed_optimizer", "megatron_fsdp_version=2", keys.DISTRIBUTED),
    needs("fsdp_optimizer", keys.FSDP, f"{keys.OPTIMIZER}=adam", f"{keys.OPTIMIZER}=sgd"),
    _one_queue(keys.FSDP),
    needs("fsdp_checkpoint_format", keys.FSDP, f"{keys.CHECKPOINTS}=fsdp_dtensor"),
    forbids(
        "fsdp_whole_on_meta",
        "--init-model-with-meta-device excludes --data-parallel-sharding-strategy no_shard",
        (keys.ON_META, keys.FSDP, f"{keys.FSDP_STRATEGY}=no_shard"),
    ),
)

SHAPE: tuple[Check | str, ...] = (
    excludes("bf16_or_fp16", keys.BF16, keys.FP16),
    forbids(
        "accumulation_type",
        "--accumulate-allreduce-grads-in-fp32 excludes --main-grads-dtype bf16: take one out",
        ("main_grads_dtype=bf16", keys.BF16, keys.WHOLE_SUMS),
    ),
    Check(
        "graph_of_step_needs_unchecked_loss",
        lambda f: f.text(keys.GRAPH) == "full_iteration" and _checked_loss(f),
        "--cuda-graph-impl full_iteration needs --no-check-for-nan-in-loss-and-grad: add it",
        keys.GRAPH,
    ),
    Check("iterations_or_samples", _steps, "count by iterations or by samples: take one kind out"),
    excludes("layers_twice", keys.LAYERS, "encoder_num_layers"),
    Check(
        "missing_flag",
        _missing,
        "--num-layers, --hidden-size, --num-attention-heads and --max-position-embeddings are "
        "needed: add what is missing",
    ),
    Check(
        "heads_divide_hidden",
        _odd_heads,
        "the heads must divide --hidden-size without --kv-channels: add it",
        keys.HIDDEN,
    ),
    "cp_divides_sequence",
    Check(
        "missing_flag",
        lambda f: not f.given(keys.LENGTH, "encoder_seq_length"),
        "--seq-length is missing: add it",
    ),
    Check(
        "positions_hold_sequence",
        lambda f: f.count(keys.MAX_POSITIONS) < f.count(keys.LENGTH),
        "--max-position-embeddings must be at least --seq-length: raise it",
        keys.MAX_POSITIONS,
    ),
    Check(
        "learning_rates",
        lambda f: f.given(keys.LR) and f.number(keys.MIN_LR) > f.number(keys.LR),
        "--min-lr exceeds --lr: lower it",
        keys.MIN_LR,
    ),
    forbids(
        "save_needs_interval",
        "--save needs --save-interval of at least 1: give that, or take --save out",
        (keys.SAVE, f"!{keys.SAVE_INTERVAL}"),
    ),
    needs("fp32_residual_needs_16_bits", "fp32_residual_connection", keys.BF16, keys.FP16),
    Check("weight_decay", _weight_decay, "give both ends of the weight decay and its style"),
)

LAST: tuple[Check | str, ...] = (
    needs("distributed_activations", "distribute_saved_activations", "tp"),
    needs("distributed_activations", "distribute_saved_activations", "recompute=full"),
    needs("distributed_activations", "distribute_saved_activations", keys.RECOMPUTE_METHOD),
    excludes("selective_recompute_takes_modules", "recompute=selective", keys.RECOMPUTE_METHOD),
    Check(
        "tp_overlap_needs_sequence_parallel",
        lambda f: f.on(keys.TP_OVERLAP) and not f.sequence_parallel,
        "--tp-comm-overlap needs tp above 1 and --sequence-parallel: add them, or take it out",
        keys.TP_OVERLAP,
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
    needs("ep_needs_experts", "ep", keys.EXPERTS),
    "ep_divides_experts",
    needs("dcp_needs_torch_fsdp2", f"{keys.CHECKPOINTS}=torch_dcp", "use_torch_fsdp2"),
    excludes("dcp_needs_torch_fsdp2", f"{keys.CHECKPOINTS}=torch_dcp", "tp", "pp"),
    needs("checkpoint_needs_fsdp", f"{keys.CHECKPOINTS}=fsdp_dtensor", keys.FSDP),
    Check("one_data_source", _data, "give one of --mock-data, --data-path and the split paths"),
    forbids(
        "fused_loss_removed",
        "the fused loss of Transformer Engine is off here: --cross-entropy-fusion-impl native",
        (f"{keys.LOSS_KERNEL}=te", keys.LOSS_FUSION),
    ),
    excludes("fake_group_excludes_flex", "fake_process_group", f"{keys.DISPATCHER}=flex"),
    needs("offload_needs_precision_aware", keys.CPU_OPTIMIZER, keys.PRECISION_AWARE),
    forbids(
        "offload_of_fp8_weights",
        "--optimizer-cpu-offload with --fp8-param-gather needs --fp8-recipe delayed",
        (keys.FP8_GATHER, keys.CPU_OPTIMIZER, f"!{keys.FP8_RECIPE}=delayed"),
    ),
    *(
        needs("needs_transformer_engine", one, "transformer_impl=transformer_engine")
        for one in ("delay_wgrad_compute", keys.OFFLOADS)
    ),
    Check(
        "offload_needs_environment",
        lambda f: f.on(keys.OFFLOADS) and f.environment.get("NVTE_CPU_OFFLOAD_V1") != "1",
        "activation offload with Transformer Engine 2.10 needs export NVTE_CPU_OFFLOAD_V1=1",
        keys.OFFLOADS,
    ),
    Check(
        "graph_needs_environment",
        lambda f: f.text(keys.GRAPH) == "transformer_engine" and _graph_environment(f),
        "graphs of layers with expandable segments need export NCCL_GRAPH_REGISTER=0",
        keys.GRAPH,
    ),
    excludes("graph_of_step_takes_no_modules", f"{keys.GRAPH}=full_iteration", keys.GRAPH_MODULES),
    excludes("groups_or_latent_attention", keys.LATENT, keys.GROUPED),
)
