"""What a written plan states beyond its job and layout: how it was searched, its alternatives."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, Field, ValidationError

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.hardware import MOST_GPUS, ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.outer import whole_cluster
from trainplan.costmodel.spec import first_complaint
from trainplan.costmodel.step import Estimate
from trainplan.planner.documents.chosen import chosen_from_json
from trainplan.planner.documents.document import estimate_json
from trainplan.planner.evidence import OPTION, PUBLISHED_ONLY, PUBLISHED_THERE
from trainplan.planner.plan import Name, SearchOptions
from trainplan.planner.settings import Level
from trainplan.planner.space import Choice, parse_choice

ROUNDING, NOTHING = 1e-6, 1e-12
"""Relative difference of two values that is no more than rounding, and a value that is none."""


def with_candidate(text: str, number: int) -> str:
    """A plan document whose best layout is another one of its table.

    Nodes were placed for the best alone: another layout finds them in the order of the cluster.

    Raises:
        SpecError: The plan has no table, or none of this rank in it.
    """
    document: object = json.loads(text)
    if not isinstance(document, dict):
        raise SpecError("no plan: expected an object; `plan search --output` writes plans")
    listed = dict(_ranked(document.get("candidates")))
    if number not in listed:
        known = ", ".join(map(str, listed)) or "none"
        raise SpecError(f"no candidate {number}: the plan lists {known}")
    best = {key: listed[number].get(key) for key in ("layout", "estimate")}
    placement = document.get("placement") if best == document.get("best") else None
    changed = {**document, "best": best, "placement": placement}
    return json.dumps(changed, indent=2, ensure_ascii=False) + "\n"


def _ranked(candidates: object) -> Iterator[tuple[int, dict[str, object]]]:
    """Rank and entry of every alternative."""
    for entry in candidates if isinstance(candidates, list) else ():
        rank = entry.get("rank") if isinstance(entry, dict) else None
        if isinstance(rank, int):
            yield rank, entry


def written_estimate(text: str) -> object:
    """The estimate of the best layout as the document has it; null: it has none."""
    value: object = json.loads(text)
    for key in ("best", "estimate"):
        value = value.get(key) if isinstance(value, dict) else None
    return value


HAD = ("step_time_s", "memory.peak_allocated_bytes")
"""Numbers that the estimate of every document has had."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A value of a written estimate that is another one now."""

    name: str
    """Its keys, such as `memory.peak_allocated_bytes`."""
    before: object
    now: object
    """Null: there is none."""


def changed_values(estimate: object, now: Estimate) -> tuple[Changed, ...]:
    """What of a written estimate was made with other numbers, or is no longer there.

    Of keys that it lacks those alone count that every document has: others are newer than it.
    """
    known, read = dict(_leaves(estimate_json(now))), dict(_leaves(estimate))
    pairs = (
        Changed(name, read.get(name), known.get(name)) for name in dict.fromkeys((*read, *HAD))
    )
    return tuple(one for one in pairs if not _same(one.before, one.now))


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Values below a value, by their keys."""
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield from _leaves(one, f"{name}.{key}" if name else str(key))
    if not isinstance(value, dict | list):
        yield name, value


def _same(before: object, now: object) -> bool:
    numbers = [one for one in (before, now) if isinstance(one, int | float)]
    close = len(numbers) == 2 and math.isclose(*numbers, rel_tol=ROUNDING, abs_tol=NOTHING)
    return before == now or close


@dataclass(frozen=True, slots=True)
class Written:
    """A plan document read back."""

    job: Job
    layout: Layout
    estimate: object
    """As it was written; null: it was not."""
    options: SearchOptions
    """Memory margin, and the choices the search was held to; settings are those of the plan."""
    optimal: bool
    """It was proved that no layout of the space is faster."""
    gap_fraction: float
    objective: Name
    """What the plan is best at; `options` are of the shortest step whatever it was."""
    candidates: tuple[Layout, ...]
    """The alternatives, the answer first."""
    slack_fraction: float
    """The answer is the simplest layout whose step takes no more than this longer than the best."""
    varied: Level
    """Settings that the search varied, of those that the job does not state."""
    searched: ClusterSpec
    """The cluster of the search: nodes that the plan leaves idle are not in that of the job, and of
    islands each is a group."""


class _Tried(BaseModel):
    num_gpus: int = Field(ge=1, le=MOST_GPUS)


class _Objective(BaseModel):
    name: Name = "time"
    slack_fraction: float = 0.0
    tried: tuple[_Tried, ...] = ()


class _Settings(BaseModel):
    level: Level


class _Certificate(BaseModel):
    optimal: bool = False
    gap_fraction: float = 0.0
    objective: _Objective = _Objective()
    settings: _Settings | None = None


class _Provenance(BaseModel):
    memory_margin: float | None = Field(default=None, ge=0, lt=1)
    choices: tuple[str, ...] = ()


class _Ranked(BaseModel):
    rank: int


class _OuterStep(BaseModel):
    idle_islands: int = Field(default=0, ge=0, le=MOST_GPUS)


class _Evidence(BaseModel):
    """The part of a plan document that is read here; other keys are left alone."""

    certificate: _Certificate = _Certificate()
    provenance: _Provenance = _Provenance()
    refused: Mapping[str, int] = {}
    candidates: tuple[_Ranked, ...] = ()
    outer_step: _OuterStep | None = None


def written(text: str) -> Written:
    """Read a plan document.

    Raises:
        SpecError: The text is no plan of this version.
    """
    job, layout = chosen_from_json(text)
    try:
        evidence = _Evidence.model_validate(json.loads(text))
    except ValidationError as error:
        first = first_complaint(error)
        raise SpecError(f"field {first.field!r}: {first.reason}: make the plan again") from error
    settings = evidence.certificate.settings
    searched = _searched(job.cluster, evidence.certificate.objective)
    idle = evidence.outer_step.idle_islands if evidence.outer_step else 0
    numbers = [candidate.rank for candidate in evidence.candidates]
    others = (chosen_from_json(with_candidate(text, number))[1] for number in numbers)
    names = dict.fromkeys((*evidence.provenance.choices, *evidence.refused))
    trusted = any(name.startswith(OPTION) for name in names)
    choices = [_choice(name) for name in names if name.startswith(("--fix", "--excl"))]
    return Written(
        job=job,
        layout=layout,
        estimate=written_estimate(text),
        options=SearchOptions(
            memory_margin=evidence.provenance.memory_margin,
            fix=tuple(choice for choice in choices if not choice.excluded),
            exclude=tuple(choice for choice in choices if choice.excluded),
            trusted=trusted,
            published=any(name.startswith(PUBLISHED_ONLY) for name in names),
            generation=any(name.startswith(PUBLISHED_THERE) for name in names),
            search_options="none",
        ),
        optimal=evidence.certificate.optimal,
        gap_fraction=evidence.certificate.gap_fraction,
        objective=evidence.certificate.objective.name,
        slack_fraction=evidence.certificate.objective.slack_fraction,
        candidates=tuple(dict.fromkeys((layout, *others))),
        varied=settings.level if settings else "none",
        searched=whole_cluster(job, searched, idle),
    )


def _searched(cluster: ClusterSpec, objective: _Objective) -> ClusterSpec:
    """The cluster of the largest part that was tried; what costs is not there where it is idle.

    Of several groups, or of measured links, idle nodes are not known by their number.
    """
    (group, *others), links = cluster.groups, cluster.links
    most = max((one.num_gpus for one in objective.tried), default=0)
    nodes = max(group.num_nodes, most // group.gpus_per_node)
    if others or links or objective.name in ("cost", "gpus"):
        return cluster
    return cluster.with_nodes([nodes])


def _choice(name: str) -> Choice:
    """The choice behind the name of its rule, such as `--fix tp=8`."""
    option, _, text = name.partition(" ")
    return parse_choice(text, excluded=option == "--exclude")
