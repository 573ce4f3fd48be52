"""Parts of a model that few families have, and that no exporter with layers of its own writes.

Exporters that hand a model's own code to a runtime (DeepSpeed, Accelerate) need none of this.
"""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec

ATTENDS = ("full_attention", "sliding_attention")
"""Mixers that exporters write."""
MIXERS = {
    "chunked_attention": "attention in chunks",
    "sparse_attention": "attention to keys an indexer picks",
    "linear_attention": "linear attention",
    "mamba": "state-space layers",
    "attention_and_mamba": "attention and state space side by side",
    "convolution": "short convolutions for attention",
    "none": "layers without attention",
}
"""Mixer -> what the message calls it."""
OWN_SIZES = (
    *("num_attention_heads", "num_key_value_heads", "head_dim", "value_head_dim"),
    *("intermediate_size", "attention_sinks", "mla", "key_value_projections", "side_products"),
    *("layer_weights", "own_weights", "shares_index", "wide_products"),
    "key_compression",
)
"""Fields that a kind of layer may have of its own."""


def unwritten_layers(model: ModelSpec) -> Iterator[str]:
    """Layers that a runtime may have and no exporter writes, as noun phrases."""
    for mixer in dict.fromkeys(model.mixers):
        if mixer not in ATTENDS:
            yield MIXERS[mixer]
    if any(kind.feed_forward == "none" for kind in model.kinds):
        yield "layers without an MLP"
    if model.attention_output_gate != "none":
        yield "a gate on the output of attention (attention_output_gate)"
    if model.moe and model.moe.latent_size:
        yield "experts in a latent width (latent_size)"


def rare_parts(model: ModelSpec) -> Iterator[str]:
    """Those the model has and no runtime, as noun phrases."""
    yield from _layers(model)
    yield from _attention(model)
    yield from _around(model)
    yield from _alongside(model)


def _layers(model: ModelSpec) -> Iterator[str]:
    for kind in model.layer_kinds:
        for name in OWN_SIZES:
            if getattr(kind, name) is not None:
                yield f"layers of their own {name} (kind {kind.name!r})"
    if model.side_products:
        yield "side products of both halves of a layer (side_products)"
    if model.own_weights is not None:
        yield "layers with the weights of an earlier one (own_weights)"
    if model.layer_weights:
        yield "weights of a layer in none of its products (layer_weights)"


def _attention(model: ModelSpec) -> Iterator[str]:
    if model.value_head_dim not in (None, model.head_dim):
        yield "values narrower or wider than keys (value_head_dim)"
    if model.key_value_projections != "both":
        yield "attention without keys or values of its own (key_value_projections)"
    if model.attention_output_gate == "head":
        yield "a gate on the output of attention by head (attention_output_gate)"
    if model.low_rank:
        yield "queries and output of attention through a low rank (low_rank)"
    if model.key_compression:
        yield "attention to compressed keys (key_compression)"
    if model.qk_norm == "each":
        yield "norms of queries and keys with weights for each head (qk_norm = 'each')"
    if model.unrotated_layers:
        yield f"positions in all layers but {model.unrotated_layers} (unrotated_layers)"
    if model.position_embedding == "alibi":
        yield "positions of kind 'alibi'"


def _around(model: ModelSpec) -> Iterator[str]:
    if model.norm_weights != "all":
        yield f"norms that learn {_learnt(model)} (norm_weights = {model.norm_weights!r})"
    if model.shared_norm:
        yield "one norm for attention and MLP (shared_norm)"
    if model.embedding_norm:
        yield "a norm behind the token embedding (embedding_norm)"
    if model.embedding_weights:
        yield "more weights than the token table (embedding_weights)"
    if model.head_bias:
        yield "a bias on the logits (head_bias)"
    if model.scaled_branches:
        yield "fixed factors on embeddings, branches or logits (scaled_branches)"


def _alongside(model: ModelSpec) -> Iterator[str]:
    if model.residual_streams > 1:
        yield "a residual of several streams (residual_streams)"
    if model.wide_products or (model.moe and model.moe.wide_latent):
        yield "products in 16 bits among narrower ones (wide_products, wide_latent)"
    if model.nextn_layers:
        yield "several layers of a multi-token-prediction module (nextn_layers)"
    if model.nextn_shared:
        yield "multi-token-prediction modules of the same weights (nextn_shared)"
    if model.moe and model.moe.num_zero_experts:
        yield "experts without weights (num_zero_experts)"


def _learnt(model: ModelSpec) -> str:
    return "nothing" if model.norm_weights == "none" else "a scale and no bias"
