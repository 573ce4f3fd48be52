"""Dense decoders with RMSNorm that differ from a Llama in few points, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.families.family import (
    GROUPED,
    HEAD,
    NO_BIASES,
    NO_MLP_BIAS,
    QKV,
    Family,
    Fields,
)
from trainplan.costmodel.families.layers import all_full, count_of_layers, unrotated
from trainplan.costmodel.families.reader import HfConfig

plain = partial(Family, experts=None, mixers=all_full)
"""No experts, and full attention in every layer, whatever else the file names."""
WINDOW_OF_QWEN: Final[Fields] = {
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
GLM_4: Final = plain(
    "modeling_glm4.py; arXiv:2406.12793, section 2",
    model={"norm_position": "both"},
    flags={"attention_bias": QKV, **NO_MLP_BIAS},
    defaults={"attention_bias": True, "rms_norm_eps": 1.5625e-07, "partial_rotary_factor": 0.5},
    needs=("head_dim", *GROUPED),
)


def _sub_norms(config: HfConfig) -> Fields:
    """Norms in front of the output and down projections."""
    inner = config.integer("intermediate_size") + config.integer("hidden_size")
    return {"layer_weights": inner}


def _lambdas(config: HfConfig) -> Fields:
    """Two vectors for queries and two for keys."""
    width = config.optional_integer("head_dim")
    heads = config.integer("num_attention_heads")
    return {"layer_weights": 4 * (width or config.integer("hidden_size") // heads)}


def _delayed(config: HfConfig) -> Fields:
    """The input of the MLP is scaled by two products of the delay, of rank 32."""
    hidden = config.integer("hidden_size")
    return {"side_products": ((hidden, 32), (32, hidden))}


def _dynamic_mask(config: HfConfig) -> Fields:
    """Scales of both residuals, and the product that makes the mask from the values."""
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    groups = config.optional_integer("num_key_value_heads") or heads
    bias = groups if config.boolean("attention_bias") else 0
    return {
        "side_products": ((groups * (hidden // heads), groups),),
        "layer_weights": 2 * hidden + groups + bias,
    }


def _modernbert(config: HfConfig) -> Fields:
    """A norm behind the embedding stands for that of the first attention; a product at the head."""
    hidden = config.integer("hidden_size")
    whole = config.boolean("norm_bias")
    return {
        "norm": "layernorm",
        "norm_weights": "all" if whole else "scale",
        "embedding_weights": hidden**2 + hidden * (2 if whole else 1),
    }


def _modernbert_slides(config: HfConfig) -> tuple[bool, ...]:
    """All but every third, from the first."""
    period = config.with_defaults({"global_attn_every_n_layers": 3})
    every = period.integer("global_attn_every_n_layers")
    return tuple(i % every != 0 for i in range(count_of_layers(config)))


def _square_output(config: HfConfig) -> Fields:
    """The output projection is square, so the heads together are as wide as the model."""
    width = config.optional_integer("head_dim")
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    if width and width * heads != hidden:
        raise SpecError(
            f"{config.where}: 'head_dim' = {width} times 'num_attention_heads' = {heads} is not "
            f"'hidden_size' = {hidden}; correct one of them"
        )
    return {}


def _pattern(config: HfConfig) -> tuple[bool, ...]:
    """`LLLG` or a period; the last layer of each is global."""
    pattern = config.values.get("sliding_window_pattern", 4)
    config.ignore("sliding_window_pattern")
    layers = count_of_layers(config)
    if isinstance(pattern, str):
        return tuple(pattern[i % len(pattern)] == "L" for i in range(layers))
    if not isinstance(pattern, int) or isinstance(pattern, bool) or pattern < 1:
        raise config.wrong("sliding_window_pattern", pattern, "positive integer or word of L and G")
    return tuple((i + 1) % pattern != 0 for i in range(layers))


def upper_layers(config: HfConfig) -> tuple[bool, ...]:
    """Layers from `max_window_layers` on, which are those that slide."""
    first = config.count("max_window_layers")
    return tuple(i >= first for i in range(count_of_layers(config)))


def stated_window(config: HfConfig) -> Fields:
    """`max_window_layers` is checked where the file lists its layers, too."""
    config.count("max_window_layers")
    return {}


DENSE: Final[Mapping[str, Family]] = {
    "bitnet": Family("arXiv:2504.12285, section 2", more=_sub_norms),
    "diffllama": Family("arXiv:2410.05258, section 2.1", more=_lambdas),
    "doge": Family(
        "modeling_doge.py",
        model=HEAD,
        more=_dynamic_mask,
        experts_if="is_moe",
        off=("is_moe",),
        ignores=("keep_window_size",),
    ),
    "exaone4": Family(
        "arXiv:2507.11407, section 2.1",
        model={"norm_position": "post", **HEAD},
        flags={"attention_bias": {}},
        slides=_pattern,
        full_unrotated=True,
    ),
    "glm4": GLM_4,
    "glm4v_text": replace(GLM_4, needs=()),
    "glm_image_text": replace(GLM_4, needs=()),
    "glm_ocr_text": replace(GLM_4, needs=(), defaults={**GLM_4.defaults, "attention_bias": False}),
    "helium": Family("modeling_helium.py", flags={"attention_bias": QKV}, more=_square_output),
    "llama": plain("modeling_llama.py; arXiv:2307.09288, arXiv:2407.21783"),
    "mistral": Family(
        "arXiv:2310.06825, section 2",
        experts=None,
        flags=NO_BIASES,
        defaults={"sliding_window": 4096},
        needs=GROUPED,
    ),
    "modernbert-decoder": Family(
        "arXiv:2412.13663; modeling_modernbert_decoder.py",
        window="local_attention",
        slides=_modernbert_slides,
        flags={"decoder_bias": {"head_bias": True}},
        more=_modernbert,
        off=("classifier_bias", "mlp_bias"),
        ignores=("global_attn_every_n_layers", "sliding_window"),
        notes=("the product in front of the output projection is counted, not priced",),
    ),
    "olmo2": plain(
        "arXiv:2501.00656, section 2",
        model={"norm_position": "post", "qk_norm": "full"},
        flags=NO_MLP_BIAS,
        defaults={"rms_norm_eps": 1e-5},
    ),
    "olmo3": Family(
        "arXiv:2512.13961, section 3.2",
        model={"norm_position": "post", "qk_norm": "full"},
        slides=lambda config: [(i + 1) % 4 != 0 for i in range(count_of_layers(config))],
    ),
    "phi3": Family(
        "modeling_phi3.py; arXiv:2404.14219, section 2",
        experts=None,
        flags=NO_BIASES,
        defaults={"rms_norm_eps": 1e-5},
    ),
    "qwen2": Family(
        "modeling_qwen2.py; arXiv:2407.10671, section 2.2",
        model=QKV,
        experts=None,
        flags=NO_BIASES,
        slides=upper_layers,
        more=stated_window,
        defaults=WINDOW_OF_QWEN,
        needs=GROUPED,
    ),
    "qwen3": Family(
        "modeling_qwen3.py; arXiv:2505.09388, section 2",
        model=HEAD,
        experts=None,
        flags=NO_MLP_BIAS,
        slides=upper_layers,
        more=stated_window,
        defaults=WINDOW_OF_QWEN,
        needs=("head_dim", *GROUPED),
    ),
    "smollm3": Family("modeling_smollm3.py", more=unrotated, ignores=("sliding_window",)),
    "voxtral_realtime_text": Family("modeling_voxtral_realtime.py", more=_delayed),
}
"""`model_type` -> what its code fixes."""
