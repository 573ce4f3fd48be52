"""Parts that documents share, as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, create_model

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import TrainingSpec
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.step import Estimate
from trainplan.planner.plan.layout_document import WrittenStage
from trainplan.planner.questions.compare import FieldDifference


@dataclass(frozen=True, kw_only=True)
class Document:
    """Base of all: a key with a default here may be left out there."""

    KEYS: ClassVar[str] = ""
    """Under which name `keys.json` says what the keys mean."""


BASES: dict[type, tuple[type, str]] = {}
"""What a class below is written of, and where `keys.json` has the keys that come to it."""


def written(
    called: str, base: type[BaseModel], keys: str, says: str, /, **own: object
) -> type[BaseModel]:
    """The fields of a spec as its document has them, with keys that come to them or differ."""
    fields: dict[str, Any] = {
        field: (info.annotation, info) for field, info in base.model_fields.items()
    }
    fields |= {key: (kind, ...) for key, kind in own.items()}
    made = create_model(called, __config__=ConfigDict(defer_build=True), __doc__=says, **fields)
    BASES[made] = base, keys
    return made


WrittenModel = written(
    "WrittenModel",
    ModelSpec,
    "model",
    "A model with its exact parameter counts.",
    num_parameters=int,
    num_active_parameters=int,
)
WrittenOffload = written(
    "WrittenOffload",
    OffloadSpec,
    "layout.offload",
    "What is kept off the GPU.",
    activations=float,
    parameters=float,
    parameters_tier=Literal["cpu", "nvme"] | None,
)
WrittenLayout = written(
    "WrittenLayout",
    Layout,
    "layout",
    "One complete parallel layout, with the numbers that follow.",
    dp_shard=int,
    num_microbatches=int,
    num_microbatches_per_replica=tuple[int, ...] | None,
    offload=WrittenOffload,
    stages=tuple[WrittenStage, ...] | None,
)


@dataclass(frozen=True, kw_only=True)
class OfJob(Document):
    """What was asked."""

    KEYS = "plan"
    model: WrittenModel  # type: ignore[valid-type]
    training: TrainingSpec
    changes_training: tuple[str, ...]
    cluster: ClusterSpec
    runtime: str
    options: dict[str, object]
    reserve_bytes: float
    reserve_host_bytes: float


@dataclass(frozen=True, kw_only=True)
class Priced(Document):
    """A layout and what it costs."""

    layout: WrittenLayout  # type: ignore[valid-type]
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class Notes(Document):
    """Where the answer comes from."""

    notes: tuple[str, ...]
    """Assumptions and warnings."""


@dataclass(frozen=True, kw_only=True)
class Remedy(Document):
    """A layout that runs, and what it changes."""

    changes: tuple[FieldDifference, ...]
    step_time_s: float
    peak_reserved_bytes: float
    layout: Layout
