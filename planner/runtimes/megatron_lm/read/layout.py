"""Degrees, sharding, recomputation, offload: the exporter's `layout` and `optimizer`, inverted."""

from math import prod

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.layout import OFFLOAD_MODULES, RECOMPUTE_MODULES, Layout, stage_specs
from trainplan.costmodel.layouts import EMPTY_ENDS, layers_per_stage
from trainplan.costmodel.runtimes import IN_MOE_LAYERS, model_modules
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.keys import Key
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments
from trainplan.planner.runtimes.megatron_lm.read.model import num_layers
from trainplan.planner.runtimes.megatron_lm.read.pipeline import stage_layers, virtual_stages

FSDP_STAGE = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""ZeRO stage of each sharding strategy of Megatron-FSDP."""


def degree(arguments: Arguments, key: Key) -> int:
    """A degree of parallelism; what is not above 0 counts as 1, and a rule says so."""
    return max(1, arguments.count(key, 1))


def inner_ranks(arguments: Arguments) -> int:
    """Ranks of one replica."""
    return prod(degree(arguments, key) for key in (keys.TP, keys.PP, keys.CP))


def expert_degrees(arguments: Arguments) -> tuple[int, int]:
    """Expert parallelism, and the tensor parallelism of experts: as that of all else by default."""
    ep, tp = degree(arguments, keys.EP), degree(arguments, keys.TP)
    return ep, max(1, arguments.count(keys.ETP, tp))


def weight_shards(arguments: Arguments) -> tuple[int, int]:
    """Ranks beyond tensor parallelism that cut weights, and experts."""
    tp, (_, etp) = degree(arguments, keys.TP), expert_degrees(arguments)
    gtp = max(1, arguments.count(keys.WEIGHT_SHARDS, tp) // tp)
    return gtp, max(1, arguments.count(keys.EXPERT_SHARDS, etp) // etp)


def read_layout(arguments: Arguments, model: ModelSpec, world_size: int) -> Layout | None:
    """The layout of a launch; null: degrees or layers cannot be dealt out, or the batch is open.

    Raises:
        ValidationError: Its values make none.
    """
    layers = num_layers(arguments) or 0
    tp, pp = degree(arguments, keys.TP), degree(arguments, keys.PP)
    if world_size % inner_ranks(arguments) or not layers or not arguments.count(keys.MICRO_BATCH):
        return None
    counts = stage_layers(arguments, layers)
    if counts is None:
        return None
    ep, etp = expert_degrees(arguments)
    experts = model.moe is not None
    absent = () if experts else IN_MOE_LAYERS
    vpp = virtual_stages(arguments, layers)
    even = len(counts) <= layers + EMPTY_ENDS and counts == layers_per_stage(layers, len(counts))
    dp = world_size // inner_ranks(arguments)
    gtp, egtp = weight_shards(arguments)
    return Layout.model_validate(
        {
            "tp": tp,
            "pp": pp,
            "cp": degree(arguments, keys.CP),
            "cp_heads": nested_heads(arguments),
            "dp": dp,
            "vpp": vpp,
            "schedule": "interleaved" if vpp > 1 else "1f1b",
            "stages": None if even else stage_specs(counts),
            "ep": ep if experts else 1,
            "etp": etp if experts else 1,
            "gtp": gtp if dp % gtp == 0 else 1,
            "egtp": egtp if experts else 1,
            "dp_replicate": replicas(arguments, dp),
            "replicas_share_optimizer": shares_optimizer(arguments, dp),
            "zero_stage": zero_stage(arguments),
            "sequence_parallel": tp > 1 and arguments.on(keys.SEQUENCE_PARALLEL),
            "micro_batch_size": arguments.whole(keys.MICRO_BATCH),
            "offload": {"optimizer": _optimizer_offload(arguments)},
            "offload_modules": tuple(m for m in offload_modules(arguments) if m not in absent),
            **_recompute(arguments, model, max(counts)),
        }
    )


def nested_heads(arguments: Arguments) -> int:
    """Context ranks that exchange heads inside a ring; 1: there are not two levels of both."""
    sizes = arguments.integers(keys.NESTED_SIZES)
    nested = set(arguments.texts(keys.EXCHANGE)) == {"a2a+p2p"} and len(sizes) == 2
    return sizes[0] if nested and prod(sizes) == degree(arguments, keys.CP) else 1


def zero_stage(arguments: Arguments) -> int:
    """What is sharded over the replicas."""
    if arguments.on("use_torch_fsdp2"):
        return 3 if arguments.on("torch_fsdp2_reshard_after_forward") else 2
    if arguments.on(keys.FSDP):
        return FSDP_STAGE[arguments.text(keys.FSDP_STRATEGY)]
    by_layer = arguments.text(keys.OPTIMIZER) == "dist_muon"
    return int(arguments.on(keys.DISTRIBUTED) or by_layer)


def replicas(arguments: Arguments, dp: int) -> int:
    """Copies of what is sharded; where they divide context ranks, too, one."""
    copies = arguments.count(keys.REPLICAS, 1)
    return copies if copies > 0 and dp % copies == 0 and zero_stage(arguments) else 1


def shares_optimizer(arguments: Arguments, dp: int) -> bool:
    """Do copies of shards have parts of its optimizer? One copy has all of it."""
    wanted = arguments.on(keys.FSDP) and arguments.text(keys.OUTER_STRATEGY) == "optim"
    return wanted and replicas(arguments, dp) > 1


def _optimizer_offload(arguments: Arguments) -> float:
    fraction = arguments.number(keys.CPU_FRACTION) or 0.0
    return fraction if arguments.on(keys.CPU_OPTIMIZER) else 0.0


def recomputation(arguments: Arguments) -> str:
    """`none`, `selective` or `full`, with the older spellings."""
    if arguments.on("recompute_activations"):
        return "selective"
    stated = arguments.text(keys.RECOMPUTE)
    return stated or ("selective" if arguments.on("moe_layer_recompute") else "none")


def recompute_modules(arguments: Arguments) -> tuple[str, ...]:
    """Modules as the runtime names them, known to the cost model or not."""
    more = ("moe",) if arguments.on("moe_layer_recompute") else ()
    return (*(arguments.texts(keys.RECOMPUTED_MODULES) or ("core_attn",)), *more)


def _recompute(arguments: Arguments, model: ModelSpec, largest: int) -> dict[str, object]:
    """Modules that the model has; more layers than a stage holds are all of them."""
    kind = recomputation(arguments)
    stated = {*recompute_modules(arguments)} & model_modules(model)
    modules = tuple(name for name in RECOMPUTE_MODULES if name in stated)
    if kind == "selective":
        return {"recompute": kind, "recompute_modules": modules} if modules else {}
    method, layers = arguments.text(keys.RECOMPUTE_METHOD), arguments.count(keys.RECOMPUTED_LAYERS)
    if kind == "none" or not method or layers < 1:
        return {}
    return {
        "recompute": kind,
        "recompute_method": method,
        "recompute_num_layers": min(layers, max(1, largest)),
    }


def offload_modules(arguments: Arguments) -> tuple[str, ...]:
    """Those that the cost model knows; none without the switch."""
    stated = arguments.texts(keys.OFFLOADED_MODULES)
    if not arguments.on(keys.OFFLOADS):
        return ()
    return tuple(name for name in OFFLOAD_MODULES if name in stated)
