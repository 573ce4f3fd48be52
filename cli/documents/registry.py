"""All public documents, and who writes or reads them.

To add one: write its class and one line here; `tests/e2e/test_schemas.py` wants one of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from trainplan.cli.documents import catalog, compared, schedules, searches, sweep, validate, verify
from trainplan.cli.documents.check import CheckDocument
from trainplan.cli.documents.explain import ExplainDocument
from trainplan.cli.documents.schema import Mode, schema_of
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.documents import Calibration, MeasuredRun
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.profiles import Profile
from trainplan.planner.documents import PlanDocument
from trainplan.planner.goals import ParetoDocument
from trainplan.planner.tuning import SCHEMA as MACHINE_SCHEMA
from trainplan.planner.tuning import Event, MachineDocument, TunedPlanDocument

READ: Mode = "validation"
WRITTEN: Mode = "serialization"


@dataclass(frozen=True, slots=True)
class Entry:
    """One document."""

    kind: object
    says: str
    mode: Mode = WRITTEN
    """A document that is read says what may be left out; of one that is written all is there."""
    name: str = ""
    """Value of its key `schema`, where its class has no such field."""


DOCUMENTS: Mapping[str, Entry] = MappingProxyType(
    {
        "plan": Entry(PlanDocument, "plan search --json and --output"),
        "infeasible": Entry(searches.InfeasibleDocument, "plan search --json, where nothing fits"),
        "pareto": Entry(ParetoDocument, "plan search --pareto --json"),
        "estimate": Entry(searches.EstimateDocument, "plan estimate --json"),
        "explain": Entry(ExplainDocument, "plan explain --json"),
        "why-not": Entry(compared.WhyNotDocument, "plan why-not --json"),
        "compare": Entry(compared.CompareDocument, "plan compare --json"),
        "sweep": Entry(sweep.SweepDocument, "plan sweep --json"),
        "check": Entry(CheckDocument, "plan check --json"),
        "tune-event": Entry(Event, "a line of plan tune --json"),
        "tuned-plan": Entry(TunedPlanDocument, "plan.json in the folder of plan tune"),
        "validate": Entry(validate.ValidateDocument, "plan validate --json"),
        "verify-event": Entry(verify.VerifyEvent, "a line of plan verify --json"),
        "schedule": Entry(schedules.ScheduleDocument, "plan schedule --json"),
        "schedules": Entry(schedules.RankingDocument, "plan schedule --kind all --json"),
        "simulate": Entry(schedules.SimulateDocument, "plan simulate --json"),
        "catalog": Entry(catalog.CatalogDocument, "plan catalog ... --json, by kind"),
        "calibration": Entry(
            Calibration,
            "plan calibrate --json and --output; read as --profile",
            READ,
            Calibration.SCHEMA,
        ),
        "profile": Entry(
            Profile,
            "plan profile and plan import; read as --profile and --cluster",
            READ,
            Profile.SCHEMA,
        ),
        "cluster": Entry(ClusterSpec, "a file for --cluster, YAML or JSON", READ),
        "model": Entry(ModelSpec, "a file for --model, YAML", READ),
        "run": Entry(MeasuredRun, "a line of a file for plan validate and plan calibrate", READ),
        "machine": Entry(
            MachineDocument,
            "a file for plan tune --simulate, YAML or JSON",
            READ,
            MACHINE_SCHEMA,
        ),
    }
)


@cache
def document_schema(name: str) -> Mapping[str, object]:
    """The JSON Schema of a document."""
    entry = DOCUMENTS[name]
    found = schema_of(entry.kind, entry.mode)
    if entry.name:
        properties, required = found["properties"], found.get("required", [])
        assert isinstance(properties, dict)
        assert isinstance(required, list)
        found["properties"] = {"schema": {"const": entry.name, "type": "string"}, **properties}
        found["required"] = ["schema", *required]
    return found
