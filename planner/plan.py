"""The answer: a layout with its evidence, readable by people, programs and exporters.

The JSON form is the public contract `trainplan/plan/v1`: keys are never renamed or removed within
a version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import Field, TypeAdapter, ValidationError

from costmodel.errors import SpecError
from costmodel.explicit import Estimate
from costmodel.params import num_active_parameters, num_parameters
from costmodel.spec.base import Spec
from costmodel.spec.cluster import ClusterSpec
from costmodel.spec.job import Job
from costmodel.spec.layout import Layout, Schedule
from costmodel.spec.model import ModelSpec
from costmodel.spec.training import TrainingSpec
from costmodel.stages import decoder_of, stage_layers

SCHEMA = "trainplan/plan/v1"

Json = Mapping[str, object]


class Candidate(Spec):
    """One layout of the table of alternatives."""

    rank: int = Field(ge=1)
    layout: Layout
    estimate: Estimate
    near_tie: bool = False
    """So close to the best that it is the faster one in a third of cases or more."""


class Certificate(Spec):
    """What was searched and how far from the best the answer can be at most."""

    optimal: bool
    """No layout of the space is faster under the cost model."""
    alternatives_complete: bool
    """No family of layouts faster than the listed ones is missing: no time limit struck."""
    lower_bound_s: float
    """No layout of the space has a smaller step time."""
    gap_fraction: float
    """(best - lower bound) / best."""
    relaxed_bound_s: float
    """Smallest bound of the space before anything was simulated."""
    space: dict[str, list[int | float | str]]
    space_size: int
    bounded: int
    """Legal layouts discarded because a bound shows they are not faster."""
    priced: int
    evaluated: int
    """Layouts whose schedule was simulated."""
    search_seconds: float | None = None


class Source(Spec):
    """Where one number of the machine comes from."""

    quantity: str
    kind: str
    source: str


class OtherSchedule(Spec):
    """The chosen layout under a schedule that the runtime does not execute."""

    schedule: Schedule
    vpp: int
    """Virtual stages on one rank: those of the layout, or the nearest number the schedule takes."""
    step_time_s: float | None
    """Under the cost model of the job's runtime, with all ranks waiting for the last at the end;
    null: not simulated, because it does not fit."""
    peak_reserved_bytes: float
    """Fullest rank, as in `estimate.memory`."""
    fits: bool
    executed_by: tuple[str, ...]
    """Runtimes that execute it."""


class Plan(Spec):
    """A chosen layout, its estimate, the alternatives, and the proof."""

    job: Job
    runtime_version: str
    memory_margin: float
    best: Candidate
    candidates: tuple[Candidate, ...]
    certificate: Certificate
    refused: dict[str, int]
    sources: tuple[Source, ...]
    other_schedules: tuple[OtherSchedule, ...] = ()
    """What other schedules would make of the best layout, fastest first."""
    notes: tuple[str, ...] = ()


class Infeasible(Spec):
    """Nothing fits: what was refused, and the nearest changes that would make it fit."""

    job: Job
    refused: dict[str, int]
    space_size: int
    least_memory_bytes: float | None
    """Device memory of the leanest legal layout; null when no layout is legal."""
    least_memory_layout: Layout | None
    capacity_bytes: float
    changes: tuple[str, ...]


def model_json(model: ModelSpec) -> Json:
    """A model with its exact parameter counts."""
    return {
        **model.model_dump(mode="json"),
        "num_parameters": num_parameters(model),
        "num_active_parameters": num_active_parameters(model),
    }


def layout_json(job: Job, layout: Layout) -> Json:
    """A layout with the numbers that follow from it; `stages` is null when the split is even."""
    plain = layout.model_dump(mode="json")
    offload = {"optimizer": layout.offload.optimizer, "activations": 0.0, "parameters": 0.0}
    stages = stage_layers(decoder_of(job), layout.pp * layout.vpp)
    counts = stages.layers.tolist()
    even = len(set(counts)) == 1
    return {
        **plain,
        "dp_shard": layout.dp_shard,
        "num_microbatches": job.training.global_batch_size // (layout.dp * layout.micro_batch_size),
        "num_microbatches_per_replica": None,
        "offload": {**offload, "tier": layout.offload.tier},
        "stages": None
        if even
        else [
            {
                "layers": {
                    "dense": int(stages.dense[i]),
                    "moe": int(stages.moe[i]),
                    "mtp": int(stages.mtp[i]),
                },
                "embedding": bool(stages.embedding[i]),
                "head": bool(stages.head[i]),
                "recompute": layout.recompute,
                "offload": None,
                "group": 0,
            }
            for i in range(len(counts))
        ],
    }


_COUNTS = ("num_parameters", "num_active_parameters")
_ABSENT = "missing"
_DERIVED = ("dp_shard", "num_microbatches", "num_microbatches_per_replica", "stages")


def layout_from_json(text: Json) -> Layout:
    """Read `layout_json` back; derived keys are left out."""
    plain = {key: value for key, value in text.items() if key not in _DERIVED}
    offload = plain.get("offload")
    if isinstance(offload, dict):
        plain["offload"] = {k: v for k, v in offload.items() if k in ("optimizer", "tier")}
    return Layout.model_validate(plain)


def estimate_json(estimate: Estimate) -> Json:
    """An estimate as plain JSON values."""
    value = _ESTIMATE.dump_python(estimate, mode="json")
    assert isinstance(value, dict)
    return value


_ESTIMATE = TypeAdapter(Estimate)


def candidate_json(job: Job, candidate: Candidate) -> Json:
    """One row of the alternatives."""
    return {
        "rank": candidate.rank,
        "near_tie": candidate.near_tie,
        "layout": layout_json(job, candidate.layout),
        "estimate": estimate_json(candidate.estimate),
    }


def plan_json(plan: Plan) -> Json:
    """A plan as the public document `trainplan/plan/v1`."""
    job = plan.job
    best = candidate_json(job, plan.best)
    return {
        "schema": SCHEMA,
        "model": model_json(job.model),
        "training": job.training.model_dump(mode="json"),
        "cluster": job.cluster.model_dump(mode="json"),
        "runtime": job.runtime,
        "best": {"layout": best["layout"], "estimate": best["estimate"]},
        "candidates": [candidate_json(job, c) for c in plan.candidates],
        "certificate": plan.certificate.model_dump(mode="json"),
        "refused": plan.refused,
        "other_schedules": [other.model_dump(mode="json") for other in plan.other_schedules],
        "provenance": {
            "runtime_version": plan.runtime_version,
            "memory_margin": plan.memory_margin,
            "sources": [source.model_dump(mode="json") for source in plan.sources],
            "notes": list(plan.notes),
        },
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
        counts = {key: model.get(key, _ABSENT) for key in _COUNTS}
        shape = {key: value for key, value in model.items() if key not in _COUNTS}
        job = Job.model_validate(
            {
                "model": ModelSpec.model_validate(shape),
                "training": TrainingSpec.model_validate(document["training"]),
                "cluster": ClusterSpec.model_validate(document["cluster"]),
                "runtime": document["runtime"],
            }
        )
        layout = layout_from_json(best)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise SpecError(f"field {field!r}: {first['msg']}") from error
    except (KeyError, AttributeError, TypeError) as error:
        raise SpecError(f"a part of the plan is missing or of the wrong kind: {error}") from error
    _require_equal(best, layout_json(job, layout), "best.layout")
    meant = model_json(job.model)
    for key, count in counts.items():
        _require_equal(count, meant[key], f"model.{key}")
    return job, layout


def _document(text: str) -> dict[str, dict[str, Json]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SpecError(f"not JSON: {error}") from error
    if not isinstance(document, dict) or "schema" not in document:
        raise SpecError("no plan: the key 'schema' is missing; `plan search --output` writes plans")
    if document["schema"] != SCHEMA:
        raise SpecError(
            f"schema {document['schema']!r} is not {SCHEMA!r}: "
            "make the plan again with this version"
        )
    return document


def _require_equal(written: object, meant: object, where: str) -> None:
    """Is every value the one that follows from the others? The first that is not is named."""
    if isinstance(written, Mapping) and isinstance(meant, Mapping):
        for key in (*meant, *(key for key in written if key not in meant)):
            below = f"{where}.{key}"
            _require_equal(written.get(key, _ABSENT), meant.get(key, _ABSENT), below)
    elif written != meant:
        subject = "model" if where.startswith("model.") else "layout"
        raise SpecError(
            f"field {where!r} is {_short(written)} but the {subject} means {_short(meant)}: "
            "edit the plan through `plan search`/`plan estimate`"
        )


def _short(value: object) -> str:
    """A value on one line; `stages` can be long."""
    text = value if value == _ABSENT else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
