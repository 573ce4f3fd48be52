"""What measured runs of a runtime do where their records are silent."""

from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.job import GradientType, Precision, StateType


@dataclass(frozen=True, slots=True)
class Recipe:
    """Defaults of its command line and of the recipes it is measured with.

    Read by `costmodel.validate` alone: a job states its layout and its options.
    """

    cuts_experts: bool = False
    """Experts are cut over tp where no etp is stated."""
    sequence_parallel: Literal["never", "experts", "always"] = "never"
    """Models whose tensor ranks cut the sequence, too: none, those with experts, or all."""
    shards_optimizer: bool = False
    """The optimizer is sharded (ZeRO-1)."""
    ungated_dropout: bool | None = None
    """Models without gated MLPs drop out; null: as the runtime does by default."""
    fp32_dropout: bool | None = None
    """Runs in fp32 drop out; null: as above."""
    latent_moments: StateType | None = None
    """Type of the Adam moments in models with latent attention; null: fp32."""
    graphs_hybridep: tuple[Precision, ...] = ()
    """Precisions in which a run that names HybridEP and no CUDA graph has one of its whole step,
    with the exchange of tokens beside compute, as siblings that name both."""
    lora: Trained | None = None
    """Adapters of a run that says no more than that it trains some; null: it is not priced."""
    adapter_dtype: GradientType | None = None
    """Type of adapters; null: that of the frozen weights."""
    compiles_loss_from: int = 0
    """Year and month, as 202504, since which the loss is compiled with the layers; 0: always."""
    tiles_loss_from: int = 0
    """Year and month since which the loss runs tile by tile; 0: it never does by itself."""
    fused_optimizer: bool | None = None
    """One kernel updates weights; null: as the runtime does by default."""
    splits_by_cost: bool = False
    """Pipeline ranks get equal shares of the weights in products, not of the layers."""
