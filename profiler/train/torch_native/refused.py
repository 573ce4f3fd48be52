"""What this trainer does not run, said before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from trainplan.costmodel.axes import RULES
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.runtimes.executes import executed
from trainplan.costmodel.spec import ModelSpec
from trainplan.profiler.train.request import TrainingRequest

RUNTIMES = ("torchtitan", "fsdp2", "accelerate")
"""Runtimes whose plans it trains."""
PRECISIONS = ("fp32", "bf16")


def refuse(request: TrainingRequest, world_size: int) -> None:
    """Check a request.

    Raises:
        UnsupportedError: It cannot be trained here; the message says why.
    """
    for reason in reasons(request, world_size):
        raise UnsupportedError(f"the trainer 'torch' does not run this: {reason}")


def reasons(request: TrainingRequest, world_size: int) -> Iterator[str]:
    """Everything that keeps a request from being trained."""
    job, layout = request.job, request.layout
    if job.runtime not in RUNTIMES:
        yield f"plans of {job.runtime}; it trains those of {', '.join(RUNTIMES)}"
        return
    if layout.world_size != world_size:
        yield f"a layout of {layout.world_size} ranks on {world_size} processes; give as many"
    if job.training.precision not in PRECISIONS:
        yield f"precision {job.training.precision}; use {' or '.join(PRECISIONS)}"
    yield from (f"{feature}; choose another model" for feature in _features(job.model))
    if layout.recompute == "selective":
        yield "recompute=selective; use none or full"
    if layout.offload.optimizer or layout.offload.parameters or layout.offload.checkpoints:
        yield "offload; keep everything on the device"
    if layout.offload_modules or layout.tiled_loss or layout.tiled_mlp or layout.cp_heads > 1:
        yield "offload_modules, tiled_loss, tiled_mlp or cp_heads; leave them out"
    if job.training.optimizer.name != "adamw":
        yield f"the optimizer {job.training.optimizer.name}; use adamw"
    traits, table = traits_of(job), LayoutTable.of([layout])
    for rule in (*RULES, *traits.rules, *executed(traits)):
        if rule.broken(job, table)[0]:
            yield rule.says


def _features(model: ModelSpec) -> Iterator[str]:
    """What its decoder does not build."""
    plain = len(model.kinds) == 1 and model.mixer == "full_attention"
    lacking = {
        "experts": model.moe is not None,
        "latent attention": model.mla is not None,
        "layers of several kinds or without full attention": not plain,
        "norms other than RMSNorm before each half": model.norm != "rmsnorm"
        or model.norm_position != "pre"
        or not model.final_norm
        or model.norm_weights != "all",
        "attention and MLP in parallel": model.parallel_residual,
        "biases": model.qkv_bias
        or model.attention_output_bias
        or model.mlp_bias
        or model.head_bias,
        "norms of queries and keys": model.qk_norm != "none",
        "positions other than whole, unscaled rotary ones": model.position_embedding != "rope"
        or model.partial_rotary_factor != 1.0
        or model.rope_scaling is not None,
        "soft-capped logits": model.attn_logit_softcapping is not None
        or model.final_logit_softcapping is not None,
        "sinks or gates of attention": model.attention_sinks
        or model.attention_output_gate != "none",
        "an embedding of another width": model.embedding_size not in (None, model.hidden_size),
        "multi-token prediction": model.num_nextn_predict_layers > 0,
        "a tower": model.tower is not None,
        "adapters or frozen weights": model.trained is not None,
        f"the activation {model.activation}": model.activation == "xielu",
    }
    return (feature for feature, has in lacking.items() if has)
