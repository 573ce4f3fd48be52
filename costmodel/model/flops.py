"""Model FLOPs of one step: what MFU counts. No recomputation; causal attention at half."""

from __future__ import annotations

from trainplan.costmodel.model.params import (
    attention_matrix_params,
    expert_params,
    mlp_params,
    query_columns,
    shared_expert_params,
    value_columns,
    window_span,
)
from trainplan.costmodel.spec import Job, ModelSpec


def matrix_params_per_token(model: ModelSpec) -> float:
    """Weights one token is multiplied with, all layers, head and MTP modules; no embedding."""
    h, mla, moe = model.hidden_size, model.mla, model.moe
    down = 0
    if mla:
        down = h * ((mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim)
    attention = attention_matrix_params(model) + down
    dense = attention + mlp_params(model, model.intermediate_size, bias=False)
    sparse = dense
    if moe:
        active = moe.num_experts_per_tok * expert_params(model, moe)
        sparse = attention + active + shared_expert_params(model, moe) + h * moe.num_experts
    head = h * model.vocab_size
    module = sparse + 2 * h * h + head
    return (
        model.num_dense_layers * dense
        + model.num_moe_layers * sparse
        + head
        + model.num_nextn_predict_layers * module
    )


def attention_flop_per_token(model: ModelSpec, seq_length: int) -> float:
    """Forward FLOPs of the attention cores for one token, all layers, causal.

    Source: Narayanan et al., arXiv:2104.04473, appendix; halved by the mask; windows cut it.
    """
    windowed = model.num_sliding_window_layers
    full = model.num_hidden_layers + model.num_nextn_predict_layers - windowed
    span = full * seq_length / 2 + windowed * window_span(model, seq_length)
    return 2.0 * span * (query_columns(model) + value_columns(model))


def model_flop_per_step(job: Job) -> float:
    """Forward and backward FLOPs of one optimizer step.

    Source: 2 FLOPs a weight and token forward, twice that backward; Narayanan et al. as above.
    """
    seq = job.training.seq_length
    forward = 2 * matrix_params_per_token(job.model) + attention_flop_per_token(job.model, seq)
    return 3.0 * forward * job.training.tokens_per_step
