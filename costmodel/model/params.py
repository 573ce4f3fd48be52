"""Exact parameter counts, per part of the model.

Tied embeddings count once; multi-token-prediction modules are left out.
Source of every shape: the Hugging Face implementation of the family named in `model_type`.
"""

from trainplan.costmodel.architecture import Mixer, ModelSpec, MoeSpec
from trainplan.costmodel.mixers import (
    CONVOLUTION,
    INDEXER,
    LINEAR_ATTENTION,
    MAMBA,
    NOTHING,
    MixerCounts,
    attention_span,
)
from trainplan.costmodel.towers import tower_params


def norm_params(model: ModelSpec) -> int:
    """Weights (and biases, for LayerNorm) of one norm over `hidden_size`."""
    tensors = {"none": 0, "scale": 1, "all": 2 if model.norm == "layernorm" else 1}
    return model.hidden_size * tensors[model.norm_weights]


def halves(model: ModelSpec) -> int:
    """Parts of a layer with a residual addition of their own: mixer, feed-forward, or both."""
    return (model.mixer != "none") + (model.feed_forward != "none")


def norms_per_layer(model: ModelSpec) -> int:
    """Norms over `hidden_size` in one layer: before each of its halves, or before and behind."""
    norms = halves(model) - model.shared_norm
    return norms * (2 if model.norm_position == "both" else 1)


def query_columns(model: ModelSpec) -> int:
    """Output width of the query projection, all heads."""
    if model.mla:
        return model.num_attention_heads * (model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim)
    return model.num_attention_heads * model.head_dim


def value_columns(model: ModelSpec) -> int:
    """Input width of the attention output projection, all heads."""
    if model.mla:
        return model.num_attention_heads * model.mla.v_head_dim
    return model.num_attention_heads * (model.value_head_dim or model.head_dim)


def side_params(model: ModelSpec) -> int:
    """Weights of the products beside both halves of a layer, and its weights in no product."""
    return sum(inputs * outputs for inputs, outputs in model.side_products) + model.layer_weights


def grouped_columns(model: ModelSpec) -> int:
    """Width of keys and values of all their heads, without latent attention."""
    return model.num_key_value_heads * (model.head_dim + (model.value_head_dim or model.head_dim))


def projected_columns(model: ModelSpec) -> int:
    """Output width of the projections to queries, keys and values, without latent attention."""
    value = model.num_key_value_heads * (model.value_head_dim or model.head_dim)
    missing = {"both": 0, "keys": value, "none": grouped_columns(model)}
    return query_columns(model) + grouped_columns(model) - missing[model.key_value_projections]


def output_gate_columns(model: ModelSpec) -> int:
    """Output width of the projection to the gate on the attention's output."""
    each = {"none": 0, "head": model.num_attention_heads, "elementwise": value_columns(model)}
    return each[model.attention_output_gate]


def attention_matrix_params(model: ModelSpec) -> int:
    """Weights of the attention projections that tensor parallelism divides.

    Source: Vaswani et al. 2017, section 3.2; DeepSeek-V2, arXiv:2405.04434, section 2.1 (MLA).
    """
    h, mla = model.hidden_size, model.mla
    output = (value_columns(model) + output_gate_columns(model)) * h
    if model.low_rank and mla is None:
        low, queries, values = model.low_rank, query_columns(model), value_columns(model)
        inputs = h * (projected_columns(model) - queries) + low.query_rank * queries
        rank = low.output_rank
        out = rank * (values // low.output_groups + h) if rank else values * h
        return inputs + out + h * output_gate_columns(model)
    if mla is None:
        return h * projected_columns(model) + output
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
    count += h * model.low_rank.query_rank if model.low_rank else 0
    if model.qk_norm == "head":
        count += (1 if model.key_value_projections == "none" else 2) * model.head_dim
    if model.qk_norm in ("each", "full"):
        count += (model.num_attention_heads + model.num_key_value_heads) * model.head_dim
    return count


def attention_bias_params(model: ModelSpec) -> int:
    """Biases of the column-parallel attention projections and the per-head sinks."""
    count = model.num_attention_heads if model.attention_sinks else 0
    if model.qkv_bias and model.mla is None:
        count += projected_columns(model)
        count += output_gate_columns(model)
    return count


def mlp_params(model: ModelSpec, width: int, *, bias: bool, hidden: int | None = None) -> int:
    """Weights and biases of one MLP of the given width, gated or not; null: on the hidden size."""
    ups, hidden = 2 if model.gated_mlp else 1, hidden or model.hidden_size
    weights = (ups + 1) * hidden * width
    return weights + (ups * width + hidden if bias else 0)


def router_choices(moe: MoeSpec) -> int:
    """Experts a router chooses from, those without weights too."""
    return moe.num_experts + moe.num_zero_experts


def router_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Router weights of one MoE layer, with the shared expert's gate; a balancing bias is none."""
    rows = router_choices(moe) + moe.shared_expert_gate
    return rows * model.hidden_size + moe.counted_router_bias


def expert_hidden(model: ModelSpec) -> int:
    """Width of what goes into routed experts and comes out of them."""
    return (model.moe and model.moe.latent_size) or model.hidden_size


def expert_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Weights of one routed expert."""
    width, bias = moe.moe_intermediate_size, moe.expert_bias
    return mlp_params(model, width, bias=bias, hidden=moe.latent_size)


def latent_met_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Weights of the projections around routed experts that work in a latent width.

    Source: transformers `modeling_nemotron_h.py`, NemotronHMoE; Megatron Core `moe/moe_layer.py`,
    fc1_latent_proj and fc2_latent_proj, which every tensor-parallel rank holds whole.
    """
    return 2 * model.hidden_size * (moe.latent_size or 0)


def latent_params(model: ModelSpec, moe: MoeSpec) -> int:
    """As `latent_met_params`, with biases."""
    bias = moe.latent_size + model.hidden_size if moe.latent_size and model.mlp_bias else 0
    return latent_met_params(model, moe) + bias


def shared_expert_params(model: ModelSpec, moe: MoeSpec) -> int:
    """Weights of all shared experts of one layer."""
    width = moe.shared_expert_intermediate_size
    return mlp_params(model, width, bias=moe.expert_bias) if width else 0


def mixer_params(model: ModelSpec) -> int:
    """Everything in one layer outside its MLP: what mixes tokens, and all norms."""
    mixer = MIXER_COUNTS[model.mixer]
    norms = norms_per_layer(model) * norm_params(model)
    return mixer.divided(model) + mixer.whole(model) + norms + side_params(model)


def feed_forward_params(model: ModelSpec, *, active: bool = False) -> int:
    """The second half of a layer of one kind; `active`: only the experts one token visits."""
    moe = model.moe
    if model.feed_forward == "none":
        return 0
    if moe is None:
        return mlp_params(model, model.intermediate_size, bias=model.mlp_bias)
    experts = moe.rows_per_token if active else moe.num_experts
    routed = round(experts * expert_params(model, moe)) + latent_params(model, moe)
    return router_params(model, moe) + shared_expert_params(model, moe) + routed


def layer_params(model: ModelSpec, *, active: bool = False) -> int:
    """One layer of a model with one kind; `active`: only the experts one token visits."""
    if model.own_weights is not None:
        return model.own_weights
    return mixer_params(model) + feed_forward_params(model, active=active)


def _all_layers_params(model: ModelSpec, *, active: bool = False) -> int:
    """Every layer of a model."""
    each = [layer_params(kind, active=active) for kind in model.kinds]
    return sum(each[kind] for kind in model.kind_of_layer)


def embedding_params(model: ModelSpec) -> int:
    """Token and learned position table, projections to and from `embedding_size`, norm."""
    h, width = model.hidden_size, model.embedding_size or model.hidden_size
    count = model.vocab_size * width + model.embedding_weights
    count += norm_params(model) if model.embedding_norm else 0
    if model.position_embedding == "learned":
        count += (model.max_position_embeddings + model.position_embedding_offset) * h
    return count + (2 * width * h if width != h else 0)


def head_params(model: ModelSpec) -> int:
    """Output projection (0 when tied) with its bias, and the final norm."""
    width = model.embedding_size or model.hidden_size
    projection = 0 if model.tie_word_embeddings else model.vocab_size * width
    projection += model.vocab_size if model.head_bias else 0
    return projection + (norm_params(model) if model.final_norm else 0)


def num_parameters(model: ModelSpec) -> int:
    """Parameters of the whole model, tied embeddings once, MTP modules left out."""
    tower = tower_params(model.tower) if model.tower else 0
    return embedding_params(model) + _all_layers_params(model) + head_params(model) + tower


def num_active_parameters(model: ModelSpec) -> int:
    """Parameters one token visits; equals `num_parameters` for a dense model."""
    idle = _all_layers_params(model) - _all_layers_params(model, active=True)
    return num_parameters(model) - idle


def core_dims(model: ModelSpec) -> tuple[int, int]:
    """Widths of a query and of a value of one head, as the core of attention sees them.

    Sparse latent attention reads latents, which all heads share.
    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1 (in the MQA mode of MLA); Megatron Core
    `experimental_attention_variant/absorbed_mla.py`.
    """
    mla, heads = model.mla, model.num_attention_heads
    if model.mixer == "sparse_attention" and mla:
        return mla.kv_lora_rank + mla.qk_rope_head_dim, mla.kv_lora_rank
    return query_columns(model) // heads, value_columns(model) // heads


def attention_core_flop(model: ModelSpec, seq_length: int) -> float:
    """Forward FLOPs of one layer's attention core for one token, causal.

    Source: Narayanan et al., arXiv:2104.04473, appendix; `attention_span`.
    """
    columns = model.num_attention_heads * sum(core_dims(model))
    return 2.0 * attention_span(model, seq_length) * columns


def _divided(model: ModelSpec) -> int:
    return attention_matrix_params(model) + attention_bias_params(model)


ATTENTION = MixerCounts(_divided, attention_replicated_params, attention_core_flop)
MIXER_COUNTS: dict[Mixer, MixerCounts] = {
    "full_attention": ATTENTION,
    "sliding_attention": ATTENTION,
    "chunked_attention": ATTENTION,
    "sparse_attention": ATTENTION + INDEXER,
    "bidirectional_attention": ATTENTION,
    "linear_attention": LINEAR_ATTENTION,
    "mamba": MAMBA,
    "attention_and_mamba": ATTENTION + MAMBA,
    "convolution": CONVOLUTION,
    "none": NOTHING,
}
"""What each mixer """


def met_weights(model: ModelSpec, tp: int, experts: float | None) -> float:
    """Weights of matrices of a layer that a token meets on a rank.

    Args:
        model: Of the layer.
        tp: Tensor-parallel degree.
        experts: Experts it meets there; null: its MLP is dense.
    """
    attention = attention_matrix_params(model) / tp
    if experts is None or not model.moe:
        return attention + mlp_params(model, model.intermediate_size, bias=False) / tp
    shared = shared_expert_params(model, model.moe) / tp
    return attention + experts * expert_params(model, model.moe) + shared
