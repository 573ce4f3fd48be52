"""What unequal experts, capacity and padding do to a layout, and what imbalance costs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.routing import Load, LoadShift, changes_rows, load, local_tokens, places
from trainplan.costmodel.step import Estimate
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.load_shift import load_shift

NOTICED = 5e-4
"""Less than 0.05 % of the rows is not printed."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The experts of one layer under the routing and the options of a job."""

    routing: str
    """As `--option routing` takes it."""
    ranks: int
    """That experts are spread over."""
    fullest_rank: float
    """Rows of the fullest of them, expected, over those of balanced tokens without padding."""
    dropped_fraction: float
    """Of the rows that routers chose."""
    padded_fraction: float
    """Of the rows that are computed."""
    seconds: float
    """Of a step, more than with balanced tokens."""
    cost_fraction: float
    """The same over a step with balanced tokens."""

    def json(self) -> dict[str, object]:
        """As plain JSON values."""
        return asdict(self)


def balanced(job: Job) -> Job:
    """The same job with equal rows for every expert."""
    options = job.options.model_copy(update={"routing": None})
    return job.model_copy(update={"options": options})


def imbalance(
    job: Job, layout: Layout, step_time_s: float, measured: Measured = NOTHING
) -> Imbalance | None:
    """What a step of so many seconds takes more than with balanced tokens; null: nothing stated."""
    found = _load(job, layout)
    if found is None:
        return None
    even = estimate(balanced(job), layout, measured).step_time_s
    return Imbalance(
        routing=str(job.options.routing or "balanced"),
        ranks=layout.ep,
        fullest_rank=found.fullest,
        dropped_fraction=found.dropped_fraction,
        padded_fraction=found.padded_fraction,
        seconds=step_time_s - even,
        cost_fraction=step_time_s / even - 1,
    )


def expert_costs(
    job: Job, layout: Layout, priced: Estimate, measured: Measured = NOTHING
) -> tuple[Imbalance | None, LoadShift | None]:
    """What unequal experts cost of a priced layout, and how steps differ in it."""
    return (
        imbalance(job, layout, priced.step_time_s, measured),
        load_shift(job, layout, priced, measured),
    )


def imbalance_notes(job: Job, layout: Layout) -> Iterator[str]:
    """How full the fullest rank is, and what is dropped, of a layout."""
    found = _load(job, layout)
    if found is None:
        return
    name = f"routing={job.options.routing or 'balanced'}"
    if (placement := job.options.expert_placement) is not None:
        name += f", expert_placement={placement}"
    yield (
        f"{name}: in every layer the fullest of {layout.ep} expert ranks is expected to compute "
        f"{found.fullest:.3f} times the rows of balanced experts; `plan explain` shows what that "
        "costs"
    )
    if job.options.routing and job.options.routing.kind == "load" and layout.ep > 1:
        yield (
            f"not known whether memory holds when load shifts: routing={job.options.routing} is "
            "one load for all steps and layers; counts by step show it (routing=FILE)"
        )
    yield from _placement_notes(job, layout)
    if found.padded_fraction > NOTICED:
        yield f"{found.padded_fraction:.1%} of the rows that experts compute are padding"
    factor = job.options.moe_capacity_factor
    if factor is not None:
        yield (
            f"changes the training: moe_capacity_factor={factor:g} drops what is beyond an "
            f"expert's capacity, under {name} {found.dropped_fraction:.1%} of the rows that "
            "routers choose"
        )


def _placement_notes(job: Job, layout: Layout) -> Iterator[str]:
    """Whether a placement by rows is what is priced, and whether its gain is held-out."""
    moe, routing, placement = job.model.moe, job.options.routing, job.options.expert_placement
    if not job.options.permutes_experts or moe is None or layout.ep == 1:
        return
    if not places(moe, layout.ep):
        yield (
            f"expert_placement={placement} is priced as order: {layout.ep} expert ranks have no "
            f"whole groups of the {moe.n_group or 1} that the router keeps to, or no equal "
            "numbers of experts; use another ep"
        )
    elif routing and routing.has_popular_experts:
        later = "`plan explain` has it" if routing.steps else "not known"
        yield (
            "experts are placed by the same rows that price the step "
            f"(expert_placement={placement}), so its gain is not held-out: {later} of later steps"
        )


def _load(job: Job, layout: Layout) -> Load | None:
    """The load of its experts; null: all compute the rows of balanced tokens."""
    if not changes_rows(job):
        return None
    tokens = float(local_tokens(job, LayoutTable.of([layout]))[0])
    return load(job, ep=layout.ep, etp=layout.etp, tokens=tokens)
