"""What a plan states of energy, carbon dioxide and money of a step and of the run."""

from typing import Self

import numpy as np

from trainplan.costmodel.base import SECONDS_PER_HOUR, SpecError
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.run_costs import (
    Fabric,
    Goodput,
    energy_of,
    fabric_of,
    goodput_of,
    hourly_price,
    kg_co2,
    paid_gpus,
    refuse_endless,
    run_steps,
    site_kwh,
    stretch_of,
)
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

    @classmethod
    def of(cls, on: Context, layout: Layout, step_time_s: float) -> Self:
        """What a layout takes whose step lasts so long.

        Raises:
            SpecError: Nodes fail so often that the run does not end.
        """
        job = on.job
        refuse_endless(job)
        cluster, steps = job.cluster, run_steps(job)
        joules = _joules(on, layout, step_time_s)
        kwh = None if joules is None else site_kwh(joules, cluster.pue)
        carbon = cluster.kg_co2_per_kwh
        emitted = None if kwh is None or carbon is None else kg_co2(kwh, carbon)
        hourly = hourly_price(cluster)
        hours = step_time_s / SECONDS_PER_HOUR * stretch_of(job)
        money = None if hourly is None else job.islands * hourly * hours
        return cls(
            steps=steps,
            joules_per_step=joules,
            kwh_per_step=kwh,
            kwh_per_run=_of_run(kwh, steps),
            kg_co2_per_step=emitted,
            kg_co2_per_run=_of_run(emitted, steps),
            money_per_step=money,
            money_per_run=_of_run(money, steps),
            gpu_hours_per_run=_of_run(hours * paid_gpus(job), steps),
            goodput=goodput_of(job),
            fabric=fabric_of(cluster),
        )


def _of_run(value: float | None, steps: int | None) -> float | None:
    return None if value is None or steps is None else value * steps


def _joules(on: Context, layout: Layout, step_time_s: float) -> float | None:
    """Of a step of all GPUs; null where their power is not known, or they are not all equal."""
    if len(on.job.cluster.groups) > 1:
        return None
    try:
        energy = energy_of(*on.shared)
    except SpecError:
        return None
    table = LayoutTable.of([layout])
    return float(energy.of_step(table, np.array([step_time_s]))[0])
