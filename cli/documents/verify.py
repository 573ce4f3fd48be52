"""Documents of `plan verify`: a line when it starts, when a combination has run, at the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, Literal, Self

from trainplan.cli.words import plural
from trainplan.costmodel.layout import Layout
from trainplan.planner.documents import Document, WrittenLayout, layout_json
from trainplan.planner.verification import Combinations, Compared, Ran

SCHEMA: Final = "trainplan/verify/v1"
FEW = 3
"""Names of what was not run that the verdict has."""
UNKNOWN = SimpleNamespace(
    loss_difference=None, grad_norm_difference=None, tolerance=None, saved_difference=None
)
"""What is found of a combination that did not run."""


@dataclass(frozen=True, kw_only=True)
class ExportedFiles(Document):
    """Exported files of a layout of two processes, started, against those of one."""

    name: str
    layout: WrittenLayout  # type: ignore[valid-type]
    equal: bool | None
    """Null: a signal ended a rank, twice, so that it is not known."""
    failure: str | None
    """Why it did not run; null: it ran."""
    loss_difference: float | None
    """Relative."""
    grad_norm_difference: float | None
    """Relative."""
    tolerance: float | None
    """What the order of sums explains."""
    differences: tuple[str, ...]
    """A line each."""
    seconds: float | None
    """That it ran."""

    @classmethod
    def of(cls, one: Ran, **more: object) -> Self:
        """Of one that has run, or has not."""
        return cls.of_fields(
            one.found or UNKNOWN,
            **more,
            name=short_layout(one.combination.layout),
            layout=layout_json(one.combination.job, one.combination.layout),
            equal=None if one.ended else one.equal,
            failure=one.failure or None,
            differences=tuple(differences(one)),
            seconds=one.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Combination(ExportedFiles):
    """A layout of a few processes, against one process."""

    parameters_equal: bool | None
    """Those of every rank are as in the cost model."""
    sent_equal: bool | None
    """Bytes sent in a step are as in the cost model."""
    saved_difference: float | None
    """Of the bytes kept for the backward pass, relative to the cost model's."""

    @classmethod
    def of(cls, one: Ran, **more: object) -> Self:
        """Of one that has run, or has not."""
        found = one.found
        counted = {
            "parameters_equal": found and not found.wrong_parameters,
            "sent_equal": found and not found.wrong_sent,
        }
        return super().of(one, **counted, **more)


@dataclass(frozen=True, kw_only=True)
class VerifyStarted(Document):
    """The first line."""

    event: Literal["started"]
    schema: Literal["trainplan/verify/v1"]
    trainer: str
    nproc: int
    """Processes of each."""
    combinations: tuple[str, ...]
    not_run: tuple[str, ...]
    """What of the plan is not run, and why."""
    simplified: tuple[str, ...]
    """What every layout cuts the same way and is run in a plainer form, and how."""
    changed: str | None
    """Numbers of the file that are not those of this version; null: all are."""

    @classmethod
    def of(cls, request: Combinations, nproc: int, trainer: str, changed: str) -> Self:
        """Of what will run."""
        return cls(
            event="started",
            schema=SCHEMA,
            trainer=trainer,
            nproc=nproc,
            combinations=tuple(short_layout(one.layout) for one in request.others),
            not_run=request.not_run,
            simplified=request.simplified,
            changed=changed or None,
        )


@dataclass(frozen=True, kw_only=True)
class VerifyRan(Combination):
    """A line when a combination has run."""

    event: Literal["ran"]


@dataclass(frozen=True, kw_only=True)
class VerifyEnded(Document):
    """The last line."""

    event: Literal["ended"]
    schema: Literal["trainplan/verify/v1"]
    verdict: str
    equal: bool
    """All combinations ran and are equal to one process."""
    complete: bool
    """All of the plan was run, and its numbers are those of this version."""
    combinations: tuple[Combination, ...]
    not_run: tuple[str, ...]
    changed: str | None
    """As when it started."""
    files: tuple[ExportedFiles, ...] = ()
    """What `plan export` writes for the runtime, started."""
    files_not_started: tuple[str, ...] = ()
    """What of the plan, and why."""

    @classmethod
    def of(
        cls,
        found: Sequence[Ran],
        not_run: Sequence[str],
        changed: str,
        files: Sequence[Ran] = (),
        files_not_started: Sequence[str] = (),
    ) -> Self:
        """Of all that ran."""
        return cls(
            event="ended",
            schema=SCHEMA,
            verdict=cls.sentence(found, not_run, changed, files),
            equal=equal((*found, *files)),
            complete=not (not_run or changed or any(one.ended for one in found)),
            combinations=tuple(map(Combination.of, found)),
            not_run=tuple(not_run),
            changed=changed or None,
            files=tuple(map(ExportedFiles.of, files)),
            files_not_started=tuple(files_not_started),
        )

    @staticmethod
    def sentence(
        found: Sequence[Ran], not_run: Sequence[str], changed: str, files: Sequence[Ran] = ()
    ) -> str:
        """One line."""
        ran = [one for one in found if not one.ended]
        same, ended = sum(one.equal for one in ran), len(found) - len(ran)
        word = "equal" if equal(found) else "not equal" if same < len(ran) else "not known"
        parts = [f"{word}: {same} of {len(ran)} run"]
        if not found:
            parts = ["equal: the plan uses one process, so there is nothing to compare"]
        missing = [*dict.fromkeys(line.partition(":")[0] for line in not_run)]
        if ended:
            missing.insert(0, plural(ended, "combination"))
        if missing:
            more = f" and {len(missing) - FEW} more" if len(missing) > FEW else ""
            was = "was" if len(missing) == 1 and ended < 2 else "were"
            parts.append(f"{', '.join(missing[:FEW])}{more} {was} not run")
        if files:
            started = sum(one.equal for one in files)
            parts.append(f"exported files equal: {started} of {len(files)} started")
        if changed:
            parts.append("the file has other numbers than this version")
        return "; ".join(parts)


VerifyEvent = VerifyStarted | VerifyRan | VerifyEnded


def equal(found: Sequence[Ran]) -> bool:
    """Is every combination equal to one process?"""
    return all(one.equal for one in found)


def short_layout(layout: Layout) -> str:
    """What a layout uses."""
    uneven = len({stage.layers for stage in layout.stages or ()}) > 1
    parts = [
        f"tp {layout.tp}" + (" SP" if layout.sequence_parallel else "") if layout.tp > 1 else "",
        f"cp {layout.cp}" if layout.cp > 1 else "",
        f"pp {layout.pp}" if layout.pp > 1 else "",
        layout.schedule if layout.schedule not in ("1f1b", "interleaved") else "",
        f"vpp {layout.vpp}" if layout.vpp > 1 else "",
        "uneven" if uneven else "",
        f"dp {layout.dp}" if layout.dp > 1 else "",
        f"ZeRO-{layout.zero_stage}" if layout.cp * layout.dp > 1 else "",
        f"x{layout.dp_replicate}" if layout.dp_replicate > 1 else "",
        f"ep {layout.ep}" if layout.ep > 1 else "",
        f"etp {layout.etp}" if layout.etp > 1 else "",
        _recompute(layout),
    ]
    return " · ".join(part for part in parts if part) or "one process"


def _recompute(layout: Layout) -> str:
    if layout.recompute == "none":
        return ""
    what = layout.recompute_modules if layout.recompute == "selective" else ()
    return f"recompute {', '.join(what) or layout.recompute_method}"


def differences(one: Ran) -> Iterator[str]:
    """What is wrong with a combination, a line each."""
    if one.ended:
        return
    name = short_layout(one.combination.layout)
    if one.found is None:
        yield f"{name}: {one.failure}"
        return
    found = one.found
    for what, size in _numbers(found):
        if size > found.tolerance:
            yield f"{name}: {what} differ by {size:.1e}, {found.tolerance:.0e} is rounding"
    for line in (*found.wrong_parameters, *found.wrong_sent, *found.wrong_saved):
        yield f"{name}: {line}"


def _numbers(found: Compared) -> tuple[tuple[str, float], ...]:
    return ("losses", found.loss_difference), ("gradient norms", found.grad_norm_difference)
