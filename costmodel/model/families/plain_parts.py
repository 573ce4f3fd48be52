"""Fields of dense decoders that their files and code give together.

Source: transformers 5.24, `modeling_*.py` of the `model_type` that a name stands for.
"""

from __future__ import annotations

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.model.families.family import Fields
from trainplan.costmodel.model.families.placement import count_of_layers, listed, of_length
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.spellings import spelled


def rotated_part(config: HfConfig) -> Fields:
    """The share of a head that `rotary_dim` rotates."""
    heads, hidden = config.integer("n_head"), config.integer("n_embd")
    rotated = config.with_defaults({"rotary_dim": None}).optional_integer("rotary_dim")
    return {"partial_rotary_factor": min(1.0, rotated * heads / hidden) if rotated else 1.0}


def sub_norms(config: HfConfig) -> Fields:
    """Norms in front of the output and down projections."""
    inner = config.integer("intermediate_size") + config.integer("hidden_size")
    return {"layer_weights": inner}


def lambdas(config: HfConfig) -> Fields:
    """Two vectors for queries and two for keys."""
    width = config.optional_integer("head_dim")
    heads = config.integer("num_attention_heads")
    return {"layer_weights": 4 * (width or config.integer("hidden_size") // heads)}


def dynamic_mask(config: HfConfig) -> Fields:
    """Scales of both residuals, and the product that makes the mask from the values."""
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    groups = config.optional_integer("num_key_value_heads") or heads
    bias = groups if config.boolean("attention_bias") else 0
    return {
        "side_products": ((groups * (hidden // heads), groups),),
        "layer_weights": 2 * hidden + groups + bias,
    }


def normed_heads(config: HfConfig) -> Fields:
    """LayerNorm with a bias on queries and keys."""
    if not config.boolean("qk_layernorm"):
        return {}
    width = config.integer("hidden_size") // config.integer("num_attention_heads")
    return {"qk_norm": "head", "layer_weights": 2 * width}


def four_times(config: HfConfig) -> Fields:
    """An MLP four times as wide as the model."""
    return {"intermediate_size": 4 * config.integer(spelled(config, "hidden_size"))}


def bloom(config: HfConfig) -> Fields:
    """No length is built in: 2048 tokens are what it was trained with."""
    config = config.with_defaults({"seq_length": 2048})
    return {"max_position_embeddings": config.integer("seq_length"), **four_times(config)}


def cpmant(config: HfConfig) -> Fields:
    """Embeddings of prompts and segments, and a bias on scores for each distance."""
    hidden, segments = config.integer("hidden_size"), config.integer("segment_types")
    prompts = config.integer("prompt_types") * config.integer("prompt_length")
    distances = config.integer("position_bias_num_buckets") + segments**2
    tables = (prompts + segments) * hidden
    return {"embedding_weights": tables + distances * config.integer("num_attention_heads")}


def modernbert(config: HfConfig) -> Fields:
    """A norm behind the embedding stands for that of the first attention; a product at the head."""
    hidden = config.integer("hidden_size")
    whole = config.boolean("norm_bias")
    return {
        "norm": "layernorm",
        "norm_weights": "all" if whole else "scale",
        "embedding_weights": hidden**2 + hidden * (2 if whole else 1),
    }


def modernbert_slides(config: HfConfig) -> tuple[bool, ...]:
    """All but every third, from the first."""
    period = config.with_defaults({"global_attn_every_n_layers": 3})
    every = period.integer("global_attn_every_n_layers")
    return tuple(i % every != 0 for i in range(count_of_layers(config)))


def square_output(config: HfConfig) -> Fields:
    """The output projection is square, so the heads together are as wide as the model."""
    width = config.optional_integer("head_dim")
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    if width and width * heads != hidden:
        raise SpecError(
            f"{config.where}: 'head_dim' = {width} times 'num_attention_heads' = {heads} is not "
            f"'hidden_size' = {hidden}; correct one of them"
        )
    return {}


def mpt(config: HfConfig) -> Fields:
    """An MLP `expansion_ratio` times as wide as the model."""
    ratio = config.integer("expansion_ratio")
    return {"intermediate_size": ratio * config.integer("d_model")}


def japanese(config: HfConfig) -> Fields:
    """An MLP so many times as wide as the model; the last layer alone has an output bias."""
    ratio = config.integer("intermediate_multiple_size")
    hidden = config.integer("hidden_size")
    return {"intermediate_size": ratio * hidden, "embedding_weights": hidden}


def pattern(config: HfConfig) -> tuple[bool, ...]:
    """`LLLG` or a period; the last layer of each is global."""
    pattern = config.values.get("sliding_window_pattern", 4)
    config.ignore("sliding_window_pattern")
    layers = count_of_layers(config)
    if isinstance(pattern, str):
        return tuple(pattern[i % len(pattern)] == "L" for i in range(layers))
    if not isinstance(pattern, int) or isinstance(pattern, bool) or pattern < 1:
        raise config.wrong("sliding_window_pattern", pattern, "positive integer or word of L and G")
    return tuple((i + 1) % pattern != 0 for i in range(layers))


def local(config: HfConfig) -> tuple[bool, ...]:
    """Every other layer is local unless `attention_layers` lists them."""
    words = listed(config, "attention_layers")
    config.ignore("attention_types")
    if words:
        return tuple(word == "local" for word in words)
    return tuple(i % 2 == 1 for i in range(count_of_layers(config)))


def unrotated(config: HfConfig) -> Fields:
    """Layers that `no_rope_layers` (1: rotated) leaves without positions, or every n-th."""
    defaults = {"no_rope_layers": None, "no_rope_layer_interval": 4}
    config = config.with_defaults(defaults)
    rotated, count = config.indices("no_rope_layers"), count_of_layers(config)
    if not rotated:
        return {"unrotated_layers": count // config.integer("no_rope_layer_interval")}
    of_length(config, "no_rope_layers", len(rotated))
    return {"unrotated_layers": rotated.count(0)}
