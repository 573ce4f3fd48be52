"""What the runtime's configuration of the network stops at, after its validator, in its order.

A bare name is a rule of the cost model. Source: Megatron-LM
`megatron/core/transformer/transformer_config.py` and `model_parallel_config.py`.
"""

from trainplan.costmodel.layout import OFFLOAD_MODULES
from trainplan.planner.runtimes.megatron_lm.read.degrees import ENDS, LAYOUT, dealt_layers
from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts, excludes, needs
from trainplan.planner.runtimes.megatron_lm.read.layout import recompute_modules
from trainplan.planner.runtimes.megatron_lm.read.options import graph_kind
from trainplan.planner.runtimes.megatron_lm.read.pipeline import layout_stages, stage_layers

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "shared_experts", "moe")
RECOMPUTED = frozenset((*MODULES, "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"))
OFFLOADED = frozenset((*OFFLOAD_MODULES, "fused_group_mlp", "attn_norm", "gdp_qkv"))
BALANCED = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")
EXCHANGE = "overlap_moe_expert_parallel_comm"
DISPATCHER = "moe_token_dispatcher_type"
OFFLOADS = "fine_grained_activation_offloading"


def _stages(f: Facts) -> str:
    try:
        stages = layout_stages(f.text(LAYOUT)) if f.text(LAYOUT) else None
    except ValueError as error:
        return str(error)
    return stages.wrong(f.layers, f.count("mtp_num_layers"), f.pp) or "" if stages else ""


def _ends(f: Facts) -> bool:
    """Ends are above 0, and what is left is dealt out evenly, to virtual stages as well."""
    sizes = [f.arguments.whole(end) for end in ENDS]
    if f.given(LAYOUT) or sizes == [None, None]:
        return False
    empty = any(size is not None and size < 1 for size in sizes)
    return empty or stage_layers(f.arguments, f.layers) is None


def _unknown_modules(f: Facts) -> bool:
    selective = f.recomputes == "selective"
    recomputed = set(recompute_modules(f.arguments)) if selective else set()
    offloaded = set(f.arguments.texts("offload_modules")) if f.on(OFFLOADS) else set()
    return bool(recomputed - RECOMPUTED or offloaded - OFFLOADED)


def _absent_modules(f: Facts) -> bool:
    act = f.recomputes_module("moe_act") and not f.on("moe_grouped_gemm")
    return act or (f.recomputes_module("mla_up_proj") and not f.on("multi_latent_attention"))


def _offloads_recomputed(f: Facts) -> bool:
    inside = {"moe_act", "expert_fc1", "fused_group_mlp"} & set(
        f.arguments.texts("offload_modules")
    )
    return f.on(OFFLOADS) and f.recomputes_module("moe") and bool(inside)


def _delayed(f: Facts) -> bool:
    return bool(f.text("fp8")) and f.text("fp8_recipe") == "delayed"


def _host_layers(f: Facts) -> bool:
    layers = f.count("cpu_offloading_num_layers")
    graphs = graph_kind(f.arguments) not in ("none", "full_iteration")
    alongside = f.pp > 1 or f.recomputes != "none" or f.on(OFFLOADS) or graphs
    return layers > 0 and (layers >= f.layers or alongside)


def _width(f: Facts) -> bool:
    freq = f.arguments.value("moe_layer_freq")
    mixed = 0 in freq if isinstance(freq, tuple) else isinstance(freq, int) and freq > 1
    return f.given("moe_ffn_hidden_size") and not f.count("num_experts") and not mixed


def _groups_of_experts(f: Facts) -> bool:
    groups, limit = f.count("moe_router_num_groups"), f.count("moe_router_group_topk")
    return bool(limit) and (not groups or f.count("num_experts") % groups != 0 or limit > groups)


def _balancing(f: Facts) -> bool:
    kinds = f.arguments.texts("moe_router_load_balancing_type")
    strengths = f.arguments.value("moe_aux_loss_coeff")
    given = len(strengths) if isinstance(strengths, tuple) else 1
    return len(kinds) > 1 and given != len(kinds)


def _capacity(f: Facts) -> bool:
    kinds = f.arguments.texts("moe_router_load_balancing_type")
    return (f.arguments.number("moe_expert_capacity_factor") is not None) and bool(
        set(kinds) - set(BALANCED)
    )


def _one_expert(f: Facts) -> bool:
    after = not f.on("moe_router_pre_softmax") and f.text("moe_router_score_function") == "softmax"
    sinkhorn = f.arguments.texts("moe_router_load_balancing_type") == ("sinkhorn",)
    return f.count("moe_router_topk") == 1 and after and not sinkhorn


def _fused_activation(f: Facts) -> bool:
    """The kernel that adds a bias knows GELU and gated units."""
    return f.on("squared_relu", "bias_gelu_fusion", "add_bias_linear") and not f.on("swiglu")


MODEL_CHECKS: tuple[Check | str, ...] = (
    excludes("one_activation", "swiglu", "squared_relu", "quick_geglu"),
    needs("rope_type_needs_latent_attention", "rope_type=yarn", "multi_latent_attention"),
    needs("deferred_embedding", "defer_embedding_wgrad_compute", "pp"),
    needs("deferred_embedding", "defer_embedding_wgrad_compute", "gradient_accumulation_fusion"),
    needs("overlap_of_warmup", "overlap_p2p_comm_warmup_flush", "vpp"),
    needs("overlap_of_warmup", "overlap_p2p_comm_warmup_flush", "overlap_p2p_comm"),
    "tp_divides_heads",
    "tp_fits_key_value_heads",
    Check(
        "bf16_layers_exclude_delayed",
        lambda f: _delayed(f) and f.on("first_last_layers_bf16"),
        "--first-last-layers-bf16 excludes --fp8-recipe delayed: choose another recipe",
        "first_last_layers_bf16",
    ),
    needs("fp8_gather_needs_fp8", "fp8_param_gather", "fp8"),
    Check(
        "expert_width_needs_experts",
        _width,
        "--moe-ffn-hidden-size needs --num-experts: add it, or take it out",
        "moe_ffn_hidden_size",
    ),
    needs("deepep_needs_flex", "moe_enable_deepep", f"{DISPATCHER}=flex"),
    excludes("one_dispatcher", "moe_enable_deepep", "moe_flex_dispatcher_backend=hybridep"),
    needs("ncclep_needs_flex", "moe_flex_dispatcher_backend=ncclep", f"{DISPATCHER}=flex"),
    Check(
        "shared_overlap_needs_alltoall",
        lambda f: (
            f.on("moe_shared_expert_overlap")
            and f.count("moe_shared_expert_intermediate_size") > 0
            and f.text(DISPATCHER) == "allgather"
        ),
        "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall or flex",
        "moe_shared_expert_overlap",
    ),
    Check("balancing_strengths", _balancing, "give one --moe-aux-loss-coeff for each balancing"),
    Check("capacity_needs_loss", _capacity, "a capacity factor needs balancing by a loss, or none"),
    needs(
        "padding_needs_capacity", "moe_pad_expert_input_to_capacity", "moe_expert_capacity_factor"
    ),
    Check(
        "layers_on_the_host",
        _host_layers,
        "--cpu-offloading-num-layers must leave some layers, and excludes pp, recomputation, "
        "activation offload and graphs of layers: take one out",
        "cpu_offloading_num_layers",
    ),
    needs("full_recompute_needs_method", "recompute=full", "recompute_method"),
    needs("full_recompute_needs_layers", "recompute=full", "recompute_num_layers"),
    excludes("selective_recompute_takes_modules", "recompute=selective", "recompute_num_layers"),
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
        "recompute_modules",
    ),
    Check(
        "recompute_modules_exist",
        _absent_modules,
        "to recompute moe_act needs --moe-grouped-gemm, mla_up_proj --multi-latent-attention",
        "recompute_modules",
    ),
    Check(
        "shared_experts_recompute_or_overlap",
        lambda f: (
            f.recomputes_module("shared_experts")
            and f.on("moe_shared_expert_overlap")
            and f.count("moe_shared_expert_intermediate_size") > 0
        ),
        "--moe-shared-expert-overlap excludes recomputing shared_experts: take one out",
        "moe_shared_expert_overlap",
    ),
    Check(
        "delayed_scaling_keeps_norms",
        lambda f: _delayed(f) and f.recomputes_module("moe_act", "layernorm"),
        "--fp8-recipe delayed recomputes no moe_act and no layernorm: choose another recipe",
        "recompute_modules",
    ),
    excludes("moe_recompute_or_full", "moe_layer_recompute", "recompute=full"),
    needs("offload_needs_modules", OFFLOADS, "offload_modules"),
    "attn_proj_offloads_with_core",
    Check(
        "offloads_what_is_kept",
        _offloads_recomputed,
        "what lies in a recomputed moe cannot wait on the host: take it out of --offload-modules",
        "offload_modules",
    ),
    Check(
        "uneven_or_accounted",
        lambda f: f.given(*ENDS, LAYOUT) and dealt_layers(f) > f.layers,
        "--account-for-embedding- and -loss-in-pipeline-split exclude uneven stages: take one out",
    ),
    Check(
        "one_pipeline_split",
        lambda f: f.given(LAYOUT) and f.given(*ENDS),
        "--pipeline-model-parallel-layout excludes --decoder-first- and -last-pipeline-num-layers",
        LAYOUT,
    ),
    Check(
        "stages_hold_the_model",
        _stages,
        "--pipeline-model-parallel-layout holds E, every layer t, every m and L once, in this "
        "order: correct it",
        LAYOUT,
    ),
    Check(
        "first_last_stages_divide",
        _ends,
        "what --decoder-first- and --decoder-last-pipeline-num-layers leave must divide over the "
        "other ranks, and all over the virtual stages: correct them",
        ENDS[0],
    ),
    Check(
        "fused_activation",
        _fused_activation,
        "--squared-relu with biases needs --no-bias-gelu-fusion: add it",
        "squared_relu",
    ),
    excludes("interleaved_rotation", "multi_latent_attention", "rotary_interleaved"),
    "expert_bias_needs_whole_experts",
    needs(
        "expert_bias_needs_sigmoid",
        "moe_router_enable_expert_bias",
        "moe_router_score_function=sigmoid",
        "moe_router_score_function=sqrtsoftplus",
    ),
    needs("padding_for_quantization", "moe_router_padding_for_quantization", "fp8", "fp4"),
    excludes(
        "padding_for_quantization", "moe_router_padding_for_quantization", f"{DISPATCHER}=allgather"
    ),
    Check(
        "top_1_needs_pre_softmax",
        _one_expert,
        "--moe-router-topk 1 needs --moe-router-pre-softmax: add it",
        "moe_router_topk",
    ),
    Check(
        "router_groups",
        _groups_of_experts,
        "--moe-router-group-topk needs --moe-router-num-groups, which divides the experts and is "
        "no smaller",
        "moe_router_group_topk",
    ),
)
