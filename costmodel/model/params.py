"""Exact parameter counts, per part of the model, and model FLOPs of one step.

Tied embeddings count once; multi-token-prediction modules are left out.
Source of every shape: the Hugging Face implementation of the family named in `model_type`.
"""

from __future__ import annotations

from trainplan.costmodel.spec import Job, ModelSpec, MoeSpec
from trainplan.costmodel.spec.trained import trains_head


def norm_params(model: ModelSpec) -> int:
    """Weights (and biases, for LayerNorm) of one norm over `hidden_size`."""
    return model.hidden_size * (2 if model.norm == "layernorm" else 1)


def norms_per_layer(model: ModelSpec) -> int:
    """Norms over `hidden_size` in one layer: before each of its halves, or before and behind."""
    halves = (model.mixer != "none") + (model.feed_forward != "none")
    return halves * (2 if model.norm_position == "both" else 1)


def window_span(model: ModelSpec, seq_length: int) -> float:
    """Tokens that a token attends to on average in a layer with a sliding window.

    Source: derived: token t sees min(t, w) tokens, the mean over s of them is w (1 - w / 2s); a
    window of s tokens or more is a plain causal mask, s / 2.
    """
    window = min(model.sliding_window or seq_length, seq_length)
    return window * (1 - window / (2 * seq_length))


def query_columns(model: ModelSpec) -> int:
    """Output width of the query projection, all heads."""
    if model.mla:
        return model.num_attention_heads * (model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim)
    return model.num_attention_heads * model.head_dim


def value_columns(model: ModelSpec) -> int:
    """Input width of the attention output projection, all heads."""
    if model.mla:
        return model.num_attention_heads * model.mla.v_head_dim
    return model.num_attention_heads * model.head_dim


def attention_matrix_params(model: ModelSpec) -> int:
    """Weights of the attention projections that tensor parallelism divides.

    Source: Vaswani et al. 2017, section 3.2; DeepSeek-V2, arXiv:2405.04434, section 2.1 (MLA).
    """
    h, mla = model.hidden_size, model.mla
    output = value_columns(model) * h
    if mla is None:
        return (
            h * (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
            + output
        )
    query = (mla.q_lora_rank or h) * query_columns(model)
    key_value = (
        mla.kv_lora_rank * model.num_attention_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    )
    return query + key_value + output


def attention_replicated_params(model: ModelSpec) -> int:
    """Attention weights every tensor-parallel rank holds: MLA down-projections, norms, biases.

    Source: Megatron-LM `multi_latent_attention.py` (down-projections are duplicated) and
    `attention.py` (q and k norms, row-parallel bias).
    """
    h, mla = model.hidden_size, model.mla
    count = h if model.attention_output_bias else 0
    if mla:
        count += h * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
        count += h * mla.q_lora_rank + mla.q_lora_rank if mla.q_lora_rank else 0
        if model.qkv_bias:
            count += (mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim
        return count
    if model.qk_norm == "head":
        count += 2 * model.head_dim
    if model.qk_norm == "full":
        count += (model.num_attention_heads + model.num_key_value_heads) * model.head_dim
    return count


def attention_bias_params(model: ModelSpec) -> int:
    """Biases of the column-parallel attention projections and the per-head sinks."""
    count = model.num_attention_heads if model.attention_sinks else 0
    if model.qkv_bias and model.mla is None:
        count += (model.num_attention_heads + 2 * model.num_key_value_heads) * model.head_dim
    return count


def mlp_params(model: ModelSpec, width: int, *, bias: bool) -> int:
    """Weights and biases of one MLP of the given width, gated or not."""
    ups = 2 if model.gated_mlp else 1
    weights = (ups + 1) * model.hidden_size * width
    return weights + (ups * width + model.hidden_size if bias else 0)


def router_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Router weights of one MoE layer, with the shared expert's gate."""
    per_expert = model.hidden_size + (1 if moe.router_bias else 0)
    return moe.num_experts * per_expert + (model.hidden_size if moe.shared_expert_gate else 0)


def expert_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Weights of one routed expert."""
    return mlp_params(model, moe.moe_intermediate_size, bias=moe.expert_bias)


def shared_expert_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Weights of all shared experts of one layer."""
    width = moe.shared_expert_intermediate_size
    return mlp_params(model, width, bias=moe.expert_bias) if width else 0


def attention_params(model: ModelSpec) -> int:
    """Everything in one layer outside its MLP: projections, biases, norms."""
    return (
        attention_matrix_params(model)
        + attention_replicated_params(model)
        + attention_bias_params(model)
        + norms_per_layer(model) * norm_params(model)
    )


def feed_forward_params(model: ModelSpec, *, active: bool = False) -> int:
    """The second half of a layer of one kind; `active`: only the experts one token visits."""
    moe = model.moe
    if model.feed_forward == "none":
        return 0
    if moe is None:
        return mlp_params(model, model.intermediate_size, bias=model.mlp_bias)
    experts = moe.num_experts_per_tok if active else moe.num_experts
    routed = experts * expert_params(model, moe)
    return router_params(model, moe) + shared_expert_params(model, moe) + routed


def layer_params(model: ModelSpec, *, active: bool = False) -> int:
    """One layer of a model with one kind; `active`: only the experts one token visits."""
    return attention_params(model) + feed_forward_params(model, active=active)


def _all_layers_params(model: ModelSpec, *, active: bool = False) -> int:
    """Every layer of a model."""
    each = [layer_params(kind, active=active) for kind in model.kinds]
    return sum(each[kind] for kind in model.kind_of_layer)


def embedding_params(model: ModelSpec) -> int:
    """Token table, learned position table and projections to and from `embedding_size`."""
    h, width = model.hidden_size, model.embedding_size or model.hidden_size
    count = model.vocab_size * width
    if model.position_embedding == "learned":
        count += (model.max_position_embeddings + model.position_embedding_offset) * h
    return count + (2 * width * h if width != h else 0)


def head_params(model: ModelSpec) -> int:
    """Output projection (0 when tied) and the final norm."""
    width = model.embedding_size or model.hidden_size
    projection = 0 if model.tie_word_embeddings else model.vocab_size * width
    return projection + (norm_params(model) if model.final_norm else 0)


def num_parameters(model: ModelSpec) -> int:
    """Parameters of the whole model, tied embeddings once, MTP modules left out."""
    return embedding_params(model) + _all_layers_params(model) + head_params(model)


def num_active_parameters(model: ModelSpec) -> int:
    """Parameters one token visits; equals `num_parameters` for a dense model."""
    idle = _all_layers_params(model) - _all_layers_params(model, active=True)
    return num_parameters(model) - idle


def layer_matrix_params_per_token(model: ModelSpec) -> float:
    """Weights that one token is multiplied with in a layer of a model with one kind."""
    h, mla, moe = model.hidden_size, model.mla, model.moe
    down = 0
    if mla:
        down = h * ((mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim)
    attention = attention_matrix_params(model) + down
    if model.feed_forward == "none":
        return attention
    if moe is None:
        return attention + mlp_params(model, model.intermediate_size, bias=False)
    active = moe.num_experts_per_tok * expert_params(model, moe)
    return attention + active + shared_expert_params(model, moe) + h * moe.num_experts


def matrix_params_per_token(model: ModelSpec) -> float:
    """Weights one token is multiplied with, all layers, head and MTP modules; no embedding."""
    h, each = model.hidden_size, [layer_matrix_params_per_token(kind) for kind in model.kinds]
    head = h * model.vocab_size
    module = each[-1] + 2 * h * h + head
    layers = sum(each[kind] for kind in model.kind_of_layer)
    return layers + head + model.num_nextn_predict_layers * module


def attention_span(model: ModelSpec, seq_length: int) -> float:
    """Tokens that a token attends to on average in a layer of a model with one kind.

    Source: Narayanan et al., arXiv:2104.04473, appendix, halved by the mask; `window_span`.
    """
    if model.mixer == "sliding_attention":
        return window_span(model, seq_length)
    return seq_length / 2


def attention_flop_per_token(model: ModelSpec, seq_length: int) -> float:
    """Forward FLOPs of the attention cores for one token, all layers, causal.

    Source: Narayanan et al., arXiv:2104.04473, appendix; `attention_span`.
    """
    each = [
        2.0 * attention_span(kind, seq_length) * (query_columns(kind) + value_columns(kind))
        for kind in model.kinds
    ]
    modules = model.num_nextn_predict_layers * each[-1]
    return sum(each[kind] for kind in model.kind_of_layer) + modules


def model_flop_per_step(job: Job) -> float:
    """Forward and backward FLOPs of one optimizer step.

    Source: 2 FLOPs a weight and token forward, twice that backward; Narayanan et al. as above.
    Where not every weight is trained: `trained_flop_per_token`. The output projection counts for
    tokens of the loss alone.
    """
    seq = job.training.seq_length
    unread = (1 - job.training.loss_tokens) * job.model.hidden_size * job.model.vocab_size
    if job.model.trained is not None:
        unread *= 2.0 * (2 + trains_head(job.model))
        whole = trained_flop_per_token(job.model, seq)
        return (whole - unread) * job.training.tokens_per_step
    forward = (
        -2 * unread
        + 2 * matrix_params_per_token(job.model)
        + attention_flop_per_token(job.model, seq)
    )
    return 3.0 * forward * job.training.tokens_per_step


def trained_flop_per_token(model: ModelSpec, seq_length: int) -> float:
    """FLOPs for one token of a model of which not every weight is trained; adapters left out.

    A frozen matrix has no product for its own gradient, a layer that no gradient reaches runs
    forward alone.
    Source: 2 FLOPs a weight and token for each of up to three products; `attention_flop_per_token`.
    """
    each = []
    for kind in model.kinds:
        trained = kind.trained
        passes = 1 + (trained is None or trained.passes_gradient)
        products = 2.0 * layer_matrix_params_per_token(kind) * (passes + (trained is None))
        span, columns = attention_span(kind, seq_length), query_columns(kind) + value_columns(kind)
        each.append(products + 2.0 * span * columns * (1 + 2 * (passes - 1)))
    h = model.hidden_size
    head = 2.0 * (2 + trains_head(model)) * h * model.vocab_size
    module = each[-1] + 4.0 * (2 + trains_head(model)) * h * h + head
    layers = sum(each[kind] for kind in model.kind_of_layer)
    return layers + head + model.num_nextn_predict_layers * module
