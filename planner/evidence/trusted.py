"""`--trusted`: the limits of what was measured as rules that a search applies like any other."""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable, Rule
from trainplan.planner.evidence.axes import SETTINGS, TOGETHER, Rows, Size
from trainplan.planner.evidence.envelope import Beyond, Limit, Measurements, measurements
from trainplan.planner.evidence.shape import Setup

OPTION = "--trusted"
"""The option, with which the names of its rules begin."""
PUBLISHED_ONLY = "published"
"""With which the names of `published_rules` begin."""
PUBLISHED_THERE = "published on such GPUs:"
"""With which they begin where they are of GPUs of one architecture."""


def trusted_rules(job: Job, known: Measurements | None = None) -> tuple[Rule, ...]:
    """Limits of what was measured for a job, one rule for each axis: of its scopes the tightest."""
    every = (known or measurements()).limits(_plain(Setup.of(job)).job)
    return _rules(job, every, OPTION, f"drop {OPTION} to try it")


def published_rules(
    job: Job, chosen: Collection[str] = (), *, generation: bool = False
) -> tuple[Rule, ...]:
    """Those limits that hold for all runtimes and GPUs, but for axes that the user chose.

    With `generation` those of runs on GPUs of its architecture, too.
    """
    shape = _plain(Setup.of(job)).job
    every = measurements().of_layouts(shape, chosen, generation=generation)
    word = PUBLISHED_THERE if generation else PUBLISHED_ONLY
    return _rules(job, every, word, "`--slack 0` tries it")


def settings_rules(rules: Iterable[Rule], job: Job) -> tuple[Rule, ...]:
    """Those on settings of the runtime; none where no layout can break any."""
    noticed = LayoutTable.of([Layout(tp=2, ep=2)])
    named = tuple(f" {axis.name}" for axis in (SETTINGS, TOGETHER))
    rules = (rule for rule in rules if rule.name.endswith(named))
    return tuple(rule for rule in rules if rule.broken(job, noticed)[0])


def unmeasured(job: Job, known: Measurements | None = None) -> tuple[Beyond, ...]:
    """What every layout of a job leaves of what was measured: by sizes and settings it states."""
    plain, known = _plain(Setup.of(job)), known or measurements()
    stated = {limit.name for limit in known.limits(plain.job) if limit.stated} | {SETTINGS.name}
    return tuple(one for one in known.beyond(plain) if one.axis in stated)


def _plain(on: Setup) -> Rows:
    """A layout that notices no setting which only some do."""
    return Rows(on, LayoutTable.of([Layout()]))


def _rules(job: Job, every: Sequence[Limit], word: str, way: str) -> tuple[Rule, ...]:
    """One for each axis; names begin with a word, and texts end with a way to do without."""
    on, by_axis = Setup.of(job), sorted(every, key=lambda limit: limit.name)
    groups = (tuple(group) for _, group in groupby(by_axis, key=lambda limit: limit.name))
    return tuple(_rule(on, group, word, way) for group in groups)


def _rule(on: Setup, limits: Sequence[Limit], word: str, way: str) -> Rule:
    """That of one axis."""
    scope, where, axis = limits[0].scope, limits[0].where, limits[0].axis
    name, columns = f"{word} {limits[0].name}", frozenset[str]()
    if axis is not None:
        axes = [limit.axis for limit in limits]
        axis = axis.within(axes)  # type: ignore[arg-type]
        columns = frozenset(() if axis.stated else axis.columns)
    if isinstance(axis, Size):
        name = f"{name} <= {axis.largest:g}"
        where = next(limit.where for limit in limits if limit.axis == axis)
    elif len(limits) > 1:
        where = (
            " of this kind" if word == PUBLISHED_ONLY else " of this kind of model, runtime or GPU"
        )
    limit = Limit(scope, where, axis)

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        return limit.broken(Rows(on, table))

    return Rule(
        name=name,
        columns=columns,
        broken=broken,
        says=f"no scored run{where} has such a layout: {way}",
        source="the published runs of docs/accuracy.md",
    )
