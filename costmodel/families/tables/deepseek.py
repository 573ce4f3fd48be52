"""DeepSeek-V2 to V4 and Kimi K2, by `model_type`.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each. V4 has one key for all heads that is its value too, compressed keys, four streams.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from trainplan.costmodel.architecture import FeedForward, IndexerSpec, LowRankSpec, Mixer
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.attention import latent_attention
from trainplan.costmodel.families.experts import BALANCED_WITHOUT_LOSS
from trainplan.costmodel.families.family import NO_MLP_BIAS, Family, Fields
from trainplan.costmodel.families.layers import all_full, count_of_layers, listed, of_length
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.spec import shown


def _leading_dense(config: HfConfig) -> Sequence[bool]:
    """Experts in all layers but the first."""
    if config.integer("moe_layer_freq") != 1:
        raise UnsupportedError(f"{config.where}: 'moe_layer_freq' other than 1 is not modelled")
    first, count = config.count("first_k_dense_replace"), count_of_layers(config)
    if first > count:
        raise SpecError(
            f"{config.where}: 'first_k_dense_replace' = {first} exceeds the {count} layers; "
            "lower it"
        )
    return [i < first for i in range(count)]


def _latent(config: HfConfig) -> Fields:
    """Latent attention; the head is that of a query, its rotated and plain part together."""
    mla = latent_attention(config)
    return {"mla": mla, "head_dim": mla.qk_nope_head_dim + mla.qk_rope_head_dim}


HEAVY: Final = "heavily_compressed_attention"
SPARSE: Final = "compressed_sparse_attention"
WINDOW: Final = "sliding_attention"
OF_RATIO: Final = {0: WINDOW, 4: SPARSE, 128: HEAVY}
"""Tokens that one compressed key stands for -> layer type, in published files."""
USUAL_RATES: Final = {SPARSE: 4, HEAVY: 128}


def _types(config: HfConfig) -> Sequence[str]:
    """Layer types, or `compress_ratios` of published files, or two heavy ones and then turns."""
    count = count_of_layers(config)
    words = listed(config, "layer_types")
    ratios = config.with_defaults({"compress_ratios": None}).indices("compress_ratios")[:count]
    if not words and ratios:
        of_length(config, "compress_ratios", len(ratios))
        for ratio in ratios:
            if ratio not in OF_RATIO:
                raise UnsupportedError(
                    f"{config.where}: 'compress_ratios' has {ratio}; known: 0, 4, 128"
                )
        words = tuple(OF_RATIO[ratio] for ratio in ratios)
    for word in words:
        if word not in (HEAVY, SPARSE, WINDOW):
            raise UnsupportedError(
                f"{config.where}: 'layer_types' has {shown(word)}, which is not modelled; known: "
                f"{HEAVY}, {SPARSE}, {WINDOW}"
            )
    usual = [HEAVY, HEAVY, *((SPARSE if i % 2 else HEAVY) for i in range(max(count - 2, 0)))]
    return words or usual[:count]


def _mixers(config: HfConfig) -> Sequence[Mixer]:
    return [
        "sparse_attention" if word == SPARSE else "sliding_attention" for word in _types(config)
    ]


def _feeds(config: HfConfig) -> Sequence[FeedForward]:
    return ["moe" for _ in range(count_of_layers(config))]


def _rates(config: HfConfig) -> Mapping[str, int]:
    """Tokens that one compressed key stands for."""
    section = config.with_defaults({"compress_rates": None}).optional_section("compress_rates")
    if section is None:
        return USUAL_RATES
    return {
        name: section.integer(name) if name in section.values else rate
        for name, rate in USUAL_RATES.items()
    }


def _check_experts(config: HfConfig) -> None:
    """A hash picks those of some layers, which has no weights."""
    config.with_defaults({"num_hash_layers": 0}).count("num_hash_layers")
    for word in listed(config, "mlp_layer_types"):
        if word not in ("hash_moe", "moe"):
            raise UnsupportedError(
                f"{config.where}: 'mlp_layer_types' has {shown(word)}; known: hash_moe, moe"
            )


def _model(config: HfConfig) -> Fields:
    """Low ranks, and the mixing of streams in front of each half and at the end."""
    streams, hidden = config.integer("hc_mult"), config.integer("hidden_size")
    groups = config.integer("o_groups")
    weights = streams * (streams + 2)
    mixed = (streams * hidden, weights)
    window = {} if "sliding_attention" in _mixers(config) else {"sliding_window": None}
    sparse = "sparse_attention" in _mixers(config)
    return {
        **window,
        "intermediate_size": config.integer("moe_intermediate_size"),
        "low_rank": LowRankSpec(
            query_rank=config.integer("q_lora_rank"),
            output_rank=groups * config.integer("o_lora_rank"),
            output_groups=groups,
        ),
        "indexer": _indexer(config) if sparse else None,
        "residual_streams": streams,
        "side_products": (mixed, mixed),
        "layer_weights": 2 * (weights + 3),
        "embedding_weights": streams * streams * hidden + streams + 1,
    }


def _indexer(config: HfConfig) -> IndexerSpec:
    return IndexerSpec(
        num_heads=config.integer("index_n_heads"),
        head_dim=config.integer("index_head_dim"),
        top_k=config.integer("index_topk"),
    )


def _shared(config: HfConfig) -> Fields:
    """One shared expert, whatever `n_shared_experts` says, as the code has it."""
    return {"shared_expert_intermediate_size": config.integer("moe_intermediate_size")}


def _each(
    config: HfConfig, mixers: Sequence[Mixer], feeds: Sequence[FeedForward]
) -> Sequence[Fields]:
    """Compressors of each layer: keys and gates, a number for each place of a window, norms.

    Those of the sparse layers overlap, and their indexer has its own; beside the queries, key and
    head weights that `IndexerSpec` counts it has a wider key, a gate and other norms.
    """
    hidden, width = config.integer("hidden_size"), config.integer("head_dim")
    index, rates = config.integer("index_head_dim"), _rates(config)
    common = _model(config)
    sides, weights = common["side_products"], common["layer_weights"]
    _check_experts(config)
    assert isinstance(sides, tuple)
    assert isinstance(weights, int)
    norms = config.integer("q_lora_rank") + width
    own: dict[str, tuple[tuple[tuple[int, int], ...], int]] = {
        WINDOW: ((), 0),
        HEAVY: (((hidden, width), (hidden, width)), rates[HEAVY] * width + width),
        SPARSE: (
            ((hidden, 2 * width), (hidden, 2 * width), (hidden, 3 * index)),
            rates[SPARSE] * 2 * width + width + rates[SPARSE] * 2 * index + index - 2 * index,
        ),
    }
    return [
        {
            "key_compression": rates.get(word),
            "side_products": (*sides, *own[word][0]),
            "layer_weights": weights + norms + own[word][1],
        }
        for word in _types(config)
    ]


DEEPSEEK_V4: Final = Family(
    "DeepseekV4Config, modeling_deepseek_v4.py",
    model={"key_value_projections": "keys", "num_key_value_heads": 1, "attention_sinks": True},
    experts={"router_score_function": "sigmoid", "router_bias": False},
    more_experts=_shared,
    flags={"attention_bias": {}},
    off=("mlp_bias",),
    mixers=_mixers,
    feed_forwards=_feeds,
    more=_model,
    each=_each,
    ignores=(
        *("num_key_value_heads", "hc_sinkhorn_iters", "hc_eps", "compress_rope_theta"),
        *("num_hash_layers", "qk_rope_head_dim", "sliding_window"),
        *("compress_ratios", "compress_rates"),
    ),
)
DEEPSEEK_V2: Final = Family(
    "modeling_deepseek_v2.py; arXiv:2405.04434, section 2",
    mixers=all_full,
    more=_latent,
    dense=_leading_dense,
    flags=NO_MLP_BIAS,
    off=("mlp_bias",),
    defaults={
        **{"moe_layer_freq": 1, "norm_topk_prob": False, "scoring_func": "softmax"},
        **{"topk_method": "greedy", "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 0},
    },
    needs=(
        *("q_lora_rank", "kv_lora_rank", "n_routed_experts", "n_shared_experts"),
        *("moe_intermediate_size", "first_k_dense_replace", "intermediate_size"),
    ),
)
DEEPSEEK_V3: Final = replace(
    DEEPSEEK_V2,
    source="arXiv:2412.19437, section 2; arXiv:2507.20534, section 2.3 (Kimi K2)",
    defaults={
        **{"moe_layer_freq": 1, "norm_topk_prob": True, "scoring_func": "sigmoid"},
        **{"topk_method": BALANCED_WITHOUT_LOSS, "routed_scaling_factor": 2.5},
        "num_nextn_predict_layers": 0,
    },
)
DEEPSEEK: Final[Mapping[str, Family]] = {
    "deepseek_v2": DEEPSEEK_V2,
    "deepseek_v3": DEEPSEEK_V3,
    "deepseek_v4": DEEPSEEK_V4,
    "kimi_k2": DEEPSEEK_V3,
}
"""`model_type` -> what its code fixes."""
