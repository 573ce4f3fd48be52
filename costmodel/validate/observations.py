"""From measured runs to what a calibration is fitted on."""

from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import Observation
from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.validate.cases.cases import Case, Skipped, case_of
from trainplan.costmodel.validate.cases.legality import impossible
from trainplan.costmodel.validate.steps import has_comparable_step, measured_step_seconds


def observation_of(run: MeasuredRun) -> Observation | str:
    """A run as an observation, or why it is none."""
    case, seconds = case_of(run), measured_step_seconds(run)
    if isinstance(case, Skipped):
        return case.detail
    if seconds is None:
        return "neither measured.step_time_s nor measured.tokens_per_s_per_gpu is stated"
    reason = _not_compared(run) or _not_priced(case)
    if reason:
        return reason
    return Observation(run.id, run.source_group, case.job, case.layout, seconds)


def _not_compared(run: MeasuredRun) -> str:
    """Why a measured step does not count; empty where it does."""
    if run.suspect:
        return "marked suspect"
    if not run.strict:
        return "marked as not strict"
    return "" if has_comparable_step(run, everything=False) else "its use is not step_time"


def _not_priced(case: Case) -> str:
    """Why the step of a run cannot be priced; empty where it can."""
    if not case.timed:
        return "the GPU is not stated"
    broken = impossible(case)
    if broken:
        return broken
    try:
        machine_of(case.job.cluster, case.job.training.precision)
    except PlanError as error:
        return str(error)
    return ""
