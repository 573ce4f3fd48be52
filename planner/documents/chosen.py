"""The chosen layout of a plan out of its document, and what the document must agree with."""

import json
from collections.abc import Mapping
from typing import cast

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError, read_json
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.model import num_active_parameters, num_parameters
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.documents.layout import (
    ABSENT,
    Json,
    layout_from_json,
    layout_json,
    with_later_keys,
)

SCHEMA = "trainplan/plan/v1"
"""A public contract: keys are never renamed or removed within a version."""
COUNTS = ("num_parameters", "num_active_parameters")
"""What the model of a document has with the fields of a model."""


def model_json(model: ModelSpec) -> Json:
    """A model with its exact parameter counts."""
    return {
        **model.model_dump(mode="json"),
        "num_parameters": num_parameters(model),
        "num_active_parameters": num_active_parameters(model),
    }


def chosen_from_json(text: str) -> tuple[Job, Layout]:
    """The job and the chosen layout of a plan document: all an exporter needs.

    Raises:
        SpecError: Not JSON, not a plan, another schema version, a field that is wrong, or one that
            contradicts the others.
    """
    document = _document(text)
    try:
        model, best = document["model"], document["best"]["layout"]
        counts = {key: model.get(key, ABSENT) for key in COUNTS}
        shape = {key: value for key, value in model.items() if key not in COUNTS}
        job = Job.model_validate(
            {
                "model": ModelSpec.model_validate(shape),
                "training": TrainingSpec.model_validate(document["training"]),
                "cluster": ClusterSpec.model_validate(document["cluster"]),
                "runtime": document["runtime"],
                "release": document.get("release"),
                "options": document.get("options", {}),
                "outer": document.get("outer"),
                "reserve_bytes": document.get("reserve_bytes", 0),
                "reserve_host_bytes": document.get("reserve_host_bytes", 0),
            }
        )
        layout = layout_from_json(best)
    except ValidationError as error:
        first = first_complaint(error)
        raise SpecError(f"field {first.field!r}: {first.reason}") from error
    except KeyError as error:
        raise SpecError(f"field {error} is missing: make the plan again") from error
    except (AttributeError, TypeError) as error:
        raise SpecError("a part of the plan is of the wrong kind: make it again") from error
    _require_equal(with_later_keys(best), layout_json(job, layout), "best.layout")
    intended = model_json(job.model)
    for key, count in counts.items():
        _require_equal(count, intended[key], f"model.{key}")
    return job, layout


def _document(text: str) -> dict[str, dict[str, Json]]:
    try:
        document = read_json(text)
    except ValueError as error:
        raise SpecError(f"not JSON: {error}") from error
    if not isinstance(document, dict) or "schema" not in document:
        raise SpecError("no plan: the key 'schema' is missing; `plan search --output` writes plans")
    if document["schema"] != SCHEMA:
        raise SpecError(
            f"schema {document['schema']!r} is not {SCHEMA!r}: "
            "make the plan again with this version, by `plan search --output`"
        )
    return cast("dict[str, dict[str, Json]]", document)


def _require_equal(written: object, intended: object, where: str) -> None:
    """Is every value the one that follows from the others? The first that is not is named."""
    if isinstance(written, Mapping) and isinstance(intended, Mapping):
        for key in (*intended, *(key for key in written if key not in intended)):
            below = f"{where}.{key}"
            _require_equal(written.get(key, ABSENT), intended.get(key, ABSENT), below)
    elif written != intended:
        subject = "model" if where.startswith("model.") else "layout"
        raise SpecError(
            f"field {where!r} is {_short(written)} but the {subject} means {_short(intended)}: "
            "edit the plan through `plan search`/`plan estimate`"
        )


def _short(value: object) -> str:
    """A value on one line; `stages` can be long."""
    text = value if value == ABSENT else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
