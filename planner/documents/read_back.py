"""A whole plan from its document: what `plan_json` wrote, back as a `Plan`."""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.layout import layout_from_json
from trainplan.planner.plan import Candidate, Plan

_BEST = {"rank": 1, "near_tie": False, "inside_measured": None}
"""Of the answer, whose row of the table it may not be: a tuned plan has another one."""
_PLAN = TypeAdapter(Plan)
_ELSEWHERE = ("runtime_version", "memory_margin", "choices", "sources", "notes")
"""Fields that the document keeps under `provenance`."""
_SAME = (
    *("certificate", "refused", "other_schedules", "placement", "apart", "evidence", "spent"),
    *("assumed", "load_shift"),
)


def plan_from_json(text: str) -> Plan:
    """Read `plan_json` back.

    Raises:
        SpecError: The text is no plan of this version, or a part of it is missing or wrong.
    """
    job, layout = chosen_from_json(text)
    document = json.loads(text)
    try:
        stated = document["provenance"]
        best = {**_BEST, "layout": layout, "estimate": document["best"]["estimate"]}
        listed = [_candidate(one) for one in document["candidates"]]
        plan = _PLAN.validate_python(
            {
                **{name: document[name] for name in _SAME if name in document},
                **{name: stated[name] for name in _ELSEWHERE if name in stated},
                "job": job,
                "best": best,
                "candidates": listed,
            }
        )
    except ValidationError as error:
        first = first_complaint(error)
        raise SpecError(f"field {first.field!r}: {first.reason}: make the plan again") from error
    except KeyError as error:
        raise SpecError(f"field {error} is missing: make the plan again") from error
    except (AttributeError, TypeError) as error:
        raise SpecError("a part of the plan is of the wrong kind: make it again") from error
    ranks = [one.rank for one in plan.best.estimate.memory.pipeline_ranks]
    if not ranks or ranks != list(range(len(ranks))):
        raise SpecError(
            "field 'best.estimate.memory.pipeline_ranks': not one entry for each pipeline rank, in "
            "order: make the plan again"
        )
    return plan


def _candidate(written: Mapping[str, object]) -> Candidate:
    """A row of the table."""
    values = {name: written.get(name) for name in Candidate.model_fields}
    if not isinstance(layout := written["layout"], dict):
        raise TypeError(layout)
    return Candidate.model_validate({**values, "layout": layout_from_json(layout)})
