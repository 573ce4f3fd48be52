"""How often nodes fail, what a failure takes, and how a run is saved."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from trainplan.costmodel.base import SECONDS_PER_DAY, SECONDS_PER_HOUR
from trainplan.costmodel.spec import Amount, AmountOrZero, Spec

Save = Literal["sync", "async", "local"]
"""How states are saved: training waits until they are stored, or until they are in host memory;
`local`: they stay there, with a copy on another node."""
LEAST_MTBF_DAYS = 1e-3
"""Nodes that fail more often are a typing slip."""
MOST_SPARE_NODES = 1 << 10


class FailureSpec(Spec):
    """How often nodes fail and how a run goes on; all nodes the same, each by itself."""

    mtbf_node_days: float = Field(ge=LEAST_MTBF_DAYS, le=1e6)
    """Mean days between failures of one node; those of a run of n nodes are n times as frequent."""
    restart_minutes: AmountOrZero = Field(default=10.0, le=1e6)
    """From a failure until training goes on: it is found, nodes are exchanged, states are loaded.

    Source of the default: Jiang et al., MegaScale, arXiv:2402.15627, section 6.3: faults are found
    and diagnosed in less than 10 minutes on average.
    """
    save: Save = "sync"
    """How states are saved."""
    checkpoint_gb_per_s: Amount | None = None
    """GB/s of all nodes together to where checkpoints are; not needed where saves are `local`."""
    spare_nodes: NonNegativeInt = Field(default=0, le=MOST_SPARE_NODES)
    """Nodes more than those of the cluster, which replace failed ones."""
    repair_hours: Amount | None = None
    """Mean hours until a failed node is back; null: another is there at once."""

    @model_validator(mode="after")
    def _saves_somewhere(self) -> Self:
        if self.checkpoint_gb_per_s is None and self.save != "local":
            raise ValueError(
                f"a save that is {self.save} needs checkpoint_gb_per_s, the GB/s that all nodes "
                "together write (`--checkpoint 50GB/s`)"
            )
        if self.spare_nodes and self.repair_hours is None:
            raise ValueError(
                "spare_nodes need repair_hours, how long a failed node is away (`--repair 24h`)"
            )
        return self

    @property
    def mtbf_node_s(self) -> float:
        """Seconds between failures of one node."""
        return self.mtbf_node_days * SECONDS_PER_DAY

    @property
    def restart_s(self) -> float:
        """Seconds from a failure until training goes on."""
        return self.restart_minutes * 60

    @property
    def repair_s(self) -> float:
        """Seconds until a failed node is back; 0: another is there at once."""
        return (self.repair_hours or 0.0) * SECONDS_PER_HOUR
