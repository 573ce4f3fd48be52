"""A model of the same kind as that of a plan, small enough for a step in a second."""

from collections.abc import Iterator, Mapping

from trainplan.costmodel.architecture import ModelSpec, MoeSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.job import DEFAULT_RUNTIME, Job, RuntimeOptions, TrainingSpec

HIDDEN, HEADS, HEAD_DIM, INTERMEDIATE, EXPERT = 64, 8, 8, 128, 128
VOCABULARY, LENGTH, EXPERTS = 1024, 32, 8
"""Sizes that eight ranks divide; the vocabulary needs no padding on any of them."""
GROUPS = 4
"""Key-value heads where queries share them."""
SEQUENCES = 8
"""Of a batch, in micro batches: eight replicas have one each."""
PLAIN: Mapping[str, str] = {
    "rope_scaling": "scaled rotations",
    "position_embedding_offset": "unused rows of positions",
    "unrotated_layers": "layers without positions",
    "swiglu_limit": "clamped gated units",
    "attn_logit_softcapping": "soft-capped scores",
    "final_logit_softcapping": "soft-capped logits",
    "scale_embeddings": "scaled embeddings",
    "scaled_branches": "scaled branches",
    "attention_sinks": "attention sinks",
    "num_nextn_predict_layers": "multi-token prediction",
    "nextn_layers": "layers of multi-token prediction",
    "nextn_shared": "shared multi-token prediction",
    "tower": "the tower next to the text",
}
"""Fields that the tiny model leaves as they are by themselves: no layout cuts what they say."""
MASKS = ("sliding_attention", "chunked_attention")
"""Mixers that are full attention with a mask."""


def tiny_job(job: Job, layers: int, micro_batch_size: int) -> Job:
    """The job of the tiny model with so many layers, in fp32, on a cluster still to be named."""
    return job.model_copy(
        update={
            "model": tiny_model(job.model, layers),
            "training": TrainingSpec(
                seq_length=LENGTH, global_batch_size=SEQUENCES * micro_batch_size, precision="fp32"
            ),
            "runtime": DEFAULT_RUNTIME,
            "options": RuntimeOptions(overlap_grad_reduce=True, overlap_param_gather=True),
            "reserve_bytes": 0,
            "reserve_host_bytes": 0,
        }
    )


def tiny_model(model: ModelSpec, layers: int) -> ModelSpec:
    """Its kinds of parts at tiny sizes."""
    plain = {name: ModelSpec.model_fields[name].get_default() for name in PLAIN}
    changes = {
        **plain,
        **_mixers(model),
        "name": f"tiny {model.name}",
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS
        if model.num_key_value_heads < model.num_attention_heads and model.mla is None
        else HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 2 * LENGTH,
        "partial_rotary_factor": max(model.partial_rotary_factor, 2 / HEAD_DIM),
        "mla": None,
        "moe": tiny_experts(model) if model.moe else None,
    }
    return ModelSpec.model_validate({**dict(model), **changes})


def _mixers(model: ModelSpec) -> Mapping[str, object]:
    """What mixes tokens; masks are left out, and a list of layers with no other difference.

    Raises:
        SpecError: Something else than attention.
    """
    others = sorted(set(model.mixers) - {"full_attention", *MASKS})
    if others:
        raise SpecError(
            f"{model.name} has layers of {', '.join(others)}: only models whose layers all attend "
            "are shrunk and run; verify another plan"
        )
    return {
        "mixer": "full_attention",
        "layers": None,
        "layer_kinds": (),
        "sliding_window": None,
        "attention_chunk_size": None,
    }


def tiny_experts(model: ModelSpec) -> MoeSpec:
    """Eight experts, placed as the model's are: behind a dense layer, in every layer or some."""
    moe, placed = model.moe, model.moe_layers
    assert moe is not None
    first = (
        1 if placed and not placed[0] and placed[-1] and all(placed[placed.index(True) :]) else 0
    )
    every = 1 if first or all(placed) else 2
    groups = 2 if moe.n_group and moe.n_group > 1 else None
    return moe.model_copy(
        update={
            "num_experts": EXPERTS,
            "num_experts_per_tok": min(moe.num_experts_per_tok, 2),
            "mean_experts_per_tok": None,
            "moe_intermediate_size": EXPERT,
            "shared_expert_intermediate_size": EXPERT if moe.shared_expert_intermediate_size else 0,
            "first_k_dense_replace": first,
            "moe_layer_freq": every,
            "n_group": groups,
            "topk_group": 1 if groups else None,
        }
    )


def simplified(job: Job) -> Iterator[str]:
    """What the tiny job has in a plainer form that every layout cuts alike, a line each."""
    model, training = job.model, job.training
    for name, words in PLAIN.items():
        if getattr(model, name) != ModelSpec.model_fields[name].get_default():
            yield f"{words}: no layout cuts them"
    masked = sorted(set(model.mixers) & set(MASKS))
    if masked:
        yield f"{', '.join(masked)}: run with full attention, which is cut the same way"
    if training.precision != "fp32":
        yield f"{training.precision}: run in fp32, where sums in another order stay close"


def left_out(job: Job) -> Iterator[str]:
    """What of the job the tiny one does not have, a line each."""
    model, training = job.model, job.training
    if model.mla:
        yield "latent attention: only Transformer Engine has it whole on every rank; run with heads"
    if training.lengths is not None:
        yield "sequences of unequal length: run with equal ones"
    if training.optimizer.name != "adamw":
        yield f"{training.optimizer.name}: run with adamw"
