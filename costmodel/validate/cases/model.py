"""The model of a measured run: by the sizes its record states, or of a preset that it names."""

from trainplan.costmodel.architecture import MlaSpec, ModelSpec, MoeSpec, placed_layers
from trainplan.costmodel.documents import MeasuredRun, RunModel
from trainplan.costmodel.presets import preset, preset_names
from trainplan.costmodel.validate.cases import names
from trainplan.costmodel.validate.cases.needed import needed
from trainplan.costmodel.validate.cases.unstated import (
    activation,
    as_published,
    dense_intermediate_size,
)
from trainplan.costmodel.validate.cases.wide import in_16_bits

DEFAULT_VOCAB = 51200
"""Padded GPT-2 vocabulary, where a run does not state its own. Source: Megatron-LM defaults."""
SIZES = ("num_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
"""A record that states none of them names its model alone."""


def model_of(run: MeasuredRun) -> ModelSpec:
    """The model that a run trained.

    Raises:
        Skip: The record does not state a size, and names no preset.
    """
    stated, name = run.model, preset_of(run.model)
    if name is None:
        model = _as_stated(stated, needed(run.training.seq_length, "training.seq_length"))
    else:
        changes: dict[str, object] = {"name": stated.name}
        if stated.mtp_layers is not None:
            changes["num_nextn_predict_layers"] = stated.mtp_layers
        model = preset(name).model_copy(update=changes)
    return in_16_bits(model, run.training.wide) if run.training.wide else model


def preset_of(model: RunModel) -> str | None:
    """The preset of that name, of a record without sizes; null: there is none."""
    sized = any(getattr(model, size) is not None for size in SIZES)
    name = model.name.lower()
    return name if not sized and name in preset_names() else None


def _as_stated(model: RunModel, seq_length: int) -> ModelSpec:
    heads = needed(model.num_attention_heads, "model.num_attention_heads")
    hidden = needed(model.hidden_size, "model.hidden_size")
    gated = model.gated_mlp is not False
    mla = MlaSpec.model_validate(model.mla.model_dump()) if model.mla else None
    moe = None
    if model.moe:
        moe = MoeSpec(
            num_experts=model.moe.num_experts,
            num_experts_per_tok=model.moe.top_k,
            moe_intermediate_size=model.moe.expert_intermediate_size,
            shared_expert_intermediate_size=model.moe.shared_expert_intermediate_size or 0,
            first_k_dense_replace=model.moe.num_dense_layers or 0,
        )
    layers = needed(model.num_layers, "model.num_layers")
    window, mixers = names.windows_called(model.sliding_window_layers, layers)
    found = ModelSpec(
        name=model.name,
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=needed(dense_intermediate_size(model), "model.intermediate_size"),
        num_attention_heads=heads,
        num_key_value_heads=model.num_key_value_heads or heads,
        head_dim=model.head_dim or hidden // heads,
        vocab_size=model.vocab_size or DEFAULT_VOCAB,
        max_position_embeddings=seq_length,
        position_embedding="rope" if gated else "learned",
        norm="rmsnorm" if gated else "layernorm",
        activation=activation(model),
        gated_mlp=gated,
        tie_word_embeddings=bool(model.tie_word_embeddings),
        sliding_window=window,
        mla=mla,
        num_nextn_predict_layers=model.mtp_layers or 0,
        **placed_layers(mixers, moe),
    )
    return as_published(found)
