"""Which documents have a report, and what makes its page: one line a kind."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from trainplan.cli.blocks import Page, html
from trainplan.cli.documents import (
    CompareDocument,
    InfeasibleDocument,
    SweepDocument,
    ValidateDocument,
)
from trainplan.cli.pages.report.compare import Compared, compare_page
from trainplan.cli.pages.report.pareto import Front, pareto_page
from trainplan.cli.pages.report.plan.page import plan_page
from trainplan.cli.pages.report.profile import profile_page
from trainplan.cli.pages.report.read import read
from trainplan.cli.pages.report.sweep import Swept, sweep_page
from trainplan.cli.pages.report.tune import TunedPlan, tuned_page
from trainplan.cli.pages.report.validate import validate_page
from trainplan.costmodel.base import SpecError, unknown_name
from trainplan.costmodel.calibration import NOTHING, Measured
from trainplan.costmodel.profiles import Profile
from trainplan.planner.documents import PlanDocument
from trainplan.planner.goals import ParetoDocument


@dataclass(frozen=True, slots=True)
class Request:
    """A document to be drawn."""

    name: str
    """Of its file, as commands of the page name it."""
    text: str
    values: Mapping[str, object]
    measured: Measured = NOTHING
    """What `--profile` states of the machine, where something is priced again."""


def _plan_page(request: Request) -> Page:
    """Of a plan; of a tuned one first what was measured, then its fastest measured layout."""
    if request.values.get("tuned") is None:
        return plan_page(request.name, request.text, request.measured)
    page = tuned_page(read(TunedPlan, request.values))
    plan = plan_page(request.name, request.text, request.measured)
    return replace(page, sections=(*page.sections, *plan.sections))


def _plain(values: Mapping[str, object]) -> Mapping[str, object]:
    """A document without its schema."""
    return {name: value for name, value in values.items() if name != "schema"}


Builder: TypeAlias = Callable[[Request], Page]
KINDS: Mapping[str, Builder] = MappingProxyType(
    {
        PlanDocument.SCHEMA: _plan_page,
        CompareDocument.SCHEMA: lambda request: compare_page(read(Compared, request.values)),
        SweepDocument.SCHEMA: lambda request: sweep_page(read(Swept, request.values)),
        ValidateDocument.SCHEMA: lambda request: validate_page(
            read(ValidateDocument, request.values)
        ),
        Profile.SCHEMA: lambda request: profile_page(read(Profile, _plain(request.values))),
        ParetoDocument.SCHEMA: lambda request: pareto_page(read(Front, request.values)),
    }
)
"""Schema of a document -> its page."""
HOW = "`plan search --output` writes plans"


def written(name: str, text: str, measured: Measured = NOTHING) -> str:
    """The file of the report of a document that was made here.

    Raises:
        PlanError: As `page_of`.
    """
    return html(page_of(Request(name, text, json.loads(text), measured)))


def page_of(request: Request) -> Page:
    """The page of a document.

    Raises:
        SpecError: It is none of ours, of another version, or has nothing to draw.
        CatalogError: No such kind of document has a report.
    """
    schema = request.values.get("schema")
    if not isinstance(schema, str):
        raise SpecError(f"no document of plan: the key 'schema' is missing; {HOW}")
    if schema in KINDS:
        return KINDS[schema](request)
    if schema == InfeasibleDocument.SCHEMA:
        raise SpecError(f"nothing fits, so there is no layout to draw{_helps(request.values)}")
    others = {known.rpartition("/")[0]: known for known in KINDS}
    if known := others.get(schema.rpartition("/")[0]):
        raise SpecError(f"schema {schema[:80]!r} is not {known!r}: make it again with this version")
    raise unknown_name("schema with a report", schema[:80], KINDS, f"known: {', '.join(KINDS)}")


def _helps(values: Mapping[str, object]) -> str:
    """The first set of changes with which something fits."""
    sets = values.get("relaxations")
    first = sets[0] if isinstance(sets, list) and sets else None
    return f"; it fits with: {' and '.join(map(str, first))}" if isinstance(first, list) else ""
