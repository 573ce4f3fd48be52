"""What the runtime's configuration of the network stops at, after its validator, in its order.

A bare name is a rule of the cost model. Source: Megatron-LM
`megatron/core/transformer/transformer_config.py` and `model_parallel_config.py`.
"""

from trainplan.costmodel.layout import OFFLOAD_MODULES
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.degrees import ENDS, dealt_layers
from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts, excludes, forbids, needs
from trainplan.planner.runtimes.megatron_lm.read.layout import recompute_modules
from trainplan.planner.runtimes.megatron_lm.read.options import graph_kind
from trainplan.planner.runtimes.megatron_lm.read.pipeline import layout_stages, stage_layers

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "shared_experts", "moe")
RECOMPUTED = frozenset((*MODULES, "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"))
OFFLOADED = frozenset((*OFFLOAD_MODULES, "fused_group_mlp", "attn_norm", "gdp_qkv"))
BALANCED = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")


def _stages(f: Facts) -> str:
    try:
        stages = layout_stages(f.text(keys.STAGES)) if f.text(keys.STAGES) else None
    except ValueError as error:
        return str(error)
    return stages.wrong(f.layers, f.count(keys.PREDICTIONS), f.pp) or "" if stages else ""


def _ends(f: Facts) -> bool:
    """Ends are above 0, and what is left is dealt out evenly, to virtual stages as well."""
    sizes = [f.arguments.whole(end) for end in ENDS]
    if f.given(keys.STAGES) or sizes == [None, None]:
        return False
    empty = any(size is not None and size < 1 for size in sizes)
    return empty or stage_layers(f.arguments, f.layers) is None


def _unknown_modules(f: Facts) -> bool:
    selective = f.recomputes == "selective"
    recomputed = set(recompute_modules(f.arguments)) if selective else set()
    offloaded = set(f.arguments.texts(keys.OFFLOADED_MODULES)) if f.on(keys.OFFLOADS) else set()
    return bool(recomputed - RECOMPUTED or offloaded - OFFLOADED)


def _absent_modules(f: Facts) -> bool:
    act = f.recomputes_module("moe_act") and not f.on(keys.GROUPED_GEMM)
    return act or (f.recomputes_module("mla_up_proj") and not f.on(keys.LATENT))


def _offloads_recomputed(f: Facts) -> bool:
    inside = {"moe_act", "expert_fc1", "fused_group_mlp"} & set(
        f.arguments.texts(keys.OFFLOADED_MODULES)
    )
    return f.on(keys.OFFLOADS) and f.recomputes_module("moe") and bool(inside)


def _delayed(f: Facts) -> bool:
    return bool(f.text(keys.FP8)) and f.text(keys.FP8_RECIPE) == "delayed"


def _host_layers(f: Facts) -> bool:
    layers = f.count(keys.HOST_LAYERS)
    graphs = graph_kind(f.arguments) not in ("none", "full_iteration")
    alongside = f.pp > 1 or f.recomputes != "none" or f.on(keys.OFFLOADS) or graphs
    return layers > 0 and (layers >= f.layers or alongside)


def _width(f: Facts) -> bool:
    freq = f.arguments.value(keys.EXPERT_LAYERS)
    mixed = 0 in freq if isinstance(freq, tuple) else isinstance(freq, int) and freq > 1
    return f.given(keys.EXPERT_FFN) and not f.count(keys.EXPERTS) and not mixed


def _groups_of_experts(f: Facts) -> bool:
    groups, limit = f.count(keys.ROUTER_GROUPS), f.count(keys.TOP_GROUPS)
    return bool(limit) and (not groups or f.count(keys.EXPERTS) % groups != 0 or limit > groups)


def _balancing(f: Facts) -> bool:
    kinds = f.arguments.texts(keys.BALANCING)
    strengths = f.arguments.value(keys.BALANCING_RATE)
    given = len(strengths) if isinstance(strengths, tuple) else 1
    return len(kinds) > 1 and given != len(kinds)


def _capacity(f: Facts) -> bool:
    kinds = f.arguments.texts(keys.BALANCING)
    return (f.arguments.number(keys.CAPACITY) is not None) and bool(set(kinds) - set(BALANCED))


def _one_expert(f: Facts) -> bool:
    after = not f.on(keys.PRE_SOFTMAX) and f.text(keys.SCORES) == "softmax"
    sinkhorn = f.arguments.texts(keys.BALANCING) == ("sinkhorn",)
    return f.count(keys.TOP_K) == 1 and after and not sinkhorn


MODEL_CHECKS: tuple[Check | str, ...] = (
    excludes("one_activation", keys.SWIGLU, keys.SQUARED_RELU, keys.QUICK_GEGLU),
    needs("rope_type_needs_latent_attention", f"{keys.ROPE_TYPE}=yarn", keys.LATENT),
    needs("deferred_embedding", "defer_embedding_wgrad_compute", "pp"),
    needs("deferred_embedding", "defer_embedding_wgrad_compute", "gradient_accumulation_fusion"),
    needs("overlap_of_warmup", "overlap_p2p_comm_warmup_flush", "vpp"),
    needs("overlap_of_warmup", "overlap_p2p_comm_warmup_flush", "overlap_p2p_comm"),
    "tp_divides_heads",
    "tp_fits_key_value_heads",
    forbids(
        "bf16_layers_exclude_delayed",
        "--first-last-layers-bf16 excludes --fp8-recipe delayed: choose another recipe",
        ("first_last_layers_bf16", keys.FP8, f"{keys.FP8_RECIPE}=delayed"),
    ),
    needs("fp8_gather_needs_fp8", keys.FP8_GATHER, keys.FP8),
    Check(
        "expert_width_needs_experts",
        _width,
        "--moe-ffn-hidden-size needs --num-experts: add it, or take it out",
        keys.EXPERT_FFN,
    ),
    needs("deepep_needs_flex", "moe_enable_deepep", f"{keys.DISPATCHER}=flex"),
    excludes("one_dispatcher", "moe_enable_deepep", f"{keys.BACKEND}=hybridep"),
    needs("ncclep_needs_flex", f"{keys.BACKEND}=ncclep", f"{keys.DISPATCHER}=flex"),
    forbids(
        "shared_overlap_needs_alltoall",
        "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall or flex",
        (keys.SHARED_OVERLAP, keys.SHARED_EXPERT, f"{keys.DISPATCHER}=allgather"),
    ),
    Check("balancing_strengths", _balancing, "give one --moe-aux-loss-coeff for each balancing"),
    Check("capacity_needs_loss", _capacity, "a capacity factor needs balancing by a loss, or none"),
    needs("padding_needs_capacity", keys.PADDED, keys.CAPACITY),
    Check(
        "layers_on_the_host",
        _host_layers,
        "--cpu-offloading-num-layers must leave some layers, and excludes pp, recomputation, "
        "activation offload and graphs of layers: take one out",
        keys.HOST_LAYERS,
    ),
    needs("full_recompute_needs_method", "recompute=full", keys.RECOMPUTE_METHOD),
    needs("full_recompute_needs_layers", "recompute=full", keys.RECOMPUTED_LAYERS),
    excludes("selective_recompute_takes_modules", "recompute=selective", keys.RECOMPUTED_LAYERS),
    Check(
        "distributed_activations",
        lambda f: f.on("distribute_saved_activations") and f.sequence_parallel,
        "--distribute-saved-activations excludes --sequence-parallel: take it out",
        "distribute_saved_activations",
    ),
    Check(
        "unknown_module",
        _unknown_modules,
        f"recomputed modules are {', '.join(sorted(RECOMPUTED))}; offloaded ones "
        f"{', '.join(sorted(OFFLOADED))}: correct the name",
        keys.RECOMPUTED_MODULES,
    ),
    Check(
        "recompute_modules_exist",
        _absent_modules,
        "to recompute moe_act needs --moe-grouped-gemm, mla_up_proj --multi-latent-attention",
        keys.RECOMPUTED_MODULES,
    ),
    Check(
        "shared_experts_recompute_or_overlap",
        lambda f: (
            f.recomputes_module("shared_experts")
            and f.on(keys.SHARED_OVERLAP)
            and f.count(keys.SHARED_EXPERT) > 0
        ),
        "--moe-shared-expert-overlap excludes recomputing shared_experts: take one out",
        keys.SHARED_OVERLAP,
    ),
    Check(
        "delayed_scaling_keeps_norms",
        lambda f: _delayed(f) and f.recomputes_module("moe_act", "layernorm"),
        "--fp8-recipe delayed recomputes no moe_act and no layernorm: choose another recipe",
        keys.RECOMPUTED_MODULES,
    ),
    excludes("moe_recompute_or_full", "moe_layer_recompute", "recompute=full"),
    needs("offload_needs_modules", keys.OFFLOADS, keys.OFFLOADED_MODULES),
    "attn_proj_offloads_with_core",
    Check(
        "offloads_what_is_kept",
        _offloads_recomputed,
        "what lies in a recomputed moe cannot wait on the host: take it out of --offload-modules",
        keys.OFFLOADED_MODULES,
    ),
    Check(
        "uneven_or_accounted",
        lambda f: f.given(*ENDS, keys.STAGES) and dealt_layers(f) > f.layers,
        "--account-for-embedding- and -loss-in-pipeline-split exclude uneven stages: take one out",
    ),
    Check(
        "one_pipeline_split",
        lambda f: f.given(keys.STAGES) and f.given(*ENDS),
        "--pipeline-model-parallel-layout excludes --decoder-first- and -last-pipeline-num-layers",
        keys.STAGES,
    ),
    Check(
        "stages_hold_the_model",
        _stages,
        "--pipeline-model-parallel-layout holds E, every layer t, every m and L once, in this "
        "order: correct it",
        keys.STAGES,
    ),
    Check(
        "first_last_stages_divide",
        _ends,
        "what --decoder-first- and --decoder-last-pipeline-num-layers leave must divide over the "
        "other ranks, and all over the virtual stages: correct them",
        ENDS[0],
    ),
    forbids(  # the kernel that adds a bias knows GELU and gated units
        "fused_activation",
        "--squared-relu with biases needs --no-bias-gelu-fusion: add it",
        (keys.SQUARED_RELU, keys.GELU_FUSION, keys.BIASES, f"!{keys.SWIGLU}"),
    ),
    excludes("interleaved_rotation", keys.LATENT, "rotary_interleaved"),
    "expert_bias_needs_whole_experts",
    needs(
        "expert_bias_needs_sigmoid",
        keys.ROUTER_BIAS,
        f"{keys.SCORES}=sigmoid",
        f"{keys.SCORES}=sqrtsoftplus",
    ),
    needs("padding_for_quantization", keys.ROUTER_PADDING, keys.FP8, keys.FP4),
    excludes("padding_for_quantization", keys.ROUTER_PADDING, f"{keys.DISPATCHER}=allgather"),
    Check(
        "top_1_needs_pre_softmax",
        _one_expert,
        "--moe-router-topk 1 needs --moe-router-pre-softmax: add it",
        keys.TOP_K,
    ),
    Check(
        "router_groups",
        _groups_of_experts,
        "--moe-router-group-topk needs --moe-router-num-groups, which divides the experts and is "
        "no smaller",
        keys.TOP_GROUPS,
    ),
)
