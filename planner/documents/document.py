"""Documents: what is written as JSON, each a class of its keys, and that of a plan.

A class is the form of a document, its schema and the text of its keys. A value of it is made `of`
an answer and written by `json`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from inspect import get_annotations
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic_core import to_jsonable_python

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec, Placement
from trainplan.costmodel.job import Job, OuterSpec, TrainingSpec
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.routing import LoadShift
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import Estimate
from trainplan.planner.documents.chosen import SCHEMA as PLAN_SCHEMA
from trainplan.planner.documents.chosen import model_json
from trainplan.planner.documents.layout import Json, WrittenStage, layout_json
from trainplan.planner.evidence import Evidence
from trainplan.planner.plan import (
    Apart,
    Certificate,
    OtherSchedule,
    OuterStep,
    Plan,
    Source,
    Spent,
    changes_training,
)
from trainplan.planner.settings import Assumed

FIRST = ("event", "schema")
"""Keys that are before all others."""


@cache
def package_version() -> str | None:
    """Of this package; null: it is not installed."""
    metadata = import_module("importlib.metadata")  # slow, and needed where JSON is written alone
    try:
        return str(metadata.version("trainplan"))
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class Document:
    """Base of all: a key with a default here is left out where it has that value."""

    TEXTS: ClassVar[Mapping[str, str]] = {}
    """What keys of a base mean here, where that differs."""
    SCHEMA: ClassVar[Any] = ""
    """Value of the key `schema`, where there is one."""
    VERSION: ClassVar = "trainplan_version"
    """Key of all that are no part of another, or have a schema of their own; no line of events."""

    @classmethod
    def of_fields(cls, answer: object, /, **other: object) -> Self:
        """The document of an answer: the fields that it has by the same name, and `other` ones."""
        other = {"schema": cls.SCHEMA} | other if cls.SCHEMA else other
        names = (one.name for one in fields(cls))
        same: dict[str, Any] = {name: getattr(answer, name) for name in names if name not in other}
        return cls(**same, **other)

    def json(self) -> Json:
        """Its plain JSON values: schema and version, then what the bases state, then the class."""
        values = self.as_part()
        if "event" in values:
            return values
        first = {"schema": values["schema"]} if "schema" in values else {}
        return {**first, self.VERSION: package_version(), **values}

    def as_part(self) -> Json:
        """The same without the version."""
        return {
            name: _plain(getattr(self, name))
            for name in sorted(_in_order(type(self)), key=lambda name: name not in FIRST)
            if getattr(self, name) != getattr(type(self), name, MISSING)
        }


def _in_order(kind: type) -> list[str]:
    """Fields of a class: those of each base in turn, then its own, also those that it repeats."""
    if not is_dataclass(kind):
        return []
    below = [name for base in kind.__bases__ for name in _in_order(base)]
    known = {one.name for one in fields(kind)}
    own = [name for name in get_annotations(kind) if name in known]
    return [*(name for name in below if name not in own), *own]


def _plain(value: object) -> object:
    if isinstance(value, Document):
        return value.json() if value.SCHEMA else value.as_part()
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return to_jsonable_python(value, by_alias=False)


BASES: dict[type, type] = {}
"""What a class below is written of."""


def document_class(
    called: str, base: type[BaseModel], says: str, /, **own: object
) -> type[BaseModel]:
    """The fields of a spec as its document has them, with keys that come to them or differ.

    Of `own` keys each is a kind, or a kind and what the key means.
    """
    values: dict[str, Any] = {
        field: (info.annotation, info) for field, info in base.model_fields.items()
    }
    for key, kind in own.items():
        of_kind, text = kind if isinstance(kind, tuple) else (kind, None)
        values[key] = of_kind, Field(description=text)
    made = create_model(called, __config__=ConfigDict(defer_build=True), __doc__=says, **values)
    BASES[made] = base
    return made


WrittenModel = document_class(
    "WrittenModel",
    ModelSpec,
    "A model with its exact parameter counts.",
    num_parameters=(int, "Exact; tied embeddings once, no multi-token-prediction modules."),
    num_active_parameters=(int, "Those one token visits."),
)
WrittenOffload = document_class(
    "WrittenOffload",
    OffloadSpec,
    "What is kept off the GPU.",
    activations=(float, "As `checkpoints`."),
    parameters=(
        float,
        "Share of the weights that is off the GPU between passes, 0 or 1; `parameters_tier` names "
        "where.",
    ),
    parameters_tier=Literal["cpu", "nvme"] | None,
)
WrittenLayout = document_class(
    "WrittenLayout",
    Layout,
    "One complete parallel layout, with the numbers that follow.",
    dp_shard=(int, "`dp / dp_replicate`: replicas one copy of the states is sharded over."),
    num_microbatches=(int, "Micro batches of one replica in one step."),
    num_microbatches_per_replica=(tuple[int, ...] | None, "Null: all replicas run equally many."),
    offload=WrittenOffload,
    stages=(
        tuple[WrittenStage, ...] | None,
        "Null when every virtual stage holds equally many layers; else one entry per virtual stage "
        "in order: `layers` (`dense`, `moe`, `mtp`), `embedding`, `head`, `recompute`, `offload`, "
        "`group`.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class OfJob(Document):
    """What was requested."""

    model: WrittenModel  # type: ignore[valid-type]
    """The model with its exact parameter counts."""
    training: TrainingSpec
    """What is trained, without how it is laid out."""
    changes_training: tuple[str, ...]
    """What was requested that trains other weights from the same data, a sentence each; usually
    empty."""
    states: str
    """What weights, gradients and moments are kept in, and whether that is assumed."""
    cluster: ClusterSpec
    """Where."""
    runtime: str
    """Id of the runtime the plan is made for."""
    release: str | None
    """Software that runs, as `--runtime-version` states; null: the newest known."""
    outer: OuterSpec | None
    """Islands that train alone between outer steps, of which `cluster` and the batch are one; null:
    there is one cluster."""
    options: dict[str, object]
    """What `--option` set of the runtime; empty: its defaults."""
    reserve_bytes: float
    """Memory of every GPU left to another tenant (`--reserve`)."""
    reserve_host_bytes: float
    """Memory of every host left to another tenant (`--reserve-host`)."""


def of_job(job: Job) -> dict[str, Any]:
    """The fields of `OfJob`."""
    same = (
        *("training", "cluster", "runtime", "release", "outer"),
        *("reserve_bytes", "reserve_host_bytes"),
    )
    return {name: getattr(job, name) for name in same} | {
        "model": model_json(job.model),
        "changes_training": tuple(change.says for change in changes_training(job)),
        "states": traits_of(job).states_text(job),
        "options": job.options.stated(),
    }


@dataclass(frozen=True, kw_only=True)
class Priced(Document):
    """A layout and what it costs."""

    layout: WrittenLayout  # type: ignore[valid-type]
    estimate: Estimate


class _HasPrice(Protocol):
    @property
    def layout(self) -> Layout: ...
    @property
    def estimate(self) -> Estimate: ...


def of_priced(job: Job, priced: _HasPrice) -> dict[str, Any]:
    """The fields of `Priced`, of what has a layout and its estimate."""
    return {"layout": layout_json(job, priced.layout), "estimate": priced.estimate}


@dataclass(frozen=True, kw_only=True)
class Notes(Document):
    """Where the answer comes from."""

    notes: tuple[str, ...]
    """Assumptions and warnings."""


@dataclass(frozen=True, kw_only=True)
class CandidateEntry(Priced):
    """One layout of the table of alternatives."""

    rank: int
    """Place in the table, from 1."""
    near_tie: bool
    """So close to the best that it is the faster one in a third of cases or more."""
    inside_measured: bool | None
    """No degree or knob is beyond what was measured; null: not requested."""
    layout: WrittenLayout  # type: ignore[valid-type]
    """The layout."""
    estimate: Estimate
    """What it costs."""


@dataclass(frozen=True, kw_only=True)
class Provenance(Notes):
    """Where a plan comes from."""

    runtime_version: str
    memory_margin: float
    choices: tuple[str, ...]
    """What the search was held to, as on the command line."""
    sources: tuple[Source, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlanDocument(OfJob):
    """A chosen layout, its estimate, the alternatives, and the proof."""

    SCHEMA = PLAN_SCHEMA
    schema: Literal["trainplan/plan/v1"]
    """Name and version of this form."""
    best: Priced
    """`layout` and `estimate` of the answer."""
    candidates: tuple[CandidateEntry, ...]
    """The alternatives, the answer first."""
    certificate: Certificate
    """What was searched and what is proven."""
    refused: dict[str, int]
    """Layouts refused, by the first rule they break."""
    other_schedules: tuple[OtherSchedule, ...]
    """The best layout under schedules the runtime does not execute, fastest first; empty without a
    pipeline."""
    placement: Placement | None
    """Nodes in rank order, where the cluster file has measured links; else null."""
    apart: Apart | None
    """A tower on GPUs of its own (`--fix tower=apart`): the split, both steps, what is proved;
    null: there is none. `cluster` is then that of the decoder."""
    outer_step: OuterStep | None
    """Islands that take local steps, of which `cluster` and the batch are one; or what they would
    make of the plan (`chosen` is false); null: there are none, or they are no faster."""
    evidence: Evidence | None
    """How far the answer is from what was ever measured; `plan estimate --json` has it, too."""
    spent: Spent | None
    """What a step and the run take: energy, carbon dioxide, money; `plan estimate --json` has it,
    too."""
    assumed: tuple[Assumed, ...]
    """Settings that the answer is priced with, defaults too, and what each saves."""
    load_shift: LoadShift | None
    """Step time and memory by step, as experts fill differently; null: no `routing` is stated, or
    ranks have the same rows in all steps. `plan estimate --json` and `plan explain --json` have it,
    too."""
    provenance: Provenance
    """`runtime_version`, `memory_margin`, `choices` (`--fix`, `--exclude` and `--trusted`),
    `sources` of the machine's numbers, and `notes`."""

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """A plan as the public document."""
        job = plan.job
        return cls.of_fields(
            plan,
            **of_job(job),
            best=Priced(**of_priced(job, plan.best)),
            candidates=tuple(
                CandidateEntry.of_fields(one, **of_priced(job, one)) for one in plan.candidates
            ),
            provenance=Provenance.of_fields(plan),
        )


def estimate_json(estimate: Estimate) -> Json:
    """An estimate as plain JSON values."""
    value = to_jsonable_python(estimate, by_alias=False)
    assert isinstance(value, dict)
    return value


def plan_json(plan: Plan) -> Json:
    """A plan as the public document `trainplan/plan/v1`."""
    return PlanDocument.of(plan).json()
