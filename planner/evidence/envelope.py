"""What was measured, as one table of limits: each axis in each scope has one.

`--trusted` is that no limit is broken, and what a plan prints of its evidence are the broken ones:
both read this table. Every axis is checked alone, so an answer inside may still be like no run; the
scopes check pairs: a mixture of experts is compared with runs of experts.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Literal

import numpy as np

from trainplan.costmodel.catalog import published_runs
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.documents import PublishedRun, Shape
from trainplan.costmodel.spec import Spec
from trainplan.planner.evidence.axes import (
    AXES,
    EXPERT_DOMAINS,
    SETTINGS,
    TOGETHER,
    Axis,
    Rows,
    Size,
)
from trainplan.planner.evidence.distance import architecture
from trainplan.planner.evidence.shape import family_of

Scope = Literal["any", "runtime", "gpu", "kind", "kind on gpu"]
"""All scored runs, those on runtimes of one family, on GPUs of one architecture, of models of one
kind, and of that kind on that architecture."""
WORD_OF_KIND = {"dense": " of a dense model", "moe": " with experts", "mla": " with MLA"}
"""Of scopes; a mixer has its own name."""
FEED_FORWARD = (WORD_OF_KIND["dense"], WORD_OF_KIND["moe"])
AXES_OF_SCOPE: Mapping[Scope, Sequence[Axis]] = {
    "any": (*AXES, TOGETHER),
    "runtime": AXES,
    "gpu": AXES,
    "kind": AXES,
    "kind on gpu": (SETTINGS, EXPERT_DOMAINS),
}
"""Axes that have a limit in a scope."""


OF_CLUSTER = frozenset(("dp", "dp_replicate"))
"""Axes that follow from the size of a cluster: runs on GPUs of one kind do not bound them."""
STATED_SETTINGS = "options"
"""Among the axes that a user chose: all settings of the runtime are the job's own, so that no run
had them is no choice of a search."""
FEWEST_SOURCES = 3
"""Publications of runs on GPUs of an architecture from which these show what is usual there.

Source: assumed; one or two ran what they had, as on Ada and CDNA.
"""


class Beyond(Spec):
    """One limit of what was measured that an answer breaks."""

    axis: str
    """A field of the layout or the job, a product of two, or a scope without a run."""
    scope: Scope
    """`any`: no scored run goes so far; `runtime`, `gpu`, `kind`: none on runtimes of its family,
    on GPUs of its architecture, or of models with its kind of layers; `kind on gpu`: of both."""
    value: float | str
    """Of the answer."""
    largest_measured: float | None
    """Null where the axis has no size, or no run is in the scope."""
    text: str
    """The same as a sentence."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the runs of a scope have of an axis; null axis: there is no run."""

    scope: Scope
    where: str
    axis: Axis | None = None

    @property
    def name(self) -> str:
        """Of the axis, or of a scope without a run."""
        return self.axis.name if self.axis else self.scope

    @property
    def stated(self) -> bool:
        """Is it the job that keeps or breaks it, whatever the layout?"""
        return self.axis is None or self.axis.stated

    @property
    def of_layouts(self) -> bool:
        """Is a layout that breaks it like none that was published, for any runtime or GPU?

        Of kinds of layers the feed-forward part binds: of other kinds there are few runs. Which
        settings a run had with it is no matter of its layout.
        """
        of_kind = self.scope == "kind" and self.where in FEED_FORWARD
        of_kind = of_kind and self.name != SETTINGS.name
        return (self.scope == "any" or of_kind) and not self.stated

    @property
    def of_generation(self) -> bool:
        """Is a layout that breaks it like none on GPUs of its architecture, whatever the cluster?

        Settings are checked of models with experts and without there, as `of_layouts` does.
        """
        of_kind = self.scope == "kind on gpu" and self.where.startswith(FEED_FORWARD)
        there = self.scope == "gpu" or of_kind
        return there and not self.stated and self.name not in OF_CLUSTER

    def broken(self, rows: Rows) -> BoolColumn:
        """Layouts that no run of the scope is like in this axis."""
        if self.axis is None:
            return np.ones(len(rows.table), bool)
        return self.axis.broken(rows)

    def beyond(self, rows: Rows) -> Beyond:
        """What to print of the first row, which breaks it."""
        value: float | str = self.where[4:]
        text = f"no scored run is{self.where}"
        if self.axis is not None:
            value, here = self.axis.here(rows)
            text = f"no scored run{self.where} has {here}"
        return Beyond(
            axis=self.name,
            scope=self.scope,
            value=value,
            largest_measured=self.axis.largest if isinstance(self.axis, Size) else None,
            text=text,
        )


@dataclass(frozen=True)
class Measurements:
    """The scored runs, and the limits that they set."""

    runs: tuple[PublishedRun, ...]
    _known: dict[tuple[Scope, object], tuple[Limit, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @cached_property
    def _shapes(self) -> Sequence[Shape]:
        return [run.shape for run in self.runs]

    def limits(self, job: Shape) -> tuple[Limit, ...]:
        """All that hold for a job, those of the widest scope first."""
        family, gpus = family_of(job.runtime), architecture(job.gpu)
        on = f" on {gpus.replace(' ', ' and ')} GPUs"
        found = [
            *self._limits("any", "", "", lambda shape: ""),
            *self._limits("runtime", f" on {family}", family, lambda one: family_of(one.runtime)),
            *self._limits("gpu", on, gpus, lambda one: architecture(one.gpu)),
        ]
        for kind in job.kind:
            where = WORD_OF_KIND.get(kind, f" with {kind} layers")
            found += self._limits("kind", where, kind, partial(_has, kind))
            both = (kind, gpus)
            found += self._limits("kind on gpu", f"{where}{on}", both, partial(_has_on, kind))
        return tuple(found)

    def _limits(
        self, scope: Scope, where: str, key: object, of: Callable[[Shape], object]
    ) -> tuple[Limit, ...]:
        """Those of the runs of a scope; of a kind without any the axis `model` has already."""
        if (scope, key) not in self._known:
            shapes = [shape for shape in self._shapes if of(shape) == key]
            none = () if scope.startswith("kind") else (Limit(scope, where),)
            limits = (
                Limit(scope, where, axis.of_runs(shapes)) for axis in AXES_OF_SCOPE[scope] if shapes
            )
            self._known[scope, key] = tuple(limits) or none
        return self._known[scope, key]

    def of_layouts(
        self, job: Shape, chosen: Collection[str] = (), *, generation: bool = False
    ) -> tuple[Limit, ...]:
        """Those `of_layouts`, but for axes of which the user chose a column.

        With `generation` those of its GPUs, too, where enough published runs on them. Settings are
        not chosen by degrees, but by `STATED_SETTINGS`.
        """
        gpus = architecture(job.gpu)
        alike = (run for run in self.runs if generation and architecture(run.shape.gpu) == gpus)
        both = len({run.source for run in alike}) >= FEWEST_SOURCES
        held = (one for one in self.limits(job) if one.of_layouts or (both and one.of_generation))
        fixed, settings = {*chosen}, (SETTINGS.name, TOGETHER.name)
        return tuple(
            one
            for one in held
            if one.axis
            and not fixed & ({STATED_SETTINGS} if one.name in settings else {*one.axis.columns})
        )

    def beyond(self, rows: Rows, limits: Iterable[Limit] | None = None) -> tuple[Beyond, ...]:
        """Where the first row leaves what was measured: each axis in the widest scope it leaves.

        Axes come in the order of their scopes. Null limits: all.
        """
        found: dict[str, Beyond] = {}
        for limit in self.limits(rows.job) if limits is None else limits:
            together = limit.name == TOGETHER.name and SETTINGS.name in found
            if limit.name not in found and not together and limit.broken(rows)[0]:
                found[limit.name] = limit.beyond(rows)
        return tuple(found.values())

    def inside(self, rows: Rows) -> BoolColumn:
        """Layouts that break no limit."""
        broken = [limit.broken(rows) for limit in self.limits(rows.job)]
        return np.asarray(~np.any(broken, axis=0))


def _has(kind: str, shape: Shape) -> str:
    """The kind, where a run has it."""
    return kind if kind in shape.kind else ""


def _has_on(kind: str, shape: Shape) -> tuple[str, str]:
    """The same with the architecture of its GPU."""
    return _has(kind, shape), architecture(shape.gpu)


@cache
def measurements() -> Measurements:
    """Those of the catalog."""
    return Measurements(published_runs())
