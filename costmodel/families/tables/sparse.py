"""Decoders with indexed sparse attention, and those with delta attention beside latent attention.

Source: modeling and configuration code of transformers 5.24, of the `model_type` each; the reports
named with each.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from trainplan.costmodel.architecture import (
    FeedForward,
    IndexerSpec,
    LinearAttentionSpec,
    Mixer,
    MlaSpec,
)
from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.families.attention import latent_attention
from trainplan.costmodel.families.family import BALANCED, Family, Fields
from trainplan.costmodel.families.layers import count_of_layers, listed, named, of_length
from trainplan.costmodel.families.reader import HfConfig
from trainplan.costmodel.families.tables.hybrids import LINEAR_WORDS, equal_heads
from trainplan.costmodel.families.tables.nemotron_h import (
    nemotron,
    nemotron_experts,
    nemotron_feeds,
    nemotron_mixers,
)
from trainplan.costmodel.families.tables.state_spaces import all_but_nth, typed
from trainplan.costmodel.spec import shown

UNTIED: Final[Mapping[str, Fields]] = {"tie_word_embeddings": {}}
"""The code has an output projection of its own whatever the file says."""
Mixers = Sequence[Mixer]
Feeds = Sequence[FeedForward]
SPARSE_WORDS: Final[Mapping[str, Mixer]] = {
    "indexed_attention": "sparse_attention",
    "deepseek_sparse_attention": "sparse_attention",  # before transformers 5.24
}


def _indexer(config: HfConfig) -> Fields:
    return {
        "indexer": IndexerSpec(
            num_heads=config.integer("index_n_heads"),
            head_dim=config.integer("index_head_dim"),
            top_k=config.integer("index_topk"),
        )
    }


def _sparse(config: HfConfig) -> Mixers:
    types = listed(config, "layer_types")
    sparse: list[Mixer] = ["sparse_attention" for _ in range(count_of_layers(config))]
    return named(config, types, SPARSE_WORDS, "layer_types") or sparse


def _sharing(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Layers that take the keys an earlier layer picked."""
    words = listed(config, "indexer_types")
    for word in words:
        if word not in ("full", "shared"):
            raise UnsupportedError(
                f"{config.where}: 'indexer_types' has {shown(word)}; known: full, shared"
            )
    return [{"shares_index": True} if word == "shared" else {} for word in words] or [{}] * len(
        mixers
    )


def _large4(config: HfConfig) -> Fields:
    """The frequencies of the rotation are learned, once for all layers."""
    return {**_indexer(config), "embedding_weights": config.count("qk_rope_head_dim") // 2}


def _large4_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Heads of some layers do not rotate; scales of heads; a norm in front of the indexer."""
    rotated, mla = config.indices("no_rope_layers"), latent_attention(config)
    of_length(config, "no_rope_layers", len(rotated))
    if config.indices("kv_source_layers") != tuple(range(len(mixers))):
        raise UnsupportedError(f"{config.where}: 'kv_source_layers' that differ are not modelled")
    width = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    plain = mla.model_copy(update={"qk_nope_head_dim": width, "qk_rope_head_dim": 0})
    scales = 2 * config.integer("num_attention_heads")
    indexer = 2 * config.integer("index_n_heads") + 2 * config.integer("hidden_size")
    return [
        {
            **shared,
            **({} if rope else {"mla": plain}),
            "layer_weights": scales + (0 if shared else indexer),
        }
        for shared, rope in zip(_sharing(config, mixers, feeds), rotated, strict=True)
    ]


def _streams(config: HfConfig) -> Fields:
    """Hyper-connections: each half of a layer mixes all streams, and so does the end.

    Source: transformers `modeling_hy_v4.py`: two products from all streams to their weights in and
    out, with a bias and a scale of each.
    """
    streams, hidden = config.integer("hc_mult"), config.integer("hidden_size")
    mixed = (streams * hidden, 2 * streams)
    return {
        "side_products": (mixed, mixed),
        "residual_streams": streams,
        "layer_weights": 2 * (2 * streams + 2),
        "embedding_weights": streams * streams * hidden + streams + 1,
        **_indexer(config),
    }


def _kimi_section(config: HfConfig) -> HfConfig | None:
    name = "linear_attn_config"
    return config.with_defaults({name: None}).optional_section(name)


def _kimi_mixers(config: HfConfig) -> Mixers:
    """`layer_types`, or the lists of the published file, which count layers from one."""
    section = _kimi_section(config)
    count = count_of_layers(config)
    if section is None:
        return typed(config, LINEAR_WORDS) or all_but_nth(config, "linear_attention", 4)
    full, linear = section.indices("full_attn_layers"), section.indices("kda_layers")
    if sorted((*full, *linear)) != list(range(1, count + 1)):
        raise SpecError(
            f"{config.where}: 'linear_attn_config.full_attn_layers' and '.kda_layers' do not "
            f"name each of the {count} layers once, from 1"
        )
    return tuple("full_attention" if i + 1 in full else "linear_attention" for i in range(count))


def _kimi(config: HfConfig) -> Fields:
    section = _kimi_section(config)
    published = ("num_heads", "head_dim", "short_conv_kernel_size")
    ours = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    source, names = (section, published) if section else (config, ours)
    heads, width, kernel = (source.integer(name) for name in names)
    config.ignore("head_dim")
    sizes = {**equal_heads(heads, width), "gate_rank": width, "conv_kernel": kernel}
    linear = LinearAttentionSpec.model_validate({"rule": "kda", **sizes})
    return {"position_embedding": "none", "linear_attention": linear}


def _bailing_mixers(config: HfConfig) -> Mixers:
    period = config.integer("layer_group_size")
    return typed(config, LINEAR_WORDS) or all_but_nth(config, "linear_attention", period)


def _bailing(config: HfConfig) -> Fields:
    heads, width = config.integer("linear_num_heads"), config.integer("linear_head_dim")
    sizes = {**equal_heads(heads, width), "conv_kernel": config.integer("linear_conv_kernel_dim")}
    linear = LinearAttentionSpec.model_validate(sizes)
    return {"attention_output_gate": "head", "linear_attention": linear}


def _bailing_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """A decay of every channel, not of every head, of the linear layers."""
    heads, width = config.integer("linear_num_heads"), config.integer("linear_head_dim")
    more = heads * width - heads
    decay = {"side_products": ((config.integer("hidden_size"), more),), "layer_weights": more}
    return [decay if mixer == "linear_attention" else {} for mixer in mixers]


def _axk2(config: HfConfig) -> Fields:
    """Queries from the latent before its norm and behind it, with a gate on the output."""
    rank, heads = config.integer("q_lora_rank"), config.integer("num_attention_heads")
    query = config.integer("qk_nope_head_dim") + config.integer("qk_rope_head_dim")
    value = config.integer("v_head_dim")
    return {**_indexer(config), "side_products": ((rank, heads * query), (2 * rank, heads * value))}


def _axk2_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Low-rank gates on the norms: of both halves, in dense layers of the first alone."""
    hidden, rank = config.integer("hidden_size"), config.integer("gated_norm_rank")
    common = _axk2(config)["side_products"]
    assert isinstance(common, tuple)
    gate = ((hidden, rank), (rank, hidden))
    return [{"side_products": (*common, *gate, *(gate if feed == "moe" else ()))} for feed in feeds]


def _dots3_mixers(config: HfConfig) -> Mixers:
    words: Mapping[str, Mixer] = {**SPARSE_WORDS, "sliding_attention": "sliding_attention"}
    return named(config, listed(config, "layer_types"), words, "layer_types") or _sparse(config)


def _dots3(config: HfConfig) -> Fields:
    config.ignore("per_layer_config")
    indexed = _indexer(config) if "sparse_attention" in _dots3_mixers(config) else {}
    return {**indexed, "layer_weights": config.integer("qk_rope_head_dim")}


def _dots3_each(config: HfConfig, mixers: Mixers, feeds: Feeds) -> Sequence[Fields]:
    """Heads and ranks that `per_layer_config` gives to single layers."""
    section = config.with_defaults({"per_layer_config": None}).optional_section("per_layer_config")
    usual = latent_attention(config)
    known = (*MlaSpec.model_fields, "num_attention_heads", "num_key_value_heads", "head_dim")
    changes: list[dict[str, object]] = [{} for _ in mixers]
    for key in section.values if section else ():
        own = section.section(key) if section else config
        own.ignore("head_dim")
        for name in own.values:
            if name not in known:
                raise UnsupportedError(f"{config.where}: '{own.path}{name}' is not modelled")
        if not key.isdecimal() or int(key) >= len(changes):
            raise SpecError(f"{config.where}: 'per_layer_config' has no layer {shown(key)}")
        sizes = {name: own.integer(name) for name in own.values if name != "head_dim"}
        ranks = {name: size for name, size in sizes.items() if name in MlaSpec.model_fields}
        mla = usual.model_copy(update=ranks)
        changes[int(key)] = {
            **{name: size for name, size in sizes.items() if name not in ranks},
            "mla": mla,
            "layer_weights": mla.qk_rope_head_dim,
            "head_dim": mla.qk_nope_head_dim + mla.qk_rope_head_dim,
        }
    return changes


def _dots3_shared(config: HfConfig) -> Fields:
    each = config.integer("shared_experts_intermediate_size")
    return {"shared_expert_intermediate_size": each * config.count("n_shared_experts")}


SPARSE: Final[Mapping[str, Family]] = {
    "axk2": Family(
        "modeling_axk2.py",
        experts=BALANCED,
        mixers=_sparse,
        more=_axk2,
        each=_axk2_each,
        ignores=("gated_norm_rank",),
    ),
    "bailing_hybrid": Family(
        "modeling_bailing_hybrid.py",
        experts=BALANCED,
        flags=UNTIED,
        mixers=_bailing_mixers,
        more=_bailing,
        each=_bailing_each,
        ignores=("short_conv_kernel_size", "kda_safe_gate", "kda_lower_bound", "layer_group_size"),
    ),
    "deepseek_v32": Family(
        "arXiv:2512.02556, section 2",
        experts=BALANCED,
        flags={"mlp_bias": {}},
        mixers=_sparse,
        more=_indexer,
    ),
    "dots3_note_text": Family(
        "modeling_dots3_note.py",
        model={"attention_output_gate": "head"},
        experts=BALANCED,
        flags={"mlp_bias": {}},
        mixers=_dots3_mixers,
        more=_dots3,
        each=_dots3_each,
        more_experts=_dots3_shared,
        off=("attention_bias",),
    ),
    "glm_moe_dsa": Family(
        "modeling_glm_moe_dsa.py",
        experts=BALANCED,
        flags={"mlp_bias": {}},
        mixers=_sparse,
        more=_indexer,
        each=_sharing,
    ),
    "hy_v4": Family(
        "modeling_hy_v4.py",
        model={"attention_sinks": True, "attention_output_gate": "elementwise"},
        experts=BALANCED,
        mixers=_sparse,
        more=_streams,
        each=_sharing,
        ignores=("hc_magnitude", "hc_eps", "learnable_sink_init", "swiglu_limit"),
    ),
    "kimi_linear": Family(
        "arXiv:2510.26692, section 3",
        experts=BALANCED,
        flags=UNTIED,
        mixers=_kimi_mixers,
        more=_kimi,
    ),
    "mistral_large4_text": Family(
        "modeling_mistral_large4.py",
        flags={"mlp_bias": {}},
        mixers=_sparse,
        more=_large4,
        each=_large4_each,
        off=("attention_bias",),
        ignores=("no_rope_layers",),
    ),
    "nemotron_h": Family(
        "arXiv:2504.03624, section 2; modeling_nemotron_h.py",
        model={"gated_mlp": False},
        experts=BALANCED,
        mixers=nemotron_mixers,
        feed_forwards=nemotron_feeds,
        more=nemotron,
        more_experts=nemotron_experts,
        off=("mlp_bias",),
        ignores=(
            *("mamba_hidden_act", "mamba_ssm_cache_dtype", "moe_shared_expert_overlap"),
            "sliding_window",
        ),
    ),
}
"""`model_type` -> what its code fixes."""
