"""What a plan says of energy, carbon dioxide and money of a step and of the run."""

from trainplan.costmodel.run_costs import Fabric, Goodput
from trainplan.costmodel.spec import Spec


class Spent(Spec):
    """Of one layout; null where something is not stated or not known.

    Where failures are stated, each step has its share of the time that does not train.
    """

    steps: int | None
    """Of the run; null: `--tokens` is not given."""
    joules_per_step: float | None
    """Of all GPUs alone, as `--objective energy` counts them; null: their power is not known."""
    kwh_per_step: float | None
    """Of the GPUs, times the `pue` of the cluster where it is stated."""
    kwh_per_run: float | None
    """Likewise."""
    kg_co2_per_step: float | None
    """At the `kg_co2_per_kwh` of the cluster; null: it is not stated."""
    kg_co2_per_run: float | None
    """Likewise."""
    money_per_step: float | None
    """In the currency of the cluster; null: a price is not stated."""
    money_per_run: float | None
    """Likewise."""
    gpu_hours_per_run: float | None
    """Of all GPUs together, those of spare nodes too: as they are paid."""
    goodput: Goodput | None = None
    """Share of the time that trains; null: failures are not stated, so nothing is without."""
    fabric: Fabric | None = None
    """What the scale-out network takes; null: the cluster's switches are not stated."""
