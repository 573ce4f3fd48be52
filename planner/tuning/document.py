"""The plan of a tuned job: what was measured and what was proved."""

import json
from dataclasses import dataclass

from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.job import RuntimeOptions
from trainplan.planner.documents import (
    Document,
    Json,
    OfJob,
    PlanDocument,
    chosen_from_json,
    estimate_json,
    layout_json,
    of_job,
)
from trainplan.planner.questions import estimate
from trainplan.planner.tuning.events import (
    Best,
    Finished,
    MemoryRange,
    Remains,
    ScalarRange,
    StopReason,
    Tried,
)


@dataclass(frozen=True, kw_only=True)
class Tuned(Document):
    """What was measured, and what remains possible."""

    stop: StopReason
    """`settled`: nothing untried is likely to be faster; `trials`, `seconds`: that budget is spent;
    `all_tried`."""
    says: str
    best: Best | None
    trials: tuple[Tried, ...]
    """All of them, in order."""
    remains: Remains
    """What is possible beyond the best."""
    scalars: tuple[ScalarRange, ...]
    """After all trials."""
    memory_factor: MemoryRange
    """After all trials."""
    noise_fraction: float
    """By which a measured step differs from one trial of a layout to the next."""


@dataclass(frozen=True, kw_only=True)
class TunedPlanDocument(PlanDocument):
    """A plan with the fastest layout that was measured in place of its answer."""

    tuned: Tuned
    """What was measured, separate from what was proved."""


def tuned_plan(text: str, found: Finished, measured: Measured = NOTHING) -> Json:
    """A plan's document with the fastest layout that was measured in place of its answer.

    The certificate and the alternatives stay: they are of the model before any trial. `tuned` has
    what was measured, and what remains possible.
    """
    document: dict[str, object] = json.loads(text)
    stated = Tuned.of_fields(found).as_part()
    if found.best is None:
        return {**document, "tuned": stated}
    job, before = chosen_from_json(text)
    options = RuntimeOptions.model_validate(found.best.options)
    job, layout = job.model_copy(update={"options": options}), found.best.layout
    best = {
        "layout": layout_json(job, layout),
        "estimate": estimate_json(estimate(job, layout, measured)),
    }
    placement = document.get("placement") if layout == before else None
    return {
        **document,
        **OfJob(**of_job(job)).json(),
        "best": best,
        "placement": placement,
        "tuned": stated,
    }
