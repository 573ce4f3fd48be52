"""What megatron-core cannot train here, told before anything starts; imports no torch."""

from collections.abc import Iterator
from importlib.util import find_spec

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.runtimes import all_linear_biased
from trainplan.profiler.train.request import TrainingRequest

PARTS = frozenset(
    {
        *("name", "model_type", "read_by_fields", "num_hidden_layers", "hidden_size"),
        *("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
        *("vocab_size", "max_position_embeddings", "position_embedding", "rope_theta"),
        *("partial_rotary_factor", "norm", "norm_eps", "activation", "gated_mlp", "qkv_bias"),
        *("attention_output_bias", "mlp_bias", "qk_norm", "tie_word_embeddings", "moe"),
        *("layers", "layer_kinds", "feed_forward"),
    }
)
"""Fields of a model that are told to megatron-core; the others have to be as they are by
themselves."""
EXPERT_PARTS = frozenset(
    {
        *("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"),
        *("shared_expert_intermediate_size", "first_k_dense_replace", "moe_layer_freq"),
        *("router_bias", "router_score_function", "n_group", "topk_group"),
        *("routed_scaling_factor", "shared_expert_gate"),
    }
)
"""As `PARTS`, of experts."""
REPEATED = frozenset({"core_attn", "mlp", "moe", "shared_experts"})
"""Modules whose recomputation is run. Source: Megatron Core 0.16.1
`transformer/transformer_config.py`, "only supported with moe_grouped_gemm"."""
UNSUMMED = "megatron-core 0.16 does not sum gradients of experts over ranks that hold the same"
PRECISIONS = ("fp32", "bf16")


def refusal(request: TrainingRequest) -> str | None:
    """What of it cannot be run, and what to do; null: all of it can."""
    return next(_refusals(request), None)


def _refusals(request: TrainingRequest) -> Iterator[str]:
    layout, job = request.layout, request.job
    training = job.training
    for name in unsupported_parts(job.model):
        yield f"the model's {name}: the plain layers of megatron-core have no such part"
    if layout.cp > 1:
        yield "cp > 1: context parallelism of megatron-core needs Transformer Engine"
    if layout.zero_stage > 1:
        yield f"ZeRO-{layout.zero_stage}: the FSDP of Megatron needs GPUs and Transformer Engine"
    if training.precision not in PRECISIONS:
        yield f"precision {training.precision}: it needs Transformer Engine; use fp32 or bf16"
    if training.optimizer.name not in {"adamw", "sgd"}:
        yield f"optimizer {training.optimizer.name}: only adamw and sgd are run"
    if training.optimizer.name == "sgd" and layout.zero_stage:
        yield "sgd with ZeRO-1: the distributed optimizer of megatron-core 0.16 has Adam alone"
    if training.lengths is not None:
        yield "sequences of unequal lengths: packed attention needs Transformer Engine"
    wanted = "interleaved" if layout.vpp > 1 else "1f1b"
    if layout.schedule != wanted:
        yield f"schedule {layout.schedule}: megatron-core has 1f1b and interleaved"
    yield from _of_the_rest(request)


def _of_the_rest(request: TrainingRequest) -> Iterator[str]:
    layout, training = request.layout, request.job.training
    offloads = layout.offload != type(layout.offload)() or layout.offload_modules
    if offloads:
        yield "offload: it copies between host and GPU, and here is one memory"
    if layout.tiled_loss or layout.tiled_mlp:
        yield "tiled loss or MLP: megatron-core has none"
    if request.job.model.moe and layout.ep == 1 and layout.etp != layout.tp:
        yield f"ep 1 with etp {layout.etp} and tp {layout.tp}: {UNSUMMED}"
    if request.job.model.moe and layout.tp > 1 and not layout.sequence_parallel:
        yield "experts with tp and without sequence parallelism: megatron-core requires it"
    modules = set(layout.recompute_modules) - REPEATED
    if modules:
        named = ", ".join(sorted(modules))
        yield f"recomputation of {named}: it needs grouped experts or Transformer Engine"
    if training.global_batch_size % (layout.dp * layout.micro_batch_size):
        yield "a global batch that is no multiple of dp * micro_batch_size"
    if layout.dp_replicate > 1 and find_spec("einops") is None:
        yield "dp_replicate > 1: megatron-core needs einops for it; pip install einops"
    if request.job.options.dropout:
        yield "dropout: its masks differ from layout to layout; leave the option out"


def unsupported_parts(model: ModelSpec) -> Iterator[str]:
    """Names of fields that say something nobody is told."""
    for name, field in ModelSpec.model_fields.items():
        if name not in PARTS and getattr(model, name) not in (
            field.get_default(),
            "full_attention",
        ):
            yield name
    for kind in model.kinds:
        if kind.mixer != "full_attention":
            yield f"mixer {kind.mixer}"
        if kind.feed_forward == "none":
            yield "layers without feed-forward"
    if model.position_embedding == "alibi":
        yield "position_embedding alibi"
    if model.qk_norm not in ("none", "head"):
        yield f"qk_norm {model.qk_norm}"
    biased = (model.attention_output_bias, model.mlp_bias)
    if any(biased) and not all_linear_biased(model):
        yield "biases on some linear layers"
    if model.moe:
        yield from _unsupported_of_experts(model)


def _unsupported_of_experts(model: ModelSpec) -> Iterator[str]:
    moe = model.moe
    assert moe is not None
    for name, field in type(moe).model_fields.items():
        if name not in EXPERT_PARTS and getattr(moe, name) != field.get_default():
            yield f"moe.{name}"
