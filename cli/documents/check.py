"""The document of `plan check`."""

from dataclasses import dataclass
from typing import Any, Literal, Self

from trainplan.cli.words import gib, plural, seconds, setting_words
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.step import Estimate
from trainplan.planner.comparisons import FieldDifference
from trainplan.planner.documents import Document, Notes, OfJob, Priced, of_job, of_priced
from trainplan.planner.launch_checks import LaunchCheck, LaunchSaves
from trainplan.planner.runtimes import Origin, SettingChange
from trainplan.planner.shell import Place
from trainplan.planner.shell import Verdict as ProblemVerdict


@dataclass(frozen=True, kw_only=True)
class Placed(Document):
    """Where something is in the launch."""

    file: str | None
    """Null: the command itself."""
    line: int | None


@dataclass(frozen=True, kw_only=True)
class ProblemEntry(Placed):
    """What is wrong, ignored or not read."""

    cause: str
    """A name that stays."""
    verdict: ProblemVerdict
    says: str
    file: str | None
    line: int | None


@dataclass(frozen=True, kw_only=True)
class FieldEntry(Placed):
    """A field of the job or the layout, and where it comes from."""

    name: str
    value: object
    origin: Origin
    written: str
    """In the runtime's own words."""
    file: str | None
    line: int | None


@dataclass(frozen=True, kw_only=True)
class Lint(Document):
    """One slip and what its edit saves."""

    name: str
    says: str
    saved_s: float | None
    freed_bytes: float | None
    fits: bool | None
    changes: tuple[FieldDifference, ...]
    settings: tuple[SettingChange, ...]
    notes: tuple[str, ...] = ()
    """The release that its settings need, and limits of published runs that it breaks."""


@dataclass(frozen=True, kw_only=True)
class Edit(Document):
    """Edits that pay."""

    units: tuple[str, ...]
    """What is changed together."""
    step_time_s: float
    saved_s: float | None
    """Null: the launch does not run without them."""
    peak_reserved_bytes: float
    changes: tuple[FieldDifference, ...]
    settings: tuple[SettingChange, ...]
    layout: Layout
    options: dict[str, object]
    notes: tuple[str, ...] = ()
    """As of a lint."""


@dataclass(frozen=True, kw_only=True)
class Optimum(Priced):
    """What a search finds for the job."""

    options: dict[str, object]
    num_gpus: int
    """GPUs that it uses: fewer than the launch has where part of the cluster alone is faster."""
    estimate: Estimate
    optimal: bool
    gap_fraction: float


@dataclass(frozen=True, kw_only=True)
class CheckDocument(Document):
    """A launch that was read and checked."""

    SCHEMA = "trainplan/check/v1"
    schema: Literal["trainplan/check/v1"]
    """Name and version of this form, `trainplan/check/v1`."""
    text: str
    """The verdict, in a sentence."""
    runtime: str
    """Id of the runtime whose launch it is; `runtime_version` is the release whose rules were
    applied."""
    runtime_version: str
    legal: bool | None
    """Would the runtime start it, as far as was read? Null: undecided."""
    problems: tuple[ProblemEntry, ...]
    """Each with `cause` (a name that stays), `verdict` (`illegal`, `ignored`, `unread`,
    `unmodelled`), `says`, `file` and `line`."""
    job: OfJob | None
    """As in a plan; null where too little could be read."""
    layout: Layout | None
    """Every axis; null likewise."""
    fits: bool | None
    """In memory; null where it, or a part of the model, is not priced."""
    estimate: Estimate | None
    """As in a plan; null where the layout breaks a rule."""
    saves: LaunchSaves | None
    """How often it saves; null: its cluster states no failures, or it is not priced."""
    fields: tuple[FieldEntry, ...]
    """Each field that was read: `name`, `value`, `origin` (`stated`, `default`, `derived`,
    `assumed`), `written` (the runtime's words), `file`, `line`."""
    lints: tuple[Lint, ...]
    """Slips: `name`, `says`, `saved_s` and `freed_bytes` of their one edit (null: it is not
    priced), `changes` of fields, `settings` in the runtime's words."""
    edits: tuple[Edit, ...]
    """The fewest that make it run, where it does not; the fewest that bring most of the gain, then
    the whole: `units` that change, `step_time_s`, `saved_s` (null: the launch cannot run),
    `changes`, `settings`, `layout`, `options`."""
    optimum: Optimum | None
    """What `plan search` finds for the job, with `optimal` and `gap_fraction`; null where nothing
    was found."""
    untried: str | None
    """Why nothing better was looked for; empty otherwise."""
    cut_off: str
    """Of a launch that does not run: which smaller sets of edits were not tried; empty: none."""
    provenance: Notes

    @classmethod
    def of(cls, found: LaunchCheck, notes: tuple[str, ...]) -> Self:
        """Of a launch that was checked."""
        reading, best = found.reading, found.optimum
        job = reading.job
        return cls.of_fields(
            found,
            text=cls.sentence(found),
            runtime=reading.runtime,
            runtime_version=reading.runtime_version,
            legal=reading.legal,
            problems=tuple(
                ProblemEntry.of_fields(one, **_at(one.place)) for one in reading.problems
            ),
            job=job and OfJob(**of_job(job)),
            layout=job and reading.layout,
            fields=tuple(FieldEntry.of_fields(one, **_at(one.place)) for one in reading.fields),
            lints=tuple(Lint.of_fields(one, changes=one.fields) for one in found.lints),
            edits=tuple(
                Edit.of_fields(
                    one,
                    changes=one.fields,
                    layout=one.run.layout,
                    options=one.run.job.options.stated(),
                )
                for one in found.edits
            ),
            optimum=best
            and Optimum.of_fields(
                best.certificate,
                **of_priced(best.job, best.best),
                options=best.job.options.stated(),
                num_gpus=best.job.cluster.num_gpus,
            ),
            provenance=Notes(notes=notes),
        )

    @staticmethod
    def sentence(found: LaunchCheck) -> str:
        """Does it run, does it fit, and what would the best edits give?"""
        reading = found.reading
        refusals = [problem for problem in reading.problems if problem.verdict == "illegal"]
        lacks = ""
        if found.estimate and not found.estimate.memory.fits:
            memory = found.estimate.memory
            lacks = (
                f"It does not fit: {gib(memory.peak_reserved_bytes)} GiB on the fullest rank of "
                f"{gib(memory.capacity_bytes)}."
            )
            if memory.fits is None:
                lacks = (
                    f"Not known whether it fits: at most {gib(memory.peak_reserved_bytes)} GiB on "
                    f"the fullest rank of {gib(memory.capacity_bytes)}."
                )
        if refusals:
            first = refusals[0]
            others = plural(len(refusals) - 1, "other problem")
            more = f", and {others}" if len(refusals) > 1 else ""
            place = first.place.text if first.place else ""
            where = f" ({place})" if place else ""
            text = f"{lacks} {reading.runtime} refuses it{where}: {first.says}{more}.".lstrip()
        elif reading.legal is None:
            unread = (p for p in reading.problems if p.verdict == "unread")
            open_one = min(unread, key=lambda p: (not p.absent, p.cause in OF_SCRIPT), default=None)
            cost = found.estimate
            step = f" As it is: {seconds(cost.step_time_s)} a step." if cost else ""
            why = (open_one.says if open_one else found.untried).removeprefix(UNJUDGED)
            text = f"Undecided: {why}.{step}"
        elif found.estimate is None:
            text = f"{reading.runtime} would start it, as far as was read; it is not priced."
        else:
            without = reading.job and reading.job.model.left_out
            fits = "fits" + " at the edge of memory" * found.estimate.memory.is_doubtful
            fits += f" without its {without}, which is not priced" if without else ""
            text = lacks or f"It runs and {fits}: {seconds(found.estimate.step_time_s)} a step."
        return f"{_other_model(found)}{text} {_promise(found)}".rstrip()


def _at(place: Place | None) -> dict[str, Any]:
    return {"file": place and place.file, "line": place and place.line}


def _other_model(found: LaunchCheck) -> str:
    """That options which were not read may change the model that the price is of."""
    causes = {one.cause: one.says for one in found.reading.problems}
    if found.estimate is None or OTHER_MODEL not in causes:
        return ""
    return f"Priced without {causes[OTHER_MODEL].partition(':')[0]}, which may change the model. "


OF_SCRIPT = ("branch_unread", "script_stops", "shell_unread", "slurm_array", "starter_unread")
"""What of a script was not followed: it may bear on nothing, so other reasons come before it."""
UNJUDGED = "undecided and not priced: "
OTHER_MODEL = "unread_model_option"
SPELLED_OUT = 3
"""Settings of a cure that the sentence spells out; more are counted."""


def _promise(found: LaunchCheck) -> str:
    if not found.edits:
        return ""
    first = found.edits[0]
    count = plural(first.count, "edit")
    if first.saved_s is None:
        few = 0 < len(first.settings) <= SPELLED_OUT
        edits = setting_words(first.settings) if few else count
        lead = "" if edits.startswith("without ") else "with "
        runs = f"{lead}{edits} it runs, at {seconds(first.step_time_s)} a step."
        return f"W{runs[1:]}" if found.reading.legal else f"Once it starts, {runs}"
    step = first.step_time_s + first.saved_s
    faster = f"{count} would make it {step / first.step_time_s:.2f} times as fast."
    return faster if found.reading.legal else f"Once it starts, {faster}"
