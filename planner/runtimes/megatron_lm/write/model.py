"""Options for the shape of the network, attention and mixture of experts apart."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.runtimes import (
    RUNTIMES,
    RuntimeTraits,
    all_linear_biased,
    is_hybrid,
    uncommon_parts,
)
from trainplan.planner.launch import Argument, option
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write.hybrid import SPEC

DROPOUT = 0.1
"""Where a run drops anything out. Source: megatron/training/arguments.py, the default of both."""
VOCAB_MULTIPLE = 128
"""The embedding is padded to a multiple of this times tp (the runtime's default)."""


def model_arguments(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    """Depth, widths, norms, activation, biases, embedding and head."""
    model, training = job.model, job.training
    _refuse(job, traits)
    if is_hybrid(model):
        yield keys.SPEC(*SPEC)
    else:
        yield keys.LAYERS(model.num_hidden_layers)
    yield keys.HIDDEN(model.hidden_size)
    yield keys.FFN(model.intermediate_size)
    yield keys.HEADS(model.num_attention_heads)
    yield keys.LENGTH(training.seq_length)
    yield keys.MAX_POSITIONS(_max_positions(model, training))
    yield keys.VOCABULARY(model.vocab_size)
    yield option("model", "--make-vocab-size-divisible-by", VOCAB_MULTIPLE)
    yield keys.NORM(NORMS[model.norm])
    yield keys.EPSILON(model.norm_eps)
    yield from activation_arguments(model)
    yield from bias_arguments(model)
    if not model.tie_word_embeddings:
        yield keys.UNTIED()
    if model.num_nextn_predict_layers and not is_hybrid(model):
        yield keys.PREDICTIONS(model.num_nextn_predict_layers)
    dropout = DROPOUT if traits.kernels.dropout else 0.0
    yield keys.HIDDEN_DROPOUT(dropout)
    yield keys.ATTENTION_DROPOUT(dropout)


NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}


def activation_arguments(model: ModelSpec) -> Iterator[Argument]:
    """Activation of the MLP; the runtime's default is GELU without a gate."""
    kind = (model.activation, model.gated_mlp)
    if model.model_type == "gpt_oss" and kind == ("silu", True):
        # Clamped, with an offset: OpenAI, gpt-oss model card, arXiv:2508.10925, section 2.2.
        yield keys.QUICK_GEGLU()
        yield option("model", "--glu-linear-offset", 1.0)
        if model.swiglu_limit is not None:
            yield keys.CLAMP(model.swiglu_limit)
    elif kind == ("silu", True):
        yield keys.SWIGLU()
    elif kind == ("relu2", False):
        yield keys.SQUARED_RELU()
        yield keys.GELU_FUSION.off()
    elif kind == ("gelu", False) or (kind == ("gelu_tanh", False) and not all_linear_biased(model)):
        yield keys.GELU_FUSION.off()


def bias_arguments(model: ModelSpec) -> Iterator[Argument]:
    """Biases: on all linear layers, on queries, keys and values only, or nowhere."""
    if all_linear_biased(model):
        return
    yield keys.BIASES.off()
    if model.qkv_bias:
        yield keys.QKV_BIAS()


def _max_positions(model: ModelSpec, training: TrainingSpec) -> int:
    if model.position_embedding != "learned":
        return max(model.max_position_embeddings, training.seq_length)
    if training.seq_length > model.max_position_embeddings:
        raise UnsupportedError(
            f"seq_length = {training.seq_length} exceeds the {model.max_position_embeddings} "
            "learned positions of the model; shorten it"
        )
    return model.max_position_embeddings


def _refuse(job: Job, traits: RuntimeTraits) -> None:
    """Features without an option, in the runtime that the options are for."""
    missing = sorted(uncommon_parts(job.model) - traits.layers)
    feature = missing[0] if missing else RUNTIMES["megatron-lm"].refuses(job.model)
    if feature:
        named = traits.name if missing else "megatron-lm"
        raise UnsupportedError(
            f"{named} cannot express {feature}; train this model with another runtime, or "
            "change the model description"
        )
