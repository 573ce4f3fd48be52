"""How often a launch saves, against what loses least where its cluster states failures."""

from collections.abc import Iterator
from dataclasses import dataclass

from trainplan.costmodel.job import Job
from trainplan.costmodel.run_costs import Goodput, goodput_of
from trainplan.planner.launch_checks.lints import Lint
from trainplan.planner.operations import SAVE_STEPS
from trainplan.planner.runtimes import Reading, SettingChange

WORTH = 1e-3
"""Of the time; an interval that loses less more than the best is as good. Source: assumed."""


@dataclass(frozen=True, slots=True)
class LaunchSaves:
    """Of a launch on a cluster that states its failures."""

    steps: int | None
    """Between two saves; 0: it saves nothing; null: what was read does not say it."""
    best_steps: int
    """At which most of the time trains."""
    goodput: Goodput | None
    """As in `spent` of a plan, with saves as the launch has them, or as often as is best where that
    is not read; null: it saves nothing, so a failure undoes the whole run."""
    best: Goodput
    """Saved as often as is best."""


def saves_of_launch(reading: Reading, job: Job, step_s: float) -> LaunchSaves | None:
    """Of a launch whose step lasts so long; null: the cluster states no failures."""
    best = goodput_of(job)
    if best is None:
        return None
    value = next((one.value for one in reading.fields if one.name == SAVE_STEPS), None)
    steps = value if isinstance(value, int) else None
    own = goodput_of(job, steps * step_s) if steps else None if steps == 0 else best
    best_steps = max(1, round(best.save_interval_s / step_s))
    return LaunchSaves(steps, best_steps, own, best)


def save_lints(reading: Reading, found: LaunchSaves | None) -> Iterator[Lint]:
    """A slip where another interval leaves more of the time."""
    if found is None or found.steps is None or found.goodput is None:
        return
    lost = found.best.fraction - found.goodput.fraction
    if lost > WORTH:
        option = next(one.written for one in reading.fields if one.name == SAVE_STEPS)
        name = option.partition(" ")[0]
        change = SettingChange(name, str(found.steps), str(found.best_steps))
        says = (
            f"a save every {found.steps:,} steps leaves {found.goodput.fraction:.1%} of the time "
            f"for training, one every {found.best_steps:,} steps {found.best.fraction:.1%}"
        ).replace("%", " %")
        yield Lint("save_interval", says, (), (change,), None, None, None)
