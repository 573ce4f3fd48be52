"""The verbs of `import trainplan`, and their answers: values of `planner` with page and document.

A verb runs the command of its name, by the same words. Every option of that is a keyword with its
name. Wrong input is a `PlanError` in the words of the command, with the nearest name that is known.
"""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, Unpack

from trainplan import planner
from trainplan.cli.blocks import html, page_text
from trainplan.cli.documents import FilesDocument
from trainplan.cli.files import is_there
from trainplan.cli.pages import top_of
from trainplan.cli.python import keywords
from trainplan.cli.python.calls import Heard, ask
from trainplan.cli.terminal import json_text, page_width
from trainplan.costmodel import step
from trainplan.costmodel.axes import AXES, Axis
from trainplan.costmodel.base import PlanError, SpecError, UnsupportedError, shortened
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.spec import Spec
from trainplan.planner import comparisons, goals

Error = PlanError
DEGREES = ("tp", "pp", "vpp", "cp", "dp", "ep", "micro_batch_size", "zero_stage", "recompute")
"""Columns of every frame; other choices have one where some layout makes them."""
FrameRow: TypeAlias = tuple[dict[str, object], Layout | None, step.Estimate | None]
OF_POINTS = ("tokens_per_s", "efficiency", "marginal_efficiency", "knee")
"""Of a point of a sweep."""
SHOWN_LINES = 2
"""Of the page, in a short form."""


class Answer:
    """An answer: `print` shows its page, `to_json` gives its document."""

    _heard: Heard
    profile: keywords.Profiles | None
    """What it was measured with."""

    @classmethod
    def of(cls, heard: Heard, profile: keywords.Profiles | None = None) -> Self:
        """The value that a command found, with the rest of its answer."""
        found, make = heard.found, cls
        if isinstance(found, Spec):
            names = [*type(found).model_fields]
            make = getattr(cls, "model_construct")  # noqa: B009 (of those that are a Spec)
        else:
            names = [one.name for one in dataclasses.fields(found)]
        answer = make(**{name: getattr(found, name) for name in names})
        object.__setattr__(answer, "_heard", heard)
        object.__setattr__(answer, "profile", profile)
        return answer

    def __str__(self) -> str:
        return page_text(*self._heard.page, width=page_width()).rstrip("\n")

    def __repr__(self) -> str:
        lines = [line.strip() for line in str(self).splitlines() if line.strip()]
        return f"<{type(self).__name__}: {'; '.join(lines[:SHOWN_LINES])}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_json(self) -> str:
        """The document, as the command prints it with `--json`."""
        return json_text(self._heard.document or {})

    def report(self, path: keywords.File, *, force: bool = False) -> None:
        """Write the answer as a page with charts, a new HTML file.

        Raises:
            PlanError: The file exists, or such an answer has no report.
        """
        options = {"output": path, "force": force, "profile": self.profile}
        ask("report", {"plan": self._heard.document}, options)


class Alternatives(tuple[planner.Candidate, ...]):
    """Layouts of a plan's table, the answer first."""

    __slots__ = ()

    def __repr__(self) -> str:
        lines = [f"<{len(self)} layouts"]
        for one in self:
            on = [f"{a.word}={a.text(one.layout)}" for a in AXES if not a.is_off(one.layout)]
            lines.append(f"{one.rank}: {' '.join(on)}; {one.estimate.step_time_s:.4g} s a step")
        return "\n  ".join(lines) + ">"

    def to_frame(self) -> Any:  # noqa: ANN401 (pandas need not be there)
        """A pandas DataFrame: a row a layout, seconds and bytes in columns of their names.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        frame = _frame([({"rank": one.rank}, one.layout, one.estimate) for one in self])
        frame["near_tie"] = [one.near_tie for one in self]
        return frame


def _frame(rows: Sequence[FrameRow]) -> Any:  # noqa: ANN401 (pandas need not be there)
    """A DataFrame: own columns of each row, its choices, its figures; no layout leaves them empty.

    Raises:
        UnsupportedError: pandas is not installed.
    """
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise UnsupportedError("to_frame needs pandas: pip install pandas") from None
    every = [layout for _, layout, _ in rows if layout]
    shown = [a for a in AXES if a.name in DEGREES or not all(map(a.is_off, every))]
    return pandas.DataFrame(
        {
            **own,
            **({axis.name: _cell(axis, layout) for axis in shown} if layout else {}),
            **(_figures(estimate) if estimate else {}),
        }
        for own, layout, estimate in rows
    )


def _figures(estimate: step.Estimate) -> dict[str, object]:
    """What a plot has on its axes: seconds with the 80 % interval, speed, bytes."""
    return {
        "step_time_s": estimate.step_time_s,
        "step_time_low_s": estimate.uncertainty.step_time_low_s,
        "step_time_high_s": estimate.uncertainty.step_time_high_s,
        "tokens_per_s_per_gpu": estimate.tokens_per_s_per_gpu,
        "mfu": estimate.mfu,
        "peak_reserved_bytes": estimate.memory.peak_reserved_bytes,
    }


def _cell(axis: Axis, layout: Layout) -> object:
    """A number, a name or a switch as it is, others as `--layout` takes them."""
    value = axis.of(layout)
    return value if isinstance(value, int | float | str) else axis.text(layout)


class Files(Answer, FilesDocument):
    """Files of a launch, written or not."""


class Plan(Answer, planner.Plan):
    """The best layout, with its proof and its alternatives."""

    def __bool__(self) -> Literal[True]:
        return True

    __repr__ = planner.Plan.__repr__

    def _repr_html_(self) -> str:
        return html(top_of(self), whole=False)

    @property
    def alternatives(self) -> Alternatives:
        """The layouts of its table, the answer first."""
        return Alternatives(self.candidates)

    def export(
        self,
        runtime: str | None = None,
        output_dir: keywords.File | None = None,
        **options: Unpack[keywords.ExportKeywords],
    ) -> Files:
        """As `trainplan.export`."""
        return export(self, runtime, output_dir, **options)


class Infeasible(Answer, planner.Infeasible):
    """Nothing fits: what was refused, and what would help."""

    def __bool__(self) -> Literal[False]:
        return False


class Estimate(Answer, planner.Estimate):
    """What a layout costs."""


class Explanation(Answer, planner.Explanation):
    """What limits a plan, and what more would buy."""


class WhyNot(Answer, planner.WhyNot):
    """Why a layout is not the answer of a plan."""


class Comparison(Answer, planner.Comparison):
    """Two plans, term by term."""


class Sweep(Answer, planner.Sweep):
    """The best plan at every value of some parameters."""

    def to_frame(self) -> Any:  # noqa: ANN401 (pandas need not be there)
        """A pandas DataFrame: a row a point, its parameters first; empty where it has no plan.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        return _frame([_point(point) for curve in self.curves for point in curve.points])


def _point(
    point: comparisons.Point,
) -> FrameRow:
    best = point.outcome.best
    own: dict[str, object] = {one.knob: _number(one.value) for one in point.settings}
    own |= {"num_gpus": point.num_gpus, "status": point.outcome.status}
    own |= {name: getattr(point, name) for name in OF_POINTS}
    return own, best.layout if best else None, best.estimate if best else None


def _number(value: str) -> object:
    """A value of a parameter as a number, where it is one."""
    try:
        return int(value) if value.isdecimal() else float(value)
    except ValueError:
        return value


class Pareto(Answer, planner.Pareto):
    """The layouts that no other beats in two objectives."""

    def to_frame(self) -> Any:  # noqa: ANN401 (pandas need not be there)
        """A pandas DataFrame: a row a layout, both objectives first, in the document's units.

        Raises:
            UnsupportedError: pandas is not installed.
        """
        return _frame([(_own(self, one), one.layout, one.estimate) for one in self.points])


def _own(front: Pareto, point: goals.Point) -> dict[str, object]:
    values = zip(front.objectives, point.values, strict=True)
    return {**dict(values), "num_gpus": point.num_gpus}


class LaunchCheck(Answer, planner.LaunchCheck):
    """A launch that was read and scored."""


def search(
    model: keywords.Model,
    cluster: keywords.Cluster | None = None,
    **options: Unpack[keywords.SearchKeywords],
) -> Plan | Infeasible:
    """The fastest layout that fits, with its proof; or why nothing does, which is false.

    Raises:
        PlanError: As `plan search`.
    """
    heard = ask("search", (), {"model": model, "cluster": cluster, **options})
    if isinstance(heard.found, planner.Infeasible):
        return Infeasible.of(heard)
    if heard.found is None:
        raise UnsupportedError("nothing fits on any of the offers: search one of them for why")
    return Plan.of(heard, options.get("profile"))


def pareto(
    model: keywords.Model,
    cluster: keywords.Cluster | None = None,
    objectives: str = "time,memory",
    **options: Unpack[keywords.SearchKeywords],
) -> Pareto:
    """Every layout that no other beats in both objectives; empty where none fits.

    Raises:
        PlanError: As `plan search --pareto`.
    """
    given = {"model": model, "cluster": cluster, "pareto": objectives, **options}
    return Pareto.of(ask("search", (), given), options.get("profile"))


def estimate(
    model: keywords.Model,
    cluster: keywords.Cluster | None = None,
    layout: keywords.LayoutGiven | None = None,
    **options: Unpack[keywords.JobKeywords],
) -> Estimate:
    """The price of one layout, also of one that does not fit.

    Raises:
        PlanError: As `plan estimate`.
    """
    given = {"model": model, "cluster": cluster, "layout": layout, **options}
    return Estimate.of(ask("estimate", (), given))


def check(
    launch: keywords.File | Sequence[str | PathLike[str]], **options: Unpack[keywords.CheckKeywords]
) -> LaunchCheck:
    """A launch that someone has: does it run, does it fit, which edits pay; it is only read.

    `launch` is a script with its arguments, a configuration, or a command: its text or its words.

    Raises:
        PlanError: As `plan check`.
    """
    words = [launch] if isinstance(launch, str | PathLike) else launch
    if isinstance(launch, str) and not is_there(Path(launch)):
        try:
            words = shlex.split(launch)
        except ValueError as error:
            raise SpecError(f"launch {shortened(launch)!r}: {error}") from None
    return LaunchCheck.of(ask("check", [*map(str, words)], options))


def explain(plan: keywords.PlanGiven, **options: Unpack[keywords.PlanKeywords]) -> Explanation:
    """What limits a plan, and what more would buy, each by a search.

    Raises:
        PlanError: As `plan explain`.
    """
    return Explanation.of(ask("explain", {"plan": plan}, _measured(options, plan)))


def why_not(
    plan: keywords.PlanGiven, layout: keywords.LayoutGiven, **options: Unpack[keywords.PlanKeywords]
) -> WhyNot:
    """Why a layout, or the best one with some fields, is not the answer of a plan.

    Raises:
        PlanError: As `plan why-not`.
    """
    given = {"layout": layout, **_measured(options, plan)}
    return WhyNot.of(ask("why-not", {"plan": plan}, given))


def compare(
    first: keywords.PlanGiven, second: keywords.PlanGiven, **options: Unpack[keywords.PlanKeywords]
) -> Comparison:
    """Two plans, term by term.

    Raises:
        PlanError: As `plan compare`.
    """
    given = _measured(options, first, second)
    return Comparison.of(ask("compare", {"first": first, "second": second}, given))


def sweep(
    plan: keywords.PlanGiven, vary: keywords.Pairs, **options: Unpack[keywords.PlanKeywords]
) -> Sweep:
    """The best plan at every value of some parameters: `gpus=64..512` or `{"gpus": [64, 96]}`.

    Raises:
        PlanError: As `plan sweep`.
    """
    return Sweep.of(ask("sweep", {"plan": plan}, {"vary": vary, **_measured(options, plan)}))


def export(
    plan: keywords.PlanGiven,
    runtime: str | None = None,
    output_dir: keywords.File | None = None,
    **options: Unpack[keywords.ExportKeywords],
) -> Files:
    """Write what starts a plan into a new folder; without one the files are only returned.

    Raises:
        PlanError: The folder exists, or the runtime has no word for the layout.
    """
    given = {"runtime": runtime, "output_dir": output_dir, **options}
    return Files.of(ask("export", {"plan": plan}, given))


def _measured(options: Mapping[str, Any], *plans: keywords.PlanGiven) -> dict[str, Any]:
    """With the measurements that a plan was made with, where none are stated."""
    made_with = [plan.profile for plan in plans if isinstance(plan, Plan)]
    return {"profile": next(filter(None, made_with), None), **options}
