"""Kinds of layer: what mixes the tokens of a layer, what feeds forward, and their sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from trainplan.costmodel.spec import Spec

Size = Annotated[PositiveInt, Field(le=10**9)]
"""A dimension of a tensor."""
Count = Annotated[NonNegativeInt, Field(le=10**9)]
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
    qk_rope_head_dim: Size
    """Width of the rotated part of a head."""
    v_head_dim: Size
    """Width of a value head."""


class LowRankSpec(Spec):
    """Queries, and maybe the output, through a low rank, beside plain keys (Step-3)."""

    query_rank: Size
    """Rank of the queries."""
    output_rank: Size | None = None
    """Of all groups together; null: the output is projected at once."""
    output_groups: Size = 1
    """Groups of heads, each projected to its part of the rank."""


class LayerKind(Spec):
    """One kind of layer, where it differs from what the model says of all; null: as the model."""

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
    """Small products beside both halves."""
    layer_weights: Count | None = None
    """Numbers learned in none of its products, biases and norms."""
    shares_index: bool | None = None
    """Takes the keys an earlier layer picked."""
    wide_products: bool | None = None
    """Its products multiply in 16 bits whatever the training does."""
    key_compression: Size | None = None
    """Tokens that a compressed key stands for."""

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
        changes: What else differs from what the model says of all, of each.
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
