"""Sizes of a layer: attention, what mixes tokens in other ways, the feed-forward block."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from trainplan.costmodel.spec import Spec

Size = Annotated[PositiveInt, Field(le=10**9)]
"""A dimension of a tensor."""
Count = Annotated[NonNegativeInt, Field(le=10**9)]
MOST_LAYERS = 1_024
"""No published model has a quarter."""
Mixer = Literal[
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "sparse_attention",
    "bidirectional_attention",
    "linear_attention",
    "mamba",
    "attention_and_mamba",
    "convolution",
    "none",
]
"""What mixes tokens. Names as in `layer_types` of transformers, where it has one; attention and
mamba: both, side by side on one input (Falcon-H1)."""
FeedForward = Literal["mlp", "moe", "none"]
Product = tuple[Size, Size]
"""Inputs and outputs of one matrix product."""
NormWeights = Literal["all", "scale", "none"]
"""What a norm learns: scale and bias where it has one, the scale alone, nothing."""
KeyValues = Literal["both", "keys", "none"]
"""Projections that attention has of its own: to keys and values, to keys that are the values too
(Gemma 4), or none, where keys and values are those of an earlier layer (Gemma 3n)."""
MLP: Final = "mlp"
ATTENTIONS: tuple[Mixer, ...] = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "sparse_attention",
    "bidirectional_attention",
    "attention_and_mamba",
)
"""Mixers whose core compares queries with keys."""


class MlaSpec(Spec):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1)."""

    q_lora_rank: Size | None = None
    """Rank of the query compression; null: queries are not compressed."""
    kv_lora_rank: Size
    """Rank of the key-value compression."""
    qk_nope_head_dim: Size
    """Width of a head without positions."""
    qk_rope_head_dim: Count
    """Width of the rotated part of a head."""
    v_head_dim: Size
    """Width of a value head."""


class LowRankSpec(Spec):
    """Queries, and maybe the output, through a low rank, with plain keys (Step-3)."""

    query_rank: Size
    """Rank of the queries."""
    output_rank: Size | None = None
    """Of all groups together; null: the output is projected at once."""
    output_groups: Size = 1
    """Groups of heads, each projected to its part of the rank."""


class LayerKind(Spec):
    """One kind of layer, where it differs from what the model states of all; null: as the model."""

    name: str = Field(min_length=1, max_length=100)
    """As `layers` of the model calls it."""
    mixer: Mixer | None = None
    """Null: the model's, as the fields below."""
    feed_forward: FeedForward | None = None
    """`mlp`, `moe` or `none`."""
    num_attention_heads: Size | None = None
    """Query heads."""
    num_key_value_heads: Size | None = None
    """Key-value heads."""
    head_dim: Size | None = None
    """Width of a head."""
    value_head_dim: Size | None = None
    """Width of a value head."""
    intermediate_size: Size | None = None
    """Width of the dense MLP."""
    attention_sinks: bool | None = None
    """One learned sink logit per head."""
    mla: MlaSpec | None = None
    """Latent attention of other ranks."""
    key_value_projections: KeyValues | None = None
    """`both`, `keys` or `none`."""
    side_products: tuple[Product, ...] | None = None
    """Small products next to both halves."""
    layer_weights: Count | None = None
    """Numbers learned in none of its products, biases and norms."""
    own_weights: Count | None = None
    """Numbers it learns itself, where its other weights are those of an earlier layer."""
    shares_index: bool | None = None
    """Takes the keys an earlier layer picked."""
    wide_products: bool | None = None
    """Its products multiply in 16 bits whatever the training does."""
    key_compression: Size | None = None
    """Tokens that a compressed key is made of."""

    def changes(self) -> dict[str, object]:
        """Fields of the model that differ in such a layer."""
        values = ((name, getattr(self, name)) for name in LayerKind.model_fields if name != "name")
        return {name: value for name, value in values if value is not None}


def listed_kinds(
    mixers: Sequence[Mixer],
    feed_forwards: Sequence[FeedForward],
    changes: Sequence[Mapping[str, object]] | None = None,
) -> dict[str, object]:
    """Fields of a model whose layers have these parts, in order; one kind needs no list.

    Args:
        mixers: What mixes the tokens of each layer.
        feed_forwards: What feeds forward in each.
        changes: What else differs from what the model states of all, of each.
    """
    pairs = list(zip(mixers, feed_forwards, strict=True))
    if changes is None or not any(changes):
        kinds = list(dict.fromkeys(pairs))
        if len(kinds) == 1:
            return {"mixer": kinds[0][0], "feed_forward": kinds[0][1]}
    alike = len({feed for _, feed in pairs}) == 1
    found: dict[tuple[object, ...], LayerKind] = {}
    order = []
    for (mixer, feed), change in zip(pairs, changes or [{}] * len(pairs), strict=True):
        key = (mixer, feed, *change.items())
        if key not in found:
            name = mixer if alike else f"{mixer}+{feed}"
            taken = sum(kind.name.partition(" ")[0] == name for kind in found.values())
            parts = {"name": f"{name} {taken + 1}" if taken else name, "mixer": mixer}
            found[key] = LayerKind.model_validate({**parts, "feed_forward": feed, **change})
        order.append(found[key].name)
    return {"layer_kinds": tuple(found.values()), "layers": tuple(order)}


class SsmSpec(Spec):
    """Selective state space: Mamba-1 (arXiv:2312.00752) or Mamba-2 (arXiv:2405.21060)."""

    num_heads: Size
    """Of Mamba-1: its channels, where `head_dim` is 1."""
    head_dim: Size = 1
    state_size: Size
    num_groups: Size = 1
    """Groups of heads that share B and C (Mamba-2)."""
    time_step_rank: Size | None = None
    """Rank of the time step of Mamba-1; null: Mamba-2, whose heads have one time step each."""
    conv_kernel: Size = 4
    conv_bias: bool = True
    input_bias: bool = False
    output_bias: bool = False
    gated_norm: bool = True
    """Mamba-2: RMSNorm over the inner width, gated, before the output projection."""
    inner_norms: bool = False
    """Mamba-1: RMSNorm with weights on time step, B and C (Jamba)."""
    chunk_size: Size = 256
    """Tokens of a chunk of the scan of Mamba-2."""

    @property
    def inner_width(self) -> int:
        """Width of all heads."""
        return self.num_heads * self.head_dim

    @property
    def group_width(self) -> int:
        """Width of B and C together."""
        return 2 * self.num_groups * self.state_size

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.num_heads % self.num_groups:
            raise ValueError(
                f"num_heads = {self.num_heads} is not a multiple of num_groups = "
                f"{self.num_groups}; correct one of them"
            )
        if self.time_step_rank and self.num_groups > 1:
            raise ValueError(
                "time_step_rank is of Mamba-1, num_groups of Mamba-2; leave one of them out"
            )
        return self


class LinearAttentionSpec(Spec):
    """Linear attention whose state is a matrix of each value head."""

    rule: Literal["gated_delta", "kda", "lightning"] = "gated_delta"
    """How the state changes: gated delta rule (arXiv:2412.06464; Qwen3-Next), with a decay of each
    channel (Kimi Delta Attention, arXiv:2510.26692), or a decay that is given (lightning
    attention, arXiv:2501.08313; MiniMax-01)."""
    num_key_heads: Size
    num_value_heads: Size
    key_head_dim: Size
    value_head_dim: Size
    conv_kernel: Size | None = 4
    """Of the short convolution of queries, keys and values; null: none."""
    gate_rank: Size | None = None
    """Rank of the projections of decay and output gate (KDA)."""
    chunk_size: Size = 64
    """Tokens of a chunk."""

    @property
    def key_width(self) -> int:
        """Width of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Width of all values."""
        return self.num_value_heads * self.value_head_dim

    @model_validator(mode="after")
    def _rule_has_its_sizes(self) -> Self:
        if self.num_value_heads % self.num_key_heads:
            raise ValueError(
                f"num_value_heads = {self.num_value_heads} is not a multiple of num_key_heads = "
                f"{self.num_key_heads}; correct one of them"
            )
        if (self.rule == "kda") != (self.gate_rank is not None):
            raise ValueError("gate_rank is needed by rule kda and by no other")
        if (self.rule == "lightning") != (self.conv_kernel is None):
            raise ValueError("conv_kernel is null in rule lightning and in no other")
        return self


class IndexerSpec(Spec):
    """What picks the keys of sparse attention (DeepSeek-V3.2, arXiv:2512.02556, section 2.1)."""

    num_heads: Size
    head_dim: Size
    top_k: Size
    """Keys that a query is compared with."""


class ConvolutionSpec(Spec):
    """A gated short convolution over the hidden width (LFM2, arXiv:2511.23404)."""

    kernel: Size
    bias: bool = False


SIZES: dict[Mixer, str] = {
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
    "sparse_attention": "indexer",
    "linear_attention": "linear_attention",
    "mamba": "ssm",
    "attention_and_mamba": "ssm",
    "convolution": "convolution",
}
"""Field of the model that gives the sizes of a mixer; the others have those of the model."""


def check_sizes(mixers: set[Mixer], given: set[str]) -> None:
    """Refuse mixers without their sizes, and sizes that belong to no layer."""
    for mixer in sorted(mixers):
        field = SIZES.get(mixer)
        if field and field not in given:
            raise ValueError(f"a layer has mixer {mixer} but {field} is null; give it")
    for field in sorted(given):
        users = [mixer for mixer, name in SIZES.items() if name == field]
        if not mixers.intersection(users):
            raise ValueError(
                f"{field} is given but no layer has mixer {' or '.join(users)}; list which have, "
                "or leave it out"
            )
