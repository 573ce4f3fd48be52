"""What a runtime computes again instead of holding it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel.architecture import ModelSpec


def no_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """A runtime the search does not choose modules for."""
    return ()


@dataclass(frozen=True, slots=True)
class Recompute:
    """What the backward pass computes again."""

    policy: Literal["", "torchtitan_selective_op", "maxtext_save_qkv_proj"] = ""
    """What stands for its selective recomputation, which goes by operation; empty: modules do."""
    stops_early: bool = False
    """Recomputation of a layer ends with the last tensor that its backward pass reads, so its last
    product does not run again; else the whole layer does."""
    layers: Literal["any", "some", "every_kth", "all"] = "any"
    """Layers that full recomputation may cover: any by Megatron's methods, or, each by itself, some
    number of them, every k-th one of a rank, or all."""
    by_stage: bool = False
    """Stages may recompute different numbers of layers."""
    subsets: Callable[[ModelSpec], tuple[tuple[str, ...], ...]] = no_subsets
    """Module sets that selective recomputation may drop in this model."""
