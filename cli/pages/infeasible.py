"""Nothing fits: why, and what would."""

from collections.abc import Iterator

from rich.text import Text

from trainplan.cli.blocks import Part, headed
from trainplan.cli.pages.parts.headline import UPPER_BOUND, job_line
from trainplan.cli.pages.plan import refused_part, rule_texts
from trainplan.cli.words import gib, layout_line, plural
from trainplan.planner.plan import Infeasible
from trainplan.planner.runtimes import launch_rules
from trainplan.planner.space import rules_of_job

NOT_TRIED = "changes not tried: time limit"


def infeasible_page(result: Infeasible, *, all_tried: bool) -> Iterator[Part]:
    """The reason first, then the changes that would help, then what was refused.

    `all_tried` is false where the time limit struck while changes were tried.
    """
    style = "bold red" if result.least_memory_fits is False else "bold yellow"
    yield Text(infeasible_line(result), style=style)
    yield job_line(result.job)
    if result.untried:
        yield Text("\n".join(result.untried))
    yield from _helping(result, all_tried=all_tried)
    yield from refused_part(result.job, result.refused, result.space_size)


def _helping(result: Infeasible, *, all_tried: bool) -> Iterator[Part]:
    """The smallest sets of changes: one change a line, or one set a line."""
    more = () if all_tried else (f"Other {NOT_TRIED}",)
    if result.relaxations:
        single = len(result.relaxations[0]) == 1
        head = (
            "Any one of these makes it fit"
            if single
            else "No single change does; each of these sets makes it fit"
        )
        lines = (Text(f"  - {', and '.join(changes)}") for changes in result.relaxations)
        yield headed(head, *lines, *more)
    elif not all_tried:
        yield f"{NOT_TRIED.capitalize()}."
    else:
        yield "No change we know makes it fit, nor two or three together."


def infeasible_line(result: Infeasible) -> str:
    """What the layout of least memory lacks."""
    if result.least_memory_bytes is None or result.least_memory_layout is None:
        return f"No layout is legal: {_first_rule(result)}"
    layout = layout_line(result.least_memory_layout, result.job.model)
    if result.least_host_bytes is not None:
        return (
            f"Nothing fits: what has room on the GPUs needs {gib(result.least_host_bytes)} GiB of "
            f"the host of a node, or more, and it has less.\n  least memory on the GPUs: {layout}"
        )
    needed, usable = gib(result.least_memory_bytes), gib(result.capacity_bytes)
    if result.least_memory_fits is not False:
        fits = "does in 99 of 100 steps" if result.least_memory_fits else "may, too"
        return (
            f"Not known what fits: every layout was excluded by {UPPER_BOUND}; the one of least "
            f"memory takes at most {needed} GiB of {usable} and {fits} (`plan estimate`).\n"
            f"  least memory: {layout}"
        )
    return (
        f"Nothing fits: the layout of least memory needs {needed} GiB of {usable} GiB usable.\n"
        f"  least memory: {layout}"
    )


def _first_rule(result: Infeasible) -> str:
    """The rule that most layouts break, first one on a field that is held, and what to do."""
    if result.untried:
        return f"{result.untried[0]}."
    says = rule_texts(result.job, result.refused)
    chosen = " and ".join(name for name in result.refused if name not in says)
    held = {name.split("=")[0].split()[-1] for name in result.refused if name not in says}
    rules = (*rules_of_job(result.job), *launch_rules(result.job))
    on_held = {one.name for one in rules if one.columns & held}
    named = sorted((n for n in result.refused if n in says), key=lambda n: n not in on_held)
    rule = next(iter(named), None)
    layouts = plural(result.space_size, "layout")
    if rule is None:
        return f"{chosen} leave none of {layouts}."
    return f"{says[rule]} ({rule}{', with ' * bool(chosen)}{chosen}; none of {layouts} is left)."
