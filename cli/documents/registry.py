"""All public documents, who writes or reads them, and from a class to its schema.

To add one: write its class and one line here; `tests/e2e/test_schemas.py` wants one of it.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, cast

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from trainplan.cli.documents import (
    catalog,
    compared,
    files,
    replan,
    schedules,
    searches,
    sweep,
    validate,
    verify,
)
from trainplan.cli.documents.check import CheckDocument
from trainplan.cli.documents.explain import ExplainDocument
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.documents import Calibration, MeasuredRun
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.profiles import Profile
from trainplan.planner.comparisons import OffersDocument
from trainplan.planner.documents import BASES, Document, PlanDocument
from trainplan.planner.goals import ParetoDocument
from trainplan.planner.tuning import SCHEMA as MACHINE_SCHEMA
from trainplan.planner.tuning import Event, MachineDocument, TunedPlanDocument

Mode = Literal["validation", "serialization"]
VERSION = {
    "type": ["string", "null"],
    "description": "Of the package that wrote it; null: it is not installed. Older ones lack it.",
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: object, mode: Mode) -> dict[str, object]:
    """The schema of a class; of what we write, every key is there, and further ones may come."""
    adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", kind))
    generated = adapter.json_schema(mode=mode, schema_generator=_Described)
    plain = _open(generated) if mode == "serialization" else generated
    assert isinstance(plain, dict)
    return {"$schema": DIALECT, **plain}


class _Described(GenerateJsonSchema):
    """Without titles, which repeat names, and with the meanings of keys."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Never."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """A spec."""
        return self._with_meanings(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """A result or a document."""
        return self._with_meanings(super().dataclass_schema(schema), schema["cls"])

    def _with_meanings(self, value: JsonSchemaValue, owner: type) -> JsonSchemaValue:
        properties = value.get("properties", {})
        if issubclass(owner, Document) and owner.SCHEMA:
            value["properties"] = properties = {Document.VERSION: VERSION, **properties}
        known = meanings(owner)
        for name, one in properties.items():
            if name in known:
                one.setdefault("description", known[name])
        if self.mode == "serialization" and not issubclass(owner, Document):
            value["required"] = list(properties)
        value.pop("title", None)
        return value


def _open(value: object) -> object:
    """Without the refusal of other keys."""
    if isinstance(value, list):
        return [_open(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _open(one)
        for key, one in value.items()
        if not (key == "additionalProperties" and one is False)
    }


@cache
def meanings(owner: type) -> Mapping[str, str]:
    """What the fields of a class mean, those of its bases included."""
    if owner in BASES:
        return meanings(BASES[owner])
    texts: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            texts |= {name: text for name, text in documented(base) if text}
            texts |= vars(base).get("TEXTS", {})
    return texts


def documented(owner: type) -> Iterator[tuple[str, str]]:
    """Fields of a class with the docstrings that follow them; empty where there is none."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if "ClassVar" in ast.unparse(field.annotation):
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        yield field.target.id, text


READ: Mode = "validation"
WRITTEN: Mode = "serialization"


@dataclass(frozen=True, slots=True)
class Entry:
    """One document."""

    kind: object
    says: str
    mode: Mode = WRITTEN
    """Of a document that is read, what may be left out; of one that is written all is there."""
    name: str = ""
    """Value of its key `schema`, where its class has no such field."""


DOCUMENTS: Mapping[str, Entry] = MappingProxyType(
    {
        "plan": Entry(PlanDocument, "plan search --json and --output"),
        "infeasible": Entry(searches.InfeasibleDocument, "plan search --json, where nothing fits"),
        "offers": Entry(OffersDocument, "plan search --offers --json"),
        "pareto": Entry(ParetoDocument, "plan search --pareto --json"),
        "estimate": Entry(searches.EstimateDocument, "plan estimate --json"),
        "explain": Entry(ExplainDocument, "plan explain --json"),
        "why-not": Entry(compared.WhyNotDocument, "plan why-not --json"),
        "compare": Entry(compared.CompareDocument, "plan compare --json"),
        "replan": Entry(replan.ReplanDocument, "plan replan --json"),
        "sweep": Entry(sweep.SweepDocument, "plan sweep --json"),
        "check": Entry(CheckDocument, "plan check --json"),
        "files": Entry(files.FilesDocument, "plan export --json and plan report --json"),
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
            MachineDocument, "a file for plan tune --simulate, YAML or JSON", READ, MACHINE_SCHEMA
        ),
    }
)


@cache
def document_schema(name: str) -> Mapping[str, object]:
    """The JSON Schema of a document."""
    entry = DOCUMENTS[name]
    found = schema_of(entry.kind, entry.mode)
    if inspect.isclass(entry.kind) and issubclass(entry.kind, Document):
        assert isinstance(found["properties"], dict)
        found["properties"] = {Document.VERSION: VERSION, **found["properties"]}
    if entry.name:
        properties, required = found["properties"], found.get("required", [])
        assert isinstance(properties, dict)
        assert isinstance(required, list)
        found["properties"] = {"schema": {"const": entry.name, "type": "string"}, **properties}
        found["required"] = ["schema", *required]
    return found
