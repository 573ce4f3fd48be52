"""What is trained: the shape of a decoder-only transformer.

Field names follow Hugging Face `config.json`; where families disagree on a name, the most common
one is used and the adapter in `costmodel.families` translates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainplan.costmodel.architecture.layers import (
    MOST_LAYERS,
    SIZES,
    ConvolutionSpec,
    Count,
    FeedForward,
    IndexerSpec,
    KeyValues,
    LayerKind,
    LinearAttentionSpec,
    LowRankSpec,
    Mixer,
    MlaSpec,
    NormWeights,
    Product,
    Size,
    SsmSpec,
    check_sizes,
)
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.architecture.tower import TowerSpec
from trainplan.costmodel.architecture.trained import Trained, complaint, of_layers
from trainplan.costmodel.base import Identical
from trainplan.costmodel.spec import Spec

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2", "xielu"]


class RopeScaling(Spec):
    """Position scaling, kept for the exporters; it costs no time and no parameters."""

    rope_type: str
    """As in `config.json`."""
    factor: PositiveFloat
    """As in `config.json`."""
    original_max_position_embeddings: Size | None = None
    """As in `config.json`."""
    low_freq_factor: PositiveFloat | None = None
    """As in `config.json`."""
    high_freq_factor: PositiveFloat | None = None
    """As in `config.json`."""
    beta_fast: PositiveFloat | None = None
    """As in `config.json`."""
    beta_slow: PositiveFloat | None = None
    """As in `config.json`."""
    mscale: PositiveFloat | None = None
    """As in `config.json`."""
    mscale_all_dim: PositiveFloat | None = None
    """As in `config.json`."""
    truncate: bool | None = None
    """YaRN: are the bounds of the ramp rounded to whole dimensions? Null: yes."""


class ModelSpec(Spec):
    """A decoder-only transformer."""

    name: str = "custom"
    """Preset or folder it was read from."""
    model_type: str | None = None
    """Hugging Face `model_type` it was read from."""
    read_by_fields: bool = False
    """No file of its own shows how the `model_type` is built: it was read as a Llama is."""

    MOST_LAYERS: ClassVar[int] = MOST_LAYERS
    num_hidden_layers: PositiveInt = Field(le=MOST_LAYERS)
    """Decoder layers."""
    hidden_size: PositiveInt = Field(le=10_000_000)
    """Width of the residual stream."""
    intermediate_size: Size
    """Width of the dense MLP (of the dense layers, in a mixture of experts)."""
    num_attention_heads: Size
    """Query heads."""
    num_key_value_heads: Size
    """Key-value heads."""
    head_dim: Size
    """Width of a head."""
    vocab_size: Size
    """Rows of the token table, before the runtime pads it."""
    max_position_embeddings: Size
    """Longest sequence; rows of the table when positions are learned."""

    value_head_dim: Size | None = None
    """Width of a value head where it differs from `head_dim` (MiMo-V2)."""
    position_embedding: Literal["rope", "learned", "alibi", "none"] = "rope"
    """`rope`, `learned`, `alibi` or `none`."""
    position_embedding_offset: Count = 0
    """Unused extra rows of a learned table (OPT: 2)."""
    unrotated_layers: Count = 0
    """Layers without positions in a model that rotates the others (SmolLM3, Command A): no cost."""
    rope_theta: PositiveFloat = 10_000.0
    """As in `config.json`."""
    partial_rotary_factor: PositiveFloat = Field(default=1.0, le=1.0)
    """Share of a head that is rotated."""
    rope_scaling: RopeScaling | None = None
    """Null: none."""
    embedding_size: Size | None = None
    """Width of the token embedding where it differs from `hidden_size` (OPT-350M)."""
    embedding_norm: bool = False
    """A norm behind the token embedding (BLOOM)."""
    embedding_weights: NonNegativeInt = Field(default=0, le=10**13)
    """Numbers the first stage learns next to the tables and norms above."""

    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """`rmsnorm` or `layernorm`."""
    norm_eps: PositiveFloat = 1e-5
    """For the exporters."""
    norm_position: Literal["pre", "post", "both"] = "pre"
    """Before attention and MLP, after them (OLMo 2), or both (Gemma 2, GLM-4)."""
    norm_weights: NormWeights = "all"
    """What every norm over `hidden_size` learns: without bias Cohere, nothing OLMo 1."""
    final_norm: bool = True
    """A norm before the head."""
    parallel_residual: bool = False
    """Attention and MLP read the same input."""
    shared_norm: bool = False
    """One norm in front of attention and MLP in parallel (Falcon, Cohere), not one each."""
    activation: Activation = "silu"
    """`silu`, `gelu`, `gelu_tanh`, `relu`, `relu2` or `xielu`."""
    gated_mlp: bool = True
    """Two up-projections instead of one."""
    swiglu_limit: PositiveFloat | None = None
    """Both inputs of the gated unit of an expert are clamped to it (gpt-oss); null: no clamp."""
    qkv_bias: bool = False
    """Biases on queries, keys and values."""
    attention_output_bias: bool = False
    """Bias on the output projection."""
    mlp_bias: bool = False
    """Biases of the MLP."""
    head_bias: bool = False
    """A bias on the logits (Phi-2)."""
    side_products: tuple[Product, ...] = ()
    """Small products of every layer next to its two halves, which no rank divides (Gemma 3n)."""
    layer_weights: Count = 0
    """Numbers a layer learns in none of its products, biases and norms: scales, gates."""
    own_weights: Count | None = None
    """Numbers a layer learns itself, where its other weights are those of an earlier one (Zamba,
    loops); null: all its weights."""
    residual_streams: Size = 1
    """Streams of the residual, which each half of a layer mixes to its input and back (manifold-
    constrained hyper-connections, arXiv:2512.24880; DeepSeek-V4)."""
    qk_norm: Literal["none", "head", "each", "full"] = "none"
    """Norm on queries and keys: one weight per head dimension, such weights for each head
    (Cohere), or over all heads (OLMo 2)."""
    key_value_projections: KeyValues = "both"
    """Projections that attention has of its own: to keys and values (`both`), to keys that are the
    values too, to `none`."""
    attention_sinks: bool = False
    """One learned sink logit per head (gpt-oss)."""
    attention_output_gate: Literal["none", "head", "elementwise"] = "none"
    """A sigmoid gate on the output of the core, projected from the layer's input: one number per
    head (Step-3.5), or one per element (Qwen3-Next)."""
    attn_logit_softcapping: PositiveFloat | None = None
    """As in `config.json`."""
    final_logit_softcapping: PositiveFloat | None = None
    """As in `config.json`."""
    scale_embeddings: bool = False
    """Token embeddings are multiplied by sqrt(hidden_size) (Gemma)."""
    scaled_branches: bool = False
    """Fixed factors or limits on embeddings, branches, scores or logits (Granite, OLMo's clipped
    queries): no product, no weight."""
    sliding_window: Size | None = None
    """Tokens that a token of a `sliding_attention` layer sees."""
    attention_chunk_size: Size | None = None
    """Tokens of a chunk of a `chunked_attention` layer: no token sees another chunk (Llama 4)."""
    mixer: Mixer = "full_attention"
    """Of every layer that `layers` gives no other."""
    feed_forward: FeedForward | None = None
    """Of every layer that `layers` gives no other; null: experts where `moe` puts them."""
    layer_kinds: tuple[LayerKind, ...] = ()
    """Kinds of layer, each where it differs from the model."""
    layers: tuple[str, ...] | None = None
    """Kind of every layer in order, by its name in `layer_kinds`; null: all as stated here."""
    tie_word_embeddings: bool = False
    """Head and token table are one."""

    mla: MlaSpec | None = None
    """Null: plain attention."""
    low_rank: LowRankSpec | None = None
    """Null: queries and output are projected at once."""
    moe: MoeSpec | None = None
    """Null: a dense model."""
    ssm: SsmSpec | None = None
    """Null: no state-space layers."""
    linear_attention: LinearAttentionSpec | None = None
    """Null: no linear attention."""
    indexer: IndexerSpec | None = None
    """Null: no sparse attention."""
    shares_index: bool = False
    """Sparse attention takes the keys that a layer before it picked (GLM-5)."""
    convolution: ConvolutionSpec | None = None
    """Null: no short convolutions."""
    key_compression: Size | None = None
    """Tokens that a compressed key is made of; a token is compared with those (of sparse attention
    with the picked ones) and with the keys of its `sliding_window` (DeepSeek-V4)."""
    wide_products: bool = False
    """Products multiply in 16 bits where those of the training multiply in fewer (first and last
    layers of fp8 and fp4 recipes)."""
    num_nextn_predict_layers: Count = 0
    """Multi-token-prediction modules (DeepSeek-V3, arXiv:2412.19437, section 2.2)."""
    nextn_layers: tuple[str, ...] | None = None
    """Layers of each such module, by their kinds; null: one, as the last layer of the model."""
    nextn_shared: bool = False
    """All such modules have the same weights (Nemotron 3)."""
    tower: TowerSpec | None = None
    """Encoder of images or sound; null: text alone."""
    left_out: str | None = Field(default=None, max_length=100)
    """What else the file describes, which is neither counted nor priced; null: nothing."""

    @model_validator(mode="before")
    @classmethod
    def _counted_windows(cls, values: object) -> object:
        """Older files count the layers that slide; none or all of them are still read."""
        if not isinstance(values, dict) or "num_sliding_window_layers" not in values:
            return values
        rest = {k: v for k, v in values.items() if k != "num_sliding_window_layers"}
        count = values["num_sliding_window_layers"]
        if count == 0:
            return rest | {"sliding_window": None}
        if count == values.get("num_hidden_layers"):
            return rest | {"mixer": "sliding_attention"}
        raise ValueError(
            "num_sliding_window_layers does not name the layers that slide: list every layer in "
            "layers"
        )

    trained: Trained | None = None
    """What is trained where that is not every weight; null: every weight."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads = {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads = {self.num_key_value_heads}"
            )
        if self.moe and self.moe.first_k_dense_replace > self.num_hidden_layers:
            raise ValueError("first_k_dense_replace exceeds num_hidden_layers")
        return self

    @model_validator(mode="after")
    def _layers_are_known(self) -> Self:
        names = [kind.name for kind in self.layer_kinds]
        if len(set(names)) < len(names):
            raise ValueError(f"layer_kinds: two are called {_twice(names)!r}; rename one")
        for name in self.nextn_layers or ():
            if name not in (self.layers or ()):
                raise ValueError(f"nextn_layers has {name!r}, of which kind no layer is")
        if self.layers is None:
            if names:
                raise ValueError("layer_kinds are given but layers is not: list every layer")
            return self
        if len(self.layers) != self.num_hidden_layers:
            raise ValueError(
                f"layers lists {len(self.layers)} layers, num_hidden_layers is "
                f"{self.num_hidden_layers}; make them equal"
            )
        for place, name in enumerate(self.layers):
            if name not in names:
                raise ValueError(
                    f"layers: layer {place} is of kind {name!r}, which layer_kinds lacks"
                )
        if self.moe and (self.moe.first_k_dense_replace or self.moe.moe_layer_freq > 1):
            raise ValueError(
                "layers lists which layers have experts: leave first_k_dense_replace and "
                "moe_layer_freq out"
            )
        return self

    @model_validator(mode="after")
    def _kinds_have_their_sizes(self) -> Self:
        given = {field for field in SIZES.values() if getattr(self, field) is not None}
        check_sizes({kind.mixer for kind in self.kinds}, given)
        for kind in self.kinds:
            if kind.feed_forward == "moe" and self.moe is None:
                raise ValueError("a layer has feed_forward moe but moe is null")
            if kind.num_attention_heads % kind.num_key_value_heads:
                raise ValueError("a kind's num_attention_heads is no multiple of its key-value's")
        if found := complaint(self):
            raise ValueError(found)
        return self

    @property
    def kinds(self) -> tuple[ModelSpec, ...]:
        """A model of each kind of layer alone, in order of first appearance."""
        return _own_kinds(Identical(self))[0]

    @property
    def kind_of_layer(self) -> tuple[int, ...]:
        """For every layer in order: its place in `kinds`."""
        return _own_kinds(Identical(self))[1]

    @property
    def kinds_of_module(self) -> tuple[int, ...]:
        """For every layer of a multi-token-prediction module: its place in `kinds`."""
        if self.nextn_layers is None or self.layers is None:
            return self.kind_of_layer[-1:]
        return tuple(self.kind_of_layer[self.layers.index(name)] for name in self.nextn_layers)

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """For every layer in order: what mixes its tokens."""
        kinds = self.kinds
        return tuple(kinds[kind].mixer for kind in self.kind_of_layer)

    @property
    def moe_layers(self) -> tuple[bool, ...]:
        """For every layer in order: is it a mixture of experts?"""
        experts = [kind.feed_forward == "moe" for kind in self.kinds]
        return tuple(experts[kind] for kind in self.kind_of_layer)

    @property
    def num_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts (MTP modules not counted)."""
        return self.moe_layers.count(True)

    @property
    def num_dense_layers(self) -> int:
        """Layers with a plain MLP."""
        dense = [kind.feed_forward == "mlp" for kind in self.kinds]
        return sum(dense[kind] for kind in self.kind_of_layer)

    @property
    def num_sliding_window_layers(self) -> int:
        """Layers whose tokens see `sliding_window` tokens only."""
        return self.mixers.count("sliding_attention")


@lru_cache(maxsize=256)
def _own_kinds(model: Identical[ModelSpec]) -> tuple[tuple[ModelSpec, ...], tuple[int, ...]]:
    """As `_kinds`, without a look at the fields: a search needs them a thousand times."""
    return _kinds(model.of)


@lru_cache(maxsize=256)
def _kinds(model: ModelSpec) -> tuple[tuple[ModelSpec, ...], tuple[int, ...]]:
    """A model of each kind of layer alone, and the kind of every layer."""
    plain: dict[str, object] = {"layers": None, "layer_kinds": (), "nextn_layers": None}
    plain["tower"] = None
    if model.layers is None:
        changes: list[dict[str, object]] = [{"feed_forward": one} for one in _feed_forwards(model)]
    else:
        known = {kind.name: kind.changes() for kind in model.layer_kinds}
        usual = {"feed_forward": model.feed_forward or ("moe" if model.moe else "mlp")}
        changes = [usual | known[name] for name in model.layers]
    views: dict[tuple[tuple[str, object], ...], ModelSpec] = {}
    layers = []
    for change in changes:
        text = tuple(change.items())
        if text not in views:
            views[text] = _without_placement(model.model_copy(update=plain | change))
        layers.append(views[text])
    found: dict[ModelSpec, int] = {}
    if model.trained is None:
        order = tuple(found.setdefault(kind, len(found)) for kind in layers)
        return tuple(found), order
    pairs = list(zip(layers, of_layers(model, layers), strict=True))
    own = {pair: pair[0].model_copy(update={"trained": pair[1]}) for pair in dict.fromkeys(pairs)}
    order = tuple(found.setdefault(own[pair], len(found)) for pair in pairs)
    return tuple(found), order


def _without_placement(kind: ModelSpec) -> ModelSpec:
    """A layer of one kind does not hold where experts are."""
    if kind.moe is None:
        return kind
    if kind.feed_forward != "moe":
        return kind.model_copy(update={"moe": None})
    return kind.model_copy(update={"moe": kind.moe.everywhere()})


def _feed_forwards(model: ModelSpec) -> tuple[FeedForward, ...]:
    """Of every layer of a model without a list."""
    layers = model.num_hidden_layers
    if model.feed_forward or model.moe is None:
        return (model.feed_forward or "mlp",) * layers
    return model.moe.placed(layers)


def _twice(names: list[str]) -> str:
    """The first name that occurs again."""
    return next(name for place, name in enumerate(names) if name in names[:place])
