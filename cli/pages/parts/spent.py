"""Energy of a step and of the run, and the carbon dioxide of its electricity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from trainplan.cli.words import DOT
from trainplan.costmodel.job import Job
from trainplan.costmodel.step import WORLD_KG_CO2_PER_KWH
from trainplan.planner.plan import Spent


def spent_lines(job: Job, spent: Spent | None) -> Iterator[str]:
    """A line where the run, a PUE or the carbon dioxide of a kWh is stated."""
    cluster = job.cluster
    asked = job.training.tokens or cluster.pue or cluster.kg_co2_per_kwh is not None
    if spent is None or not asked:
        return
    if spent.kwh_per_step is None:
        if cluster.pue or cluster.kg_co2_per_kwh is not None:
            yield "energy not known: no power limit is known of these GPUs, or they are unlike"
        return
    of = "GPUs alone" if cluster.pue is None else f"GPUs with PUE {cluster.pue:g}"
    parts = [f"energy {_both(spent.kwh_per_run, spent.kwh_per_step, _energy)} ({of})"]
    if spent.kg_co2_per_step is not None:
        world = cluster.kg_co2_per_kwh == WORLD_KG_CO2_PER_KWH
        at = f"at {cluster.kg_co2_per_kwh:g} kg a kWh{' (IEA, world 2024)' * world}"
        parts.append(f"CO2 {_both(spent.kg_co2_per_run, spent.kg_co2_per_step, _mass)}, {at}")
    yield DOT.join(parts)


def _both(run: float | None, step: float, told: Callable[[float], str]) -> str:
    """Of the run, where its length is known, and of a step."""
    of_step = f"{told(step)} a step"
    return of_step if run is None else f"{told(run)}, {of_step}"


def _energy(kwh: float) -> str:
    return _scaled(kwh, ((1e6, "GWh"), (1e3, "MWh"), (1.0, "kWh"), (1e-3, "Wh")))


def _mass(kg: float) -> str:
    return _scaled(kg, ((1e6, "kt"), (1e3, "t"), (1.0, "kg"), (1e-3, "g")))


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    """In the largest unit of which there is one, else in the last."""
    size, unit = next((one for one in units if value >= one[0]), units[-1])
    number = value / size
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"
