"""A richer job is never answered worse: more memory, faster links, one choice fewer."""

from collections.abc import Iterator
from contextlib import suppress

from tests.attack.claims import ROUNDING, Question
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import PlanError, SpecError
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions.changes.variations import (
    Case,
    with_choice,
    with_memory_by,
    with_nic,
)
from trainplan.planner.questions.search import search
from trainplan.planner.space import parse_choice

FIXED = ("tp", "pp", "dp", "cp", "micro_batch_size", "zero_stage", "sequence_parallel", "recompute")
OTHERS = ("tp=2", "pp=2", "dp=2", "micro_batch_size=2", "zero_stage=1", "recompute=full")


def contradictions(question: Question, plan: Plan) -> Iterator[str]:
    """Changed jobs whose answers contradict that of a job."""
    case = Case(question.job, question.options)
    more = question.rng.choice((1.02, 1.3, 2.0))
    yield from _worse(plan, with_memory_by(case, more), f"memory x {more}")
    with suppress(SpecError):  # one scale-up domain
        yield from _worse(plan, with_nic(case, more), f"NIC x {more}")
    name = question.rng.choice(FIXED)
    axis = next(axis for axis in AXES if axis.name == name)
    own = parse_choice(f"{axis.option}={axis.text(plan.best.layout)}", excluded=False)
    held = _answer(with_choice(case, own))
    if held is None or _least(held) > _value(plan) * (1 + ROUNDING):
        yield f"--fix {own.text} loses the answer that has it"
    other = parse_choice(question.rng.choice(OTHERS), excluded=False)
    if other.field in {choice.field for choice in case.options.fix}:
        return
    held = _answer(with_choice(case, other))
    if held is not None and _value(held) < _least(plan) * (1 - ROUNDING):
        yield f"--fix {other.text} gives {_value(held)}, less than the proved {_least(plan)}"


def _worse(plan: Plan, richer: Case, text: str) -> Iterator[str]:
    found = _answer(richer)
    if found is None or _least(found) > _value(plan) * (1 + ROUNDING):
        yield f"{text}: at least {found and _least(found)}, though {_value(plan)} was reached"


def _answer(case: Case) -> Plan | None:
    try:
        found = search(case.job, SearchOptions.model_validate(dict(case.options)))
    except PlanError:
        return None
    return found if isinstance(found, Plan) else None


def _value(plan: Plan) -> float:
    return plan.certificate.objective.value


def _least(plan: Plan) -> float:
    """No layout has a smaller figure, and where the answer is the best none has its own but it."""
    target = plan.certificate.objective
    return target.value if plan.certificate.optimal else target.lower_bound
