"""Pages on the choices of a layout, and on the rules that they keep."""

from __future__ import annotations

from collections.abc import Sequence

from page_parts import Lines, table

from trainplan.costmodel.axes import AXES, Axis, Held, Least
from trainplan.costmodel.axes.axis import Apart
from trainplan.costmodel.axes.registry import RULED
from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.optimizers.rules import LEVEL_RULES, OPTIMIZER_RULES
from trainplan.costmodel.runtimes.executes import executed
from trainplan.costmodel.runtimes.registry import RUNTIMES


def axes_page() -> Lines:
    """Every axis: how it is called, whether the search tries it, what it does to memory."""
    yield from ("# Choices of a layout", "")
    yield "What `--layout`, `--fix` and `--exclude` take, and what `layout` of the"
    yield "[JSON documents](json.md) holds; short names are taken as well. *Off* is the value with"
    yield "which a runtime need not know of the choice. *Memory* is what larger values do to the"
    yield "fullest rank, all else equal."
    yield ""
    head = ("name", "short", "in JSON", "off", "search", "memory")
    yield from table(head, map(_axis_row, AXES))


def _axis_row(axis: Axis) -> Sequence[str]:
    memory = axis.memory
    terms = ", ".join("all of it" if term == "used" else term for term in memory.terms)
    effect = f"{memory.effect} ({terms}): " if terms else ""
    short = f"`{axis.short}`" if axis.short else ""
    off = f"`{axis.codec.text(axis.off)}`"
    return (f"`{axis.option}`", short, f"`{axis.name}`", off, _search(axis), effect + memory.why)


def _search(axis: Axis) -> str:
    if isinstance(axis.search, Held):
        return f"held off: {axis.search.why}"
    if isinstance(axis.search, Least):
        return f"solves for it: {axis.search.how}"
    return f"apart: {axis.search.how}" if isinstance(axis.search, Apart) else "tries values"


def rules_page() -> Lines:
    """Every rule: name, text, what it reads, where it comes from."""
    yield from ("# Rules", "")
    yield "A layout is legal when it breaks none of these. `plan search` counts refused layouts by"
    yield "the first rule they break; `--fix` and `--exclude` add rules of your own, and `memory`"
    yield "stands for layouts that do not fit."
    yield ""
    for axis in RULED:
        yield from (f"## {axis.name}", "", *_rules(axis.rules))
    yield from ("## Optimizers other than AdamW", "", *_rules(OPTIMIZER_RULES))
    yield from ("## States at a level of FP8-LM", "", *_rules(LEVEL_RULES))
    for name, traits in RUNTIMES.items():
        yield from (f"## Runtime {name}", "", f"Checked against {traits.version}.", "")
        yield from _rules((*executed(traits), *traits.rules))


def _rules(rules: Sequence[Rule]) -> Lines:
    rows = [
        (f"`{r.name}`", r.says, " ".join(f"`{c}`" for c in sorted(r.columns)), r.source)
        for r in rules
    ]
    yield from table(("rule", "says", "reads", "source"), rows)
