"""What a runtime keeps off the GPU, where, and when it moves it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.copy_streams import (
    OffloadPolicy,
    Place,
    Placement,
    Quantities,
    Speeds,
    Work,
)
from trainplan.costmodel.layout import Tier


class Offload(NamedTuple):
    """One choice of what waits on the host, with what is recomputed beside it."""

    modules: tuple[str, ...]
    recompute: tuple[str, ...] = ()


def no_offloads(model: ModelSpec) -> tuple[Offload, ...]:
    """A runtime that keeps no activations on the host, or not on the search's advice."""
    return ()


@dataclass(frozen=True, slots=True)
class Offloading:
    """What waits in host memory or on drives."""

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
    pins: Literal["nothing", "tensors", "flat"] = "nothing"
    """How states and weights on the host are page-locked: not, tensor by tensor, or laid end to end
    (DeepSpeed)."""
    saves: Literal["in place", "shards", "whole"] = "in place"
    """What a checkpoint copies to the host: nothing, the weights of every rank once, or all of them
    on one rank."""
    workers: int = 0
    """Processes of each rank that load data, by default."""
    by_layer: bool = False
    """All micro batches of a layer run before the next layer, so all of them are kept."""
    work: Callable[[Quantities, Speeds, Placement], Work] | None = None
    """A step of one row as items, where its offload policy does not say it."""
    offload_policy: Callable[[int, Place], OffloadPolicy] | None = None
    """What it copies when, by ZeRO stage and where the optimizer lies; None: it offloads nothing,
    or nobody knows."""
    in_series: bool = False
    """It offloads the optimizer alone, and nothing of that runs beside the passes."""
    subgroup_params: float | None = None
    """Parameters that are updated at once; None: as DeepSpeed's default."""
    modules: tuple[str, ...] = ()
    """Modules whose activations it can keep on the host."""
    choices: Callable[[ModelSpec], tuple[Offload, ...]] = no_offloads
    """What the search tries to keep there in this model."""

    @property
    def moves_overlapped(self) -> bool:
        """Does what it keeps off the GPU move beside the passes?"""
        return self.offload_policy is not None and not self.in_series
