"""What is trained: the shape of a decoder-only transformer.

Field names follow Hugging Face `config.json`; where families disagree on a name, the most common
one is used and the adapter in `costmodel.model.families` translates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, Self

from pydantic import (
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from trainplan.costmodel.spec.base import Spec
from trainplan.costmodel.spec.layers import (
    MLP,
    Count,
    FeedForward,
    LayerKind,
    Mixer,
    Size,
    listed_kinds,
)
from trainplan.costmodel.spec.mixers import (
    SIZES,
    ConvolutionSpec,
    IndexerSpec,
    LinearAttentionSpec,
    SsmSpec,
    check_sizes,
)
from trainplan.costmodel.spec.tower import TowerSpec

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


class MlaSpec(Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

    q_lora_rank: Size | None = None
    """Rank of the query compression; null: queries are not compressed."""
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size


class MoeSpec(Spec):
    """Mixture of experts: which layers, how many experts, how wide."""

    num_experts: Size
    num_experts_per_tok: Size
    """Experts the router chooses for a token."""
    mean_experts_per_tok: PositiveFloat | None = None
    """Of these, how many compute on average, where some of those chosen pass a token on unchanged
    (zero-compute experts of LongCat); null: all."""
    moe_intermediate_size: Size
    """Width of one routed expert."""
    shared_expert_intermediate_size: Count = 0
    """Total width of all shared experts; 0: none."""
    shared_expert_gate: bool = False
    """A sigmoid gate (one row of `hidden_size`) on the shared expert (Qwen2-MoE)."""
    first_k_dense_replace: Count = 0
    """Leading layers that stay dense."""
    moe_layer_freq: PositiveInt = 1
    """After the leading dense layers, every `moe_layer_freq`-th layer is MoE."""
    router_bias: bool = False
    """One learned or balancing number per expert in the router (`e_score_correction_bias` of
    DeepSeek-V3 and GLM-4.5)."""
    expert_bias: bool = False
    """The products of experts have biases (gpt-oss); the router's is `router_bias`."""
    router_score_function: Literal["softmax", "sigmoid"] = "softmax"
    norm_topk_prob: bool = True
    n_group: Size | None = None
    """Device-limited routing: number of expert groups; null: no groups."""
    topk_group: Size | None = None
    routed_scaling_factor: PositiveFloat | None = None
    latent_size: Size | None = None
    """Width that routed experts work in, between projections down and up (Nemotron-3 Super); null:
    the hidden size."""

    @field_validator("num_experts_per_tok", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        if isinstance(value, float) and value != int(value):
            raise ValueError(
                f"{value:g} is a mean and the router chooses a whole number: write that here, and "
                f"mean_experts_per_tok: {value:g} beside it"
            )
        return value

    @model_validator(mode="after")
    def _top_k_fits(self) -> Self:
        if self.num_experts_per_tok > self.num_experts:
            raise ValueError(
                f"num_experts_per_tok = {self.num_experts_per_tok} exceeds "
                f"num_experts = {self.num_experts}; lower it"
            )
        return self

    @model_validator(mode="after")
    def _mean_fits(self) -> Self:
        mean, top = self.mean_experts_per_tok, self.num_experts_per_tok
        if mean is not None and mean > top:
            raise ValueError(
                f"mean_experts_per_tok = {mean} exceeds num_experts_per_tok = {top}, which the "
                "router chooses; lower it"
            )
        return self

    @property
    def rows_per_token(self) -> float:
        """Rows of experts that a token makes, on average."""
        mean = self.mean_experts_per_tok
        return self.num_experts_per_tok if mean is None else mean

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        groups = self.n_group or 1
        if self.num_experts % groups:
            raise ValueError(
                f"num_experts = {self.num_experts} is not a multiple of n_group = {groups}; "
                "correct one of them"
            )
        if (self.topk_group or 1) > groups:
            raise ValueError(f"topk_group = {self.topk_group} exceeds n_group = {groups}; lower it")
        return self

    def placed(self, layers: int) -> tuple[FeedForward, ...]:
        """What feeds forward in each of so many layers."""
        first, freq = self.first_k_dense_replace, self.moe_layer_freq
        return tuple(
            "moe" if i >= first and (i - first) % freq == freq - 1 else "mlp" for i in range(layers)
        )

    def everywhere(self) -> MoeSpec:
        """The same in every layer."""
        return self.model_copy(update={"first_k_dense_replace": 0, "moe_layer_freq": 1})


def placed_layers(
    mixers: Sequence[Mixer],
    moe: MoeSpec | None,
    feed_forwards: Sequence[FeedForward] | None = None,
) -> dict[str, object]:
    """Fields of a model whose layers have these parts, in order; experts where `moe` says."""
    usual: Sequence[FeedForward] = moe.placed(len(mixers)) if moe else [MLP] * len(mixers)
    if len(set(mixers)) == 1 and feed_forwards in (None, tuple(usual)):
        return {"mixer": mixers[0], "moe": moe}
    listed = listed_kinds(mixers, feed_forwards or usual)
    return {"moe": moe.everywhere() if moe else None, **listed}


class RopeScaling(Spec):
    """Position scaling, kept for the exporters; it costs no time and no parameters."""

    rope_type: str
    factor: PositiveFloat
    original_max_position_embeddings: Size | None = None
    low_freq_factor: PositiveFloat | None = None
    high_freq_factor: PositiveFloat | None = None
    beta_fast: PositiveFloat | None = None
    beta_slow: PositiveFloat | None = None
    mscale: PositiveFloat | None = None
    mscale_all_dim: PositiveFloat | None = None
    truncate: bool | None = None
    """YaRN: are the bounds of the ramp rounded to whole dimensions? Null: yes."""


class ModelSpec(Spec):
    """A decoder-only transformer."""

    name: str = "custom"
    model_type: str | None = None
    """Hugging Face `model_type` it was read from."""

    num_hidden_layers: PositiveInt = Field(le=1_024)
    hidden_size: PositiveInt = Field(le=10_000_000)
    intermediate_size: Size
    """Width of the dense MLP (of the dense layers, in a mixture of experts)."""
    num_attention_heads: Size
    num_key_value_heads: Size
    head_dim: Size
    vocab_size: Size
    max_position_embeddings: Size
    """Longest sequence; rows of the table when positions are learned."""

    position_embedding: Literal["rope", "learned", "none"] = "rope"
    position_embedding_offset: Count = 0
    """Unused extra rows of a learned table (OPT: 2)."""
    rope_theta: PositiveFloat = 10_000.0
    partial_rotary_factor: PositiveFloat = Field(default=1.0, le=1.0)
    rope_scaling: RopeScaling | None = None
    embedding_size: Size | None = None
    """Width of the token embedding where it differs from `hidden_size` (OPT-350M)."""

    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    norm_eps: PositiveFloat = 1e-5
    norm_position: Literal["pre", "post", "both"] = "pre"
    """Before attention and MLP, after them (OLMo 2), or both (Gemma 2, GLM-4)."""
    final_norm: bool = True
    parallel_residual: bool = False
    activation: Activation = "silu"
    gated_mlp: bool = True
    swiglu_limit: PositiveFloat | None = None
    """Both inputs of the gated unit of an expert are clamped to it (gpt-oss); null: no clamp."""
    qkv_bias: bool = False
    attention_output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    """RMSNorm on queries and keys: one weight per head dimension, or over all heads (OLMo 2)."""
    attention_sinks: bool = False
    """One learned sink logit per head (gpt-oss)."""
    attention_output_gate: Literal["none", "head", "elementwise"] = "none"
    """A sigmoid gate on the output of the core, projected from the layer's input: one number per
    head (Step-3.5), or one per element (Qwen3-Next)."""
    attn_logit_softcapping: PositiveFloat | None = None
    final_logit_softcapping: PositiveFloat | None = None
    scale_embeddings: bool = False
    """Token embeddings are multiplied by sqrt(hidden_size) (Gemma)."""
    sliding_window: Size | None = None
    """Tokens that a token of a `sliding_attention` layer sees."""
    attention_chunk_size: Size | None = None
    """Tokens of a chunk of a `chunked_attention` layer: no token sees another chunk (Llama 4)."""
    mixer: Mixer = "full_attention"
    """Of every layer that `layers` gives no other."""
    feed_forward: FeedForward | None = None
    """Of every layer that `layers` gives no other; null: experts where `moe` puts them."""
    layer_kinds: tuple[LayerKind, ...] = ()
    layers: tuple[str, ...] | None = None
    """Kind of every layer in order, by its name in `layer_kinds`; null: all as said here."""
    tie_word_embeddings: bool = False

    mla: MlaSpec | None = None
    moe: MoeSpec | None = None
    ssm: SsmSpec | None = None
    linear_attention: LinearAttentionSpec | None = None
    indexer: IndexerSpec | None = None
    shares_index: bool = False
    """Sparse attention takes the keys that a layer before it picked (GLM-5)."""
    convolution: ConvolutionSpec | None = None
    num_nextn_predict_layers: Count = 0
    """Multi-token-prediction modules (DeepSeek-V3, arXiv:2412.19437, section 2.2)."""
    tower: TowerSpec | None = None
    """Encoder of images or sound; null: text alone."""

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
            "num_sliding_window_layers does not say which layers slide: list every layer in layers"
        )

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
                "layers says which layers have experts: leave first_k_dense_replace and "
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
        return self

    @property
    def kinds(self) -> tuple[ModelSpec, ...]:
        """A model of each kind of layer alone, in order of first appearance."""
        return _kinds(self)[0]

    @property
    def kind_of_layer(self) -> tuple[int, ...]:
        """For every layer in order: its place in `kinds`."""
        return _kinds(self)[1]

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
def _kinds(model: ModelSpec) -> tuple[tuple[ModelSpec, ...], tuple[int, ...]]:
    """A model of each kind of layer alone, and the kind of every layer."""
    plain: dict[str, object] = {"layers": None, "layer_kinds": (), "tower": None}
    if model.layers is None:
        changes: list[dict[str, object]] = [{"feed_forward": one} for one in _feed_forwards(model)]
    else:
        known = {kind.name: kind.changes() for kind in model.layer_kinds}
        usual = {"feed_forward": model.feed_forward or ("moe" if model.moe else "mlp")}
        changes = [usual | known[name] for name in model.layers]
    found: dict[ModelSpec, int] = {}
    places = {}
    order = []
    for change in changes:
        text = tuple(change.items())
        if text not in places:
            kind = model.model_copy(update=plain | change)
            places[text] = found.setdefault(_without_placement(kind), len(found))
        order.append(places[text])
    return tuple(found), tuple(order)


def _without_placement(kind: ModelSpec) -> ModelSpec:
    """A layer of one kind says nothing of where experts stand."""
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
