"""What a run sets beside its layout: the inverse of the exporter's `options`, `moe`, `training`.

A setting that is what the runtime does as we write it for is null, as in a job that states nothing.
"""

from collections.abc import Mapping

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.job import (
    ContextExchange,
    Dispatcher,
    GradientType,
    Job,
    OptimizerSpec,
    Precision,
    RuntimeOptions,
    StateType,
)
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits
from trainplan.planner.runtimes.exporter import with_traits
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments
from trainplan.planner.runtimes.megatron_lm.read.layout import degree, zero_stage
from trainplan.planner.runtimes.megatron_lm.write.layout import context_exchange

FSDP = 2
"""ZeRO stage from which on Megatron-FSDP shards."""
EXCHANGES: dict[str, ContextExchange] = {
    "p2p": "p2p",
    "a2a": "a2a",
    "allgather": "all_gather",
    "all_gather": "all_gather",
}
FEW_BITS_ALONE = (keys.FP8_GATHER, keys.FP4_GATHER)
DISPATCHERS: dict[str, Dispatcher] = {
    "deepep": "deepep",
    "hybridep": "hybridep",
    "ncclep": "ncclep",
}


def precision(arguments: Arguments) -> Precision:
    """Format of the matrix products; full-width ones run on matrix units in Transformer Engine."""
    if arguments.text(keys.FP4):
        return "nvfp4"
    if arguments.text(keys.FP8):
        return "mxfp8" if arguments.text(keys.FP8_RECIPE) == "mxfp8" else "fp8"
    return "bf16" if arguments.on(keys.BF16) else "fp16" if arguments.on(keys.FP16) else "tf32"


def _in_blocks(arguments: Arguments) -> bool:
    """Is fp8 scaled in blocks of 128 numbers?"""
    scaled = arguments.text(keys.FP8_RECIPE) == "blockwise"
    return scaled and bool(arguments.text(keys.FP8)) and not arguments.text(keys.FP4)


def read_options(arguments: Arguments, model: ModelSpec, vpp: int) -> RuntimeOptions:
    """All settings but the exchange of context ranks, which depends on the layout."""
    reduces = arguments.on(keys.GRADIENT_OVERLAP) or zero_stage(arguments) >= FSDP
    unfused = arguments.text(keys.ATTENTION) in ("unfused", "local")
    jit = arguments.on(keys.LOSS_FUSION)
    layers = arguments.count(keys.HOST_LAYERS)
    return RuntimeOptions(
        attention="unfused" if unfused else None,
        dropout=True if drops_out(arguments) else None,
        cross_entropy="jit" if jit else None,
        cuda_graph=_graph(arguments),
        overlap_grad_reduce=None if reduces else False,
        overlap_param_gather=_gathers(arguments, vpp),
        bucket_mb=_bucket(arguments),
        microbatch_group_size=_group(arguments, vpp),
        overlap_tp_comm=True if arguments.on(keys.TP_OVERLAP) else None,
        overlap_moe_a2a=True if arguments.on(keys.EXPERT_OVERLAP) else None,
        delay_wgrad=True if model.moe and arguments.on(keys.DELAYED_WEIGHTS) else None,
        overlap_shared_experts=_shares(arguments, model),
        moe_dispatcher=dispatcher(arguments) if model.moe else None,
        moe_dispatch_dtype="mxfp8" if model.moe and narrow_tokens(arguments) else None,
        gradient_dtype=gradient_dtype(arguments),
        fp8_recipe="blockwise" if _in_blocks(arguments) else None,
        fp8_param_gather=True if any(map(arguments.on, FEW_BITS_ALONE)) else None,
        moment_dtype=moment_dtype(arguments),
        offload_activation_layers=layers or None,
        **(capacity(arguments) if model.moe else {}),
    )


def capacity(arguments: Arguments) -> dict[str, float | str | bool]:
    """What limits and rounds the rows of experts; a negative factor is none (TC:1837)."""
    factor = arguments.number(keys.CAPACITY)
    padded = any(arguments.on(f"moe_router_padding_for_{name}") for name in ("quantization", "fp8"))
    found: dict[str, float | str | bool] = {"moe_router_padding": True} if padded else {}
    if factor is None or factor < 0:
        return found
    found["moe_capacity_factor"] = factor
    if arguments.on(keys.PADDED):
        found["moe_pad_to_capacity"] = True
    if arguments.text(keys.DROPS) == "position":
        found["moe_token_drop_policy"] = "position"
    return found


def drops_out(arguments: Arguments) -> bool:
    """Is either dropout above nothing?"""
    return any(map(arguments.number, (keys.ATTENTION_DROPOUT, keys.HIDDEN_DROPOUT)))


def graph_kind(arguments: Arguments) -> str:
    """`--cuda-graph-impl`, with the older switches."""
    if arguments.on("enable_cuda_graph"):
        return "local"
    if arguments.on("external_cuda_graph"):
        return "transformer_engine"
    return arguments.text(keys.GRAPH)


def graph_modules(arguments: Arguments) -> tuple[str, ...]:
    """What is captured, with the older spelling; none: whole layers."""
    stated = arguments.texts(keys.GRAPH_MODULES) or arguments.texts("cuda_graph_scope_deprecated")
    return tuple(name for name in stated if not name.startswith("full"))


def _graph(arguments: Arguments) -> str | None:
    kind = graph_kind(arguments)
    return None if kind == "none" else kind if kind == "full_iteration" else "partial"


def _shares(arguments: Arguments, model: ModelSpec) -> bool | None:
    shared = model.moe is not None and model.moe.shared_expert_intermediate_size > 0
    return True if shared and arguments.on(keys.SHARED_OVERLAP) else None


def _group(arguments: Arguments, vpp: int) -> int | None:
    """Null: pp, or nothing is interleaved."""
    size = arguments.count(keys.GROUP)
    return size if vpp > 1 and size not in (0, degree(arguments, keys.PP)) else None


def _gathers(arguments: Arguments, vpp: int) -> bool | None:
    """Gathers of a pipeline without virtual stages run apart where nothing is said."""
    apart = degree(arguments, keys.PP) > 1 and vpp == 1
    if zero_stage(arguments) == 0 or arguments.on("use_torch_fsdp2"):
        return None
    if arguments.on(keys.GATHER_OVERLAP):
        return True if apart else None
    return None if apart else False


def dispatcher(arguments: Arguments) -> Dispatcher | None:
    """Null: an all-to-all; where nothing is stated the runtime gathers all tokens."""
    kind = arguments.text(keys.DISPATCHER)
    if kind == "flex":
        return DISPATCHERS.get(arguments.text(keys.BACKEND))
    return "allgather" if kind == "allgather" else None


def narrow_tokens(arguments: Arguments) -> tuple[str, ...]:
    """Which of the two ways to experts are in 8 bits: of tokens, of gradients."""
    ways = (keys.TOKENS_THERE, keys.GRADIENTS_THERE)
    return tuple(one.flag for one in ways if arguments.text(one) == "mxfp8")


def gradient_dtype(arguments: Arguments) -> GradientType | None:
    """Gradients are summed in fp32 under bf16, under fp16 only where told.

    Source: `megatron/training/arguments.py:1213`; Megatron-FSDP has a type of its own, that of the
    weights by default (arguments.py:3691).
    """
    if arguments.on(keys.FSDP):
        return None if arguments.text(keys.FSDP_GRADIENTS) == "fp32" else "bf16"
    whole = arguments.on(keys.WHOLE_SUMS)
    if arguments.on(keys.FP16):
        return None if whole else "bf16"
    narrow = arguments.on(keys.NARROW_SUMS) or arguments.text("main_grads_dtype") == "bf16"
    return "bf16" if arguments.on(keys.BF16) and narrow else None


def _bucket(arguments: Arguments) -> float | None:
    """MiB of `--ddp-bucket-size` gradients, as wide as they are reduced."""
    size = arguments.count(keys.BUCKET)
    width = BYTES_BF16 if gradient_dtype(arguments) == "bf16" else BYTES_FP32
    return size * width / 2**20 if size else None


def moment_dtype(arguments: Arguments) -> StateType | None:
    """Of both moments, the wider where they differ; null: fp32."""
    types = {*map(arguments.text, (keys.FIRST_MOMENT, keys.SECOND_MOMENT))}
    if not arguments.on(keys.PRECISION_AWARE) or "fp32" in types:
        return None
    return next((one for one in NARROW if one in types), None)


NARROW: tuple[StateType, ...] = ("bf16", "fp16", "fp8")
"""The wider first."""
OPTIMIZERS: Mapping[str, str] = {
    "dist_muon": "dist-muon",
    **{word: name for name, word in RUNTIMES["megatron-lm"].optimizers if name != "dist-muon"},
}
"""Name of an optimizer, by the runtime's word for it."""


def read_optimizer(arguments: Arguments) -> OptimizerSpec:
    """The optimizer; AdamW stands in for one that the cost model does not know."""
    return OptimizerSpec(name=OPTIMIZERS.get(arguments.text(keys.OPTIMIZER), "adamw"))


def stated_exchange(arguments: Arguments) -> ContextExchange:
    """How context ranks meet, as the cost model knows it."""
    stated = arguments.texts(keys.EXCHANGE)
    return EXCHANGES.get(stated[0], "p2p") if stated else "p2p"


def with_exchange(arguments: Arguments, job: Job, layout: Layout) -> Job:
    """The job with the exchange of its context ranks, where it is not what would be written."""
    stated = stated_exchange(arguments)
    if layout.cp == 1 or stated == context_exchange_or_none(job, layout):
        return job
    options = job.options.model_copy(update={"cp_comm_type": stated})
    return job.model_copy(update={"options": options})


@with_traits
def context_exchange_or_none(
    job: Job, traits: RuntimeTraits, layout: Layout
) -> ContextExchange | None:
    """What the exporter would write; null: it refuses the layout."""
    groups = job.model.num_key_value_heads
    if job.model.attention_sinks and groups % (layout.tp * layout.cp):
        return None
    return context_exchange(job, layout, traits)
