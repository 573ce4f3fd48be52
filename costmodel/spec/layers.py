"""Kinds of layer: what mixes the tokens of a layer, what feeds forward, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from trainplan.costmodel.spec.base import Spec

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


class LayerKind(Spec):
    """One kind of layer, where it differs from what the model says of all; null: as the model."""

    name: str = Field(min_length=1, max_length=100)
    """As `layers` of the model calls it."""
    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None
    num_attention_heads: Size | None = None
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    intermediate_size: Size | None = None
    shares_index: bool | None = None

    def changes(self) -> dict[str, object]:
        """Fields of the model that differ in such a layer."""
        return self.model_dump(exclude={"name"}, exclude_none=True)


def listed_kinds(
    mixers: Sequence[Mixer], feed_forwards: Sequence[FeedForward]
) -> dict[str, object]:
    """Fields of a model whose layers have these parts, in order; one kind needs no list."""
    pairs = list(zip(mixers, feed_forwards, strict=True))
    kinds = list(dict.fromkeys(pairs))
    if len(kinds) == 1:
        return {"mixer": kinds[0][0], "feed_forward": kinds[0][1]}
    alike = len({feed for _, feed in kinds}) == 1
    names = {(mixer, feed): mixer if alike else f"{mixer}+{feed}" for mixer, feed in kinds}
    return {
        "layer_kinds": tuple(
            LayerKind(name=names[kind], mixer=kind[0], feed_forward=kind[1]) for kind in kinds
        ),
        "layers": tuple(names[pair] for pair in pairs),
    }
