"""What to go on with on another cluster than that of a plan."""

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.text import Text

from trainplan.cli.blocks import Part, number, stacked, table
from trainplan.cli.documents import ReplanDocument
from trainplan.cli.pages.parts.headline import estimate_line
from trainplan.cli.words import layout_line, percent, plural
from trainplan.costmodel.run_costs import lasting
from trainplan.planner.replan import Outage, Replan, Resumed, Taken, Times

UNKNOWN = "not known"
OFFERS: Mapping[Taken, str] = {
    "best": "Without a step for the checkpoint",
    "after": "With one more step for the checkpoint",
    "anew": "If the checkpoint did not matter",
    "batch": "With {:,} sequences a step",
    "fewer": "With fewer islands",
    "alone": "On one island, without outer steps",
}
"""What the plans of a `Replan` are offered with."""
WORDS = {
    "wait": "wait for them",
    "spare nodes": "spare nodes in their place",
    "go on": "go on with what is left",
    "go on after a command": "go on, one step for the checkpoint later",
    "go on with fewer islands": "go on with fewer islands",
    "go on without outer steps": "go on with one island alone",
}
"""Of `Way.name`."""


def replan_page(found: Replan, outage: Outage) -> Iterator[Part]:
    """What to do, the plan for it, what the outage costs, and what else there is."""
    best = found.plans[outage.plan or found.fastest]
    style = "bold green" if best or outage.first else "bold red"
    yield Text(ReplanDocument.sentence(found, outage), style=style)
    before = found.before
    yield stacked(
        f"before: {layout_line(before.layout, found.job.model)}",
        f"  {estimate_line(before.estimate, found.job)}",
        *(_lines("next" if outage.plan else "on what is left", best) if best else ()),
    )
    if found.job.islands > 1:
        sizes = Counter(one.num_nodes for one in found.left.groups)
        left = (f"{count} of {plural(nodes, 'node')}" for nodes, count in sorted(sizes.items()))
        yield f"Islands left of {found.job.islands}: {', '.join(left)}."
    for count in found.undivided:
        multiple = f"a multiple of {count} by --global-batch-size"
        yield f"The batch does not divide among {count} islands: {multiple} changes the training."
    if found.idle_nodes:
        yield f"The plan leaves {plural(found.idle_nodes, 'node')} idle: the first spares."
    if best:
        sure = "Proved fastest of all" if best.proved else "Not proved fastest of those"
        alike = "with even stages, or those of before, that load so"
        yield stacked(*_remarks(best), f"{sure} {alike}; `plan search` tries uneven ones.")
    elif found.saved == "as-launched":
        yield "`--saved reshardable` lists what loads a checkpoint that was saved for any layout."
    if outage.ways:
        yield stacked(*_times(outage.times))
        yield _ways(outage)
        yield stacked(*_verdicts(outage))
    for name, one in found.plans.items():
        if one and one is not best:
            job = one.plan.job
            offer = OFFERS[name].format(job.islands * job.training.global_batch_size)
            speed = f"{percent(one.rate)} of the plan's speed on {job.num_gpus:,} GPUs"
            line = f"{offer}: {speed}: `--take {name}`."
            yield stacked(line, *_lines("  it", one), *_remarks(one))


def _lines(name: str, one: Resumed) -> Iterator[str]:
    job, best = one.plan.job, one.plan.best
    yield f"{name}: {layout_line(best.layout, job.model)}"
    yield f"  {estimate_line(best.estimate, job)}"


def _remarks(one: Resumed) -> dict[str, None]:
    """How the checkpoint loads, and what changes the training: each once."""
    changes = (f"{note[0].upper()}{note[1:]}." for note in one.changes)
    return dict.fromkeys((one.checkpoint.sentence, *changes))


def _times(times: Times) -> Iterator[str]:
    since = f"Lost anyway: {lasting(times.since_save_s)} of training since the last save"
    yield f"{since}{f' ({times.assumed})' if times.assumed else ''}."
    if times.restart_s is None:
        yield "How long a restart takes is not stated: `--restart 10m`."
    if times.repair_s is None:
        yield "How long the nodes are away is not stated: `--repair 2h`."


def _ways(outage: Outage) -> Part:
    rows = [
        (
            WORDS[one.name],
            UNKNOWN if one.ready_s is None else lasting(one.ready_s),
            percent(one.rate),
            UNKNOWN if one.lost_s is None else lasting(one.lost_s),
        )
        for one in outage.ways
    ]
    figures = (number("trains after"), number("speed"), number("training lost"))
    return table("Ways", (f"until {plural(outage.lost_nodes, 'node')} back", *figures), rows)


def _verdicts(outage: Outage) -> Iterator[Part]:
    """From which time away a way is better, and whether a spare node pays."""
    for one in outage.ways:
        if one.name != "spare nodes" and one.least_repair_s is not None:
            away = lasting(one.least_repair_s)
            to = WORDS[one.name]
            yield f"{to[0].upper()}{to[1:]}: better where they are away for more than {away}."
    if spare := outage.spare:
        least = percent(spare.least_away_fraction)
        line = f"To keep one of the nodes as a spare pays where one is away {least} of the time"
        if spare.least_away_fraction >= 1:
            yield "To keep one of the nodes as a spare does not pay: the others go on as fast."
        elif spare.away_fraction is None:
            yield f"{line}; how much it is is not stated: `failures` of the cluster."
        else:
            verdict = "it pays" if spare.pays else "it does not pay"
            yield f"{line}; here it is {percent(spare.away_fraction)}, so {verdict}."
