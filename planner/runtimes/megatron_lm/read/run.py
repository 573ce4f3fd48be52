"""What the runtime stops at in graphs, optimizer, schedule, groups, and when it builds a model.

A bare name is a rule of the cost model. Source: Megatron-LM
`megatron/core/transformer/transformer_config.py`, `optimizer/optimizer_config.py`,
`distributed/distributed_data_parallel_config.py`, `pipeline_parallel/schedules.py:1161`,
`parallel_state.py`, `transformer/transformer_block.py:178` and `moe/moe_layer.py:636`.
"""

from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.degrees import ENDS, dealt_layers
from trainplan.planner.runtimes.megatron_lm.read.facts import Check, Facts, needs
from trainplan.planner.runtimes.megatron_lm.read.moe import expert_layers
from trainplan.planner.runtimes.megatron_lm.read.options import graph_kind, graph_modules


def _uneven_virtual_stages(f: Facts) -> bool:
    of_rank, rest = divmod(dealt_layers(f), f.pp)
    even = not f.given(*ENDS, keys.STAGES) and not rest
    return even and f.vpp > 1 and of_rank % f.vpp != 0


def _graphs(f: Facts) -> bool:
    """What graphs of layers may hold, and what may be recomputed or offloaded beside graphs."""
    kind, modules = graph_kind(f.arguments), set(graph_modules(f.arguments))
    if kind == "none":
        return False
    layers = expert_layers(f.arguments, f.layers)
    experts = f.count(keys.EXPERTS) > 1
    outside = {"moe", "moe_router"} & modules if not experts else {"moe"} & modules
    dense = experts and all(layers) and "mlp" in modules
    alone = "moe_preprocess" in modules and "moe_router" not in modules and kind != "local"
    whole = kind == "full_iteration"
    covered = f.recomputes == "full" and not whole
    covered |= (
        kind == "transformer_engine" and f.recomputes_module("moe") and "moe_router" in modules
    )
    everything, drops = whole or not modules, f.arguments.number
    masked = bool(drops(keys.ATTENTION_DROPOUT)) and (everything or "attn" in modules)
    residual = bool(drops(keys.HIDDEN_DROPOUT)) and (everything or bool({"mlp", "moe"} & modules))
    masks = (masked and f.recomputes_module("core_attn")) or (
        residual and f.recomputes_module("mlp", "moe")
    )
    return bool(outside and not whole) or dense or alone or covered or masks


def _offload_graphs(f: Facts) -> bool:
    kind, modules = graph_kind(f.arguments), set(f.arguments.texts(keys.OFFLOADED_MODULES))
    if not f.on(keys.OFFLOADS) or kind in ("none", "transformer_engine"):
        return False
    if kind == "full_iteration":
        return f.count(keys.IN_FLIGHT) < 0 or not f.given(keys.IN_FLIGHT)
    return bool(modules - {"expert_fc1", "moe_act", "fused_group_mlp"}) or not graph_modules(
        f.arguments
    )


def _exchange(f: Facts) -> bool:
    """Layers of two micro batches beside each other; nothing of a whole layer is recomputed."""
    halves = (
        f.text(keys.DISPATCHER) in ("alltoall", "flex") and f.ep > 1 and (f.pp == 1 or f.vpp > 1)
    )
    whole = f.recomputes == "full" or f.given(keys.RECOMPUTE_METHOD, keys.RECOMPUTED_LAYERS)
    # the list counts whether or not it is recomputed (TC:3035)
    whole = whole or "moe" in f.arguments.texts(keys.RECOMPUTED_MODULES)
    wide = not (f.on(keys.BF16) or f.on(keys.FP16))
    alongside = f.on(keys.SHARED_OVERLAP) or f.count(keys.PREDICTIONS) > 1
    graphed = graph_kind(f.arguments) == "transformer_engine" and bool(
        {"moe", "mlp"} & set(graph_modules(f.arguments)) or not graph_modules(f.arguments)
    )
    return f.on(keys.EXPERT_OVERLAP) and (not halves or whole or wide or alongside or graphed)


def _narrow(f: Facts) -> bool:
    names = ("main_grads", "main_params", "exp_avg", "exp_avg_sq")
    narrow = any(f.text(f"{name}_dtype") != "fp32" for name in names)
    return narrow and not f.on(keys.PRECISION_AWARE)


def _micro_batch_groups(f: Facts) -> bool:
    micro, whole = f.count(keys.MICRO_BATCH), f.count(keys.BATCH)
    if f.vpp == 1 or f.pp == 1 or not f.dp or micro < 1:
        return False
    batches = whole // (micro * f.dp) if whole else 1
    size = f.count(keys.GROUP) or f.pp
    return not f.pp <= size <= batches or 0 < batches % size < f.pp


def _folding(f: Facts) -> str:
    wrong = f.world and f.world % (f.etp * f.ep * f.pp)
    return f"{f.etp} * {f.ep} * {f.pp} and {f.world} ranks" if wrong else ""


def _expert_replicas(f: Facts) -> int:
    return (f.world or 0) // (f.etp * f.ep * f.pp)


def _replicas(f: Facts) -> bool:
    copies = max(1, f.count(keys.REPLICAS))
    return bool(f.dp and f.dp * f.cp % copies)


def _exchanges(f: Facts) -> bool:
    return f.cp > 1 and len(f.arguments.texts(keys.EXCHANGE)) not in (1, f.layers)


def _frequency(f: Facts) -> bool:
    freq = f.arguments.value(keys.EXPERT_LAYERS)
    return isinstance(freq, tuple) and f.count(keys.EXPERTS) > 0 and len(freq) != f.layers


RUN_CHECKS: tuple[Check | str, ...] = (
    Check(
        "graphs_of_modules",
        _graphs,
        "graphs of layers hold modules that the model has, and nothing that is recomputed: change "
        "--cuda-graph-modules or what is recomputed",
        keys.GRAPH,
    ),
    Check(
        "offloads_without_graphs",
        _offload_graphs,
        "activation offload goes with --cuda-graph-impl transformer_engine: take one out",
        keys.GRAPH,
    ),
    Check(
        "exchange_beside_compute",
        _exchange,
        "--overlap-moe-expert-parallel-comm needs ep above 1, alltoall or flex, virtual stages "
        "where pp is above 1, 16 bits, and no recomputation of layers or moe: take it out",
        keys.EXPERT_OVERLAP,
    ),
    needs("delayed_weights_need_overlap", keys.DELAYED_WEIGHTS, keys.EXPERT_OVERLAP),
    Check("exchanges_of_layers", _exchanges, "--cp-comm-type takes one value, or one per layer"),
    needs("precision_aware_needs_adam", keys.PRECISION_AWARE, f"{keys.OPTIMIZER}=adam"),
    Check(
        "dtypes_need_precision_aware",
        _narrow,
        "types of optimizer state need --use-precision-aware-optimizer: add it",
    ),
    needs("reused_buffer_needs_fp8_gather", keys.REUSED_BUFFER, keys.FP8_GATHER),
    Check(
        "interleaved_needs_whole_groups",
        _micro_batch_groups,
        "virtual stages need micro batches in whole groups of at least pp: change the batch",
        keys.BATCH,
    ),
    Check(
        "experts_fold_into_ranks",
        _folding,
        "etp * ep * pp must divide the number of ranks (etp is tp by default): lower ep, pp or "
        "--expert-tensor-parallel-size",
        keys.EP,
    ),
    Check(
        "mapping_needs_equal_replicas",
        lambda f: f.on("use_tp_pp_dp_mapping") and f.pp > 1 and _expert_replicas(f) != f.dp,
        "--use-tp-pp-dp-mapping needs etp * ep = tp * cp: take it out",
        "use_tp_pp_dp_mapping",
    ),
    Check(
        "replicas_divide_dp",
        _replicas,
        "--num-distributed-optimizer-instances must divide dp * cp: lower it",
        keys.REPLICAS,
    ),
    Check(
        "replicas_divide_expert_dp",
        lambda f: _expert_replicas(f) % max(1, f.count(keys.REPLICAS)) != 0,
        "--num-distributed-optimizer-instances must divide the replicas of experts: lower it",
        keys.REPLICAS,
    ),
    "experts_need_sequence_parallel",
    "sequence_parallel_divides_sequence",
    needs(
        "precision_aware_needs_sharding",
        keys.PRECISION_AWARE,
        keys.DISTRIBUTED,
        keys.FSDP,
        keys.CPU_OPTIMIZER,
    ),
    Check(
        "virtual_stages_divide_layers",
        _uneven_virtual_stages,
        "the virtual stages of a rank must divide its layers: change their number",
        keys.VPP,
    ),
    Check(
        "moe_layer_freq_length",
        _frequency,
        "--moe-layer-freq lists one number for each layer: correct it",
        keys.EXPERT_LAYERS,
    ),
)
