"""What a runtime computes again, and what it keeps on the host, instead of holding it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trainplan.costmodel.lanes.placed import Habits, Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work
from trainplan.costmodel.spec import ModelSpec
from trainplan.costmodel.spec.layout import Tier


def no_subsets(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """A runtime the search does not choose modules for."""
    return ()


class Offload(NamedTuple):
    """One choice of what waits on the host, with what is recomputed beside it."""

    modules: tuple[str, ...]
    recompute: tuple[str, ...] = ()


def no_offloads(model: ModelSpec) -> tuple[Offload, ...]:
    """A runtime that keeps no activations on the host, or not on the search's advice."""
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


@dataclass(frozen=True, slots=True)
class Offloading:
    """What waits in host memory."""

    optimizer_step: float | None = None
    """It can offload any fraction of the optimizer, and a search tries multiples of this one; None
    where it offloads nothing."""
    gradients: bool = False
    """Sharded gradients lie with the offloaded share of the optimizer, not on the GPU."""
    tiers: tuple[Tier, ...] = ("cpu",)
    """Where the offloaded share of the optimizer may lie."""
    parameters: tuple[Tier | None, ...] = (None,)
    """Where weights may lie between passes; null: on the GPU."""
    checkpoints: tuple[float, ...] = (0.0,)
    """Shares of the kept activations that may be off the GPU."""
    checkpoints_tier: Tier = "cpu"
    """Where they then lie."""
    strides: tuple[int, ...] = (0,)
    """Every so many subgroups of an offloaded optimizer one may be updated on the GPU."""
    delays: bool = False
    """The update runs beside the next step."""
    by_layer: bool = False
    """All micro batches of a layer run before the next layer, so all of them are kept."""
    work: Callable[[Quantities, Speeds, Placement], Work] | None = None
    """A step of one row as items, where habits do not say it."""
    habits: Callable[[int, Place], Habits] | None = None
    """What it copies when, by ZeRO stage and where the optimizer lies; None: it
    offloads nothing, or nobody knows."""
    in_series: bool = False
    """It offloads the optimizer alone, and nothing of that runs beside the passes."""
    subgroup_params: float | None = None
    """Parameters that are updated at once; None: as DeepSpeed's default."""
    modules: tuple[str, ...] = ()
    """Modules whose activations it can keep on the host."""
    choices: Callable[[ModelSpec], tuple[Offload, ...]] = no_offloads
    """What the search tries to keep there in this model."""
